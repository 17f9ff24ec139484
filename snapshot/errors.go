package snapshot

import (
	"errors"
	"fmt"
	iofs "io/fs"
)

var (
	// ErrNoStore: there is no store at that place.
	ErrNoStore = errors.New("no store")
	// ErrNotAStore: the directory has content and is not a store.
	ErrNotAStore = errors.New("not a snapfs store")
	// ErrNewerStore: a newer snapfs made the store.
	ErrNewerStore = errors.New("the store has a newer format")
	// ErrLocked: another process holds the store. The error is a [*LockedError].
	ErrLocked = errors.New("the store is held by another process")
	// ErrAmbiguous: a reference that fits several checkpoints.
	ErrAmbiguous = errors.New("ambiguous reference")
	// ErrBusy: the thread is being saved by somebody else.
	ErrBusy = errors.New("the thread is being saved")
	// ErrSessionOver: the save's session with the holder of the store has ended.
	ErrSessionOver = errors.New("the session with the store has ended")
	// ErrRefused: something that is not done unless it is forced.
	ErrRefused = errors.New("refused")
	// ErrNoConversation: the checkpoint was saved without one.
	ErrNoConversation = errors.New("no conversation was saved")
	// ErrForbidden: the caller may not do that.
	ErrForbidden = errors.New("forbidden")
	// ErrThreadNotEmpty: a fork into a thread that has checkpoints.
	ErrThreadNotEmpty = errors.New("the thread is not empty")
	// ErrDiverged: two stores have a thread that went on in different ways in each.
	ErrDiverged = errors.New("the thread has diverged")
	// ErrThreadUnclear: no thread was named and none follows from the directory.
	ErrThreadUnclear = errors.New("which thread is not clear")
	// ErrMounted: something is mounted there already, or it is no place for a mount.
	ErrMounted = errors.New("cannot mount there")
	// ErrNotMounted: there is no snapfs mount.
	ErrNotMounted = errors.New("not mounted")
	// ErrMountBusy: somebody uses the mount.
	ErrMountBusy = errors.New("the mount is busy")
	// ErrUnsupported: this store, or its holder, has no such ability.
	ErrUnsupported = errors.New("not supported")
)

// A LockedError says who holds a store.
type LockedError struct {
	PID  int
	Verb string
}

// Error names the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return ErrLocked.Error()
	}
	return fmt.Sprintf("the store is held by %s, process %d", e.Verb, e.PID)
}

// Unwrap makes the error an [ErrLocked].
func (e *LockedError) Unwrap() error { return ErrLocked }

// A HintError carries what the user can do about an error.
type HintError struct {
	Err  error
	Hint string
}

// Error is the error's own text, without the hint.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *HintError) Unwrap() error { return e.Err }

// WithHint adds what to do instead to err.
func WithHint(err error, format string, args ...any) error {
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

// Hint returns the innermost hint of err, or "".
func Hint(err error) string {
	var h *HintError
	if errors.As(err, &h) {
		return h.Hint
	}
	return ""
}

// Forbidden makes an error that says that the caller may not use a store an
// [ErrForbidden], and leaves every other one as it is.
func Forbidden(dir string, err error) error {
	if !errors.Is(err, iofs.ErrPermission) || errors.Is(err, ErrForbidden) {
		return err
	}
	return WithHint(fmt.Errorf("%w: %w", err, ErrForbidden), "the store %s is somebody else's: work as its owner, or name another with --store", quoted(dir))
}
