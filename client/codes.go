package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net/http"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

var (
	// ErrNoDaemon: no daemon serves the store, or it ended.
	ErrNoDaemon = errors.New("no daemon serves the store")
	// ErrClosing: the daemon is about to end and begins nothing new.
	ErrClosing = errors.New("the daemon is shutting down")
)

// A Code is an error's name on the wire. Scripts may rely on it.
type Code string

// The codes of errors that are no sentinel of the store.
const (
	CodeInternal   Code = "INTERNAL"      // trouble without a name
	CodeBadRequest Code = "BAD_REQUEST"   // a request that the API does not allow
	CodeNoRoute    Code = "NO_SUCH_ROUTE" // no such path, or not with this method
)

// A Sentinel is one row of the table from errors to codes.
type Sentinel struct {
	Err  error
	Code Code
}

// Sentinels lists every error that keeps its meaning across the connection. An
// error that is several of them has the code of the first, so the more special
// ones come first.
func Sentinels() []Sentinel {
	return []Sentinel{
		{snapshot.ErrForbidden, "FORBIDDEN"},
		{ErrClosing, "CLOSING"},
		{ErrNoDaemon, "NO_DAEMON"},
		{index.ErrCommitted, "COMMITTED"},
		{index.ErrWriterConflict, "WRITER_CONFLICT"},
		{index.ErrWriterLost, "WRITER_LOST"},
		{index.ErrStaleHead, "STALE_HEAD"},
		{index.ErrDuplicateID, "DUPLICATE_ID"},
		{index.ErrDuplicateName, "DUPLICATE_NAME"},
		{snapshot.ErrBusy, "BUSY"},
		{snapshot.ErrThreadNotEmpty, "THREAD_NOT_EMPTY"},
		{snapshot.ErrDiverged, "DIVERGED"},
		{snapshot.ErrThreadUnclear, "THREAD_UNCLEAR"},
		{snapshot.ErrSessionOver, "SESSION_OVER"},
		{snapshot.ErrAmbiguous, "AMBIGUOUS"},
		{snapshot.ErrMounted, "MOUNTED"},
		{snapshot.ErrMountBusy, "MOUNT_BUSY"},
		{snapshot.ErrWorkspaceState, "WORKSPACE_STATE"},
		{snapshot.ErrNotMounted, "NOT_MOUNTED"},
		{snapshot.ErrNoWorkspace, "NO_WORKSPACE"},
		{snapshot.ErrNewerStore, "NEWER_STORE"},
		{snapshot.ErrNotAStore, "NOT_A_STORE"},
		{snapshot.ErrNoStore, "NO_STORE"},
		{snapshot.ErrLocked, "LOCKED"},
		{snapshot.ErrRefused, "REFUSED"},
		{snapshot.ErrBadArchive, "BAD_ARCHIVE"},
		{snapshot.ErrUnsupported, "UNSUPPORTED"},
		{capture.ErrUnsavable, "UNSAVABLE"},
		{capture.ErrUnfinished, "UNFINISHED_WORKSPACE"},
		{capture.ErrMetacopy, "METACOPY"},
		{capture.ErrNeedsScan, "NEEDS_SCAN"},
		{restore.ErrNotEmpty, "TARGET_NOT_EMPTY"},
		{restore.ErrUnfinished, "UNFINISHED_TARGET"},
		{restore.ErrCollision, "NAME_COLLISION"},
		{restore.ErrDeletesMore, "DELETES_MORE"},
		{restore.ErrInTheWay, "IN_THE_WAY"},
		{restore.ErrExcluded, "EXCLUDED"},
		{restore.ErrMountBelow, "MOUNT_BELOW"},
		{index.ErrThreadNotFound, "THREAD_NOT_FOUND"},
		{index.ErrCheckpointNotFound, "CHECKPOINT_NOT_FOUND"},
		{index.ErrArtifactNotFound, "ARTIFACT_NOT_FOUND"},
		{index.ErrNoWriter, "NO_WRITER"},
		{index.ErrDeleting, "DELETING"},
		{snapshot.ErrNoConversation, "NO_CONVERSATION"},
		{tree.ErrNotFound, "ENTRY_NOT_FOUND"},
		{cas.ErrNoSpace, "NO_SPACE"},
		{cas.ErrTooLarge, "TOO_LARGE"},
		{cas.ErrCorrupt, "CORRUPT"},
		{cas.ErrNotFound, "MISSING_BLOB"},
		{index.ErrCorrupt, "INDEX_CORRUPT"},
		{index.ErrNewer, "NEWER_FORMAT"},
		{index.ErrInUse, "INDEX_IN_USE"},
		{index.ErrClosed, "CLOSED"},
		{tree.ErrInvalid, "INVALID_TREE"},
		{index.ErrInvalid, "INVALID"},
		{iofs.ErrNotExist, "FILE_NOT_FOUND"},
		{iofs.ErrPermission, "PERMISSION"},
	}
}

// sentinels is never written to.
var sentinels = Sentinels()

// ErrorBody is how an error travels.
type ErrorBody struct {
	Code    Code     `json:"code" doc:"name of the error, for programs"`
	Also    []Code   `json:"also,omitempty" doc:"further names that fit"`
	Message string   `json:"message" doc:"what was being done to what, and what went wrong"`
	Hint    string   `json:"hint,omitempty" doc:"what to do instead"`
	Details []string `json:"details,omitempty" doc:"one line for each thing that is wrong with the request"`
}

// NewErrorBody names an error. One that is no sentinel is CodeInternal.
func NewErrorBody(err error) ErrorBody {
	body := ErrorBody{Code: CodeInternal, Message: err.Error(), Hint: snapshot.Hint(err)}
	found := false
	for _, s := range sentinels {
		switch {
		case !errors.Is(err, s.Err):
		case found:
			body.Also = append(body.Also, s.Code)
		default:
			body.Code, found = s.Code, true
		}
	}
	return body
}

// Err turns the body back into an error with the same text, hint and sentinels.
func (b ErrorBody) Err() error {
	e := &Error{Code: b.Code, Message: b.Message}
	for _, code := range append([]Code{b.Code}, b.Also...) {
		for _, s := range sentinels {
			if s.Code == code {
				e.is = append(e.is, s.Err)
			}
		}
	}
	if b.Hint != "" {
		return &snapshot.HintError{Err: e, Hint: b.Hint}
	}
	return e
}

// An Error is what the daemon answered. It is every sentinel that the error was
// there.
type Error struct {
	Code    Code
	Message string
	is      []error
}

// Error is the text that the daemon's own error has.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the sentinels.
func (e *Error) Unwrap() []error { return e.is }

// maxErrorBody bounds the bytes read of a reply that is an error.
const maxErrorBody = 1 << 20

// replyError makes the error of a reply whose status is not the wanted one.
func replyError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("daemon answered %s: %w", resp.Status, err)
	}
	var body ErrorBody
	if err := json.Unmarshal(data, &body); err != nil || body.Code == "" {
		return fmt.Errorf("daemon answered %s", resp.Status)
	}
	return body.Err()
}
