package main

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// The exit codes, the same for every verb but diff's 1 and 2.
const (
	exitDone        = 0
	exitTrouble     = 1
	exitUsage       = 2
	exitIncomplete  = 3 // done, but something that should have been kept was not
	exitNotFound    = 4
	exitNotEmpty    = 5
	exitConflict    = 6
	exitForbidden   = 7
	exitCorrupt     = 8
	exitNoSpace     = 9
	exitInterrupted = 130
	exitPipe        = 141 // nobody reads stdout any more: what SIGPIPE does to other programs
)

var (
	errUsage       = errors.New("usage")
	errInterrupted = errors.New("interrupted")
)

// exitCodes turns errors into exit codes; the first that fits counts.
var exitCodes = []struct {
	err  error
	code int
}{
	{errInterrupted, exitInterrupted},
	{errUsage, exitUsage},
	{snapshot.ErrBadArchive, exitTrouble}, // whatever is wrong with it
	{snapshot.ErrNoStore, exitNotFound},
	{index.ErrThreadNotFound, exitNotFound},
	{index.ErrCheckpointNotFound, exitNotFound},
	{index.ErrArtifactNotFound, exitNotFound},
	{index.ErrNoWriter, exitNotFound},
	{snapshot.ErrNoConversation, exitNotFound},
	{snapshot.ErrNotMounted, exitNotFound},
	{snapshot.ErrNoWorkspace, exitNotFound},
	{restore.ErrNotEmpty, exitNotEmpty},
	{restore.ErrCollision, exitConflict},
	{restore.ErrUnfinished, exitConflict},
	{capture.ErrUnfinished, exitConflict},
	{index.ErrWriterConflict, exitConflict},
	{index.ErrWriterLost, exitConflict},
	{index.ErrStaleHead, exitConflict},
	{index.ErrDuplicateID, exitConflict},
	{index.ErrDuplicateName, exitConflict},
	{index.ErrDeleting, exitConflict},
	{snapshot.ErrBusy, exitConflict},
	{snapshot.ErrLocked, exitConflict},
	{snapshot.ErrThreadNotEmpty, exitConflict},
	{snapshot.ErrDiverged, exitConflict},
	{snapshot.ErrThreadUnclear, exitConflict},
	{snapshot.ErrMounted, exitConflict},
	{snapshot.ErrMountBusy, exitConflict},
	{snapshot.ErrWorkspaceState, exitConflict},
	{snapshot.ErrAmbiguous, exitNotFound},
	{snapshot.ErrForbidden, exitForbidden},
	{cas.ErrNoSpace, exitNoSpace},
	{cas.ErrTooLarge, exitNoSpace},
	{policy.ErrTooManyRules, exitNoSpace},
	{policy.ErrTooMuchWork, exitNoSpace},
	{cas.ErrNotFound, exitCorrupt},
	{cas.ErrCorrupt, exitCorrupt},
	{index.ErrCorrupt, exitCorrupt},
	{tree.ErrInvalid, exitCorrupt},
	{tree.ErrNotFound, exitNotFound},
	{index.ErrInvalid, exitUsage},
	{snapshot.ErrRefused, exitUsage},
	{policy.ErrNoRetention, exitUsage},
	{policy.ErrRetention, exitUsage},
	{secrets.ErrUnusable, exitUsage},
	{capture.ErrUnsavable, exitTrouble}, // whatever its entries suffer from
	{iofs.ErrPermission, exitForbidden},
	{unix.EROFS, exitForbidden},
	{unix.ENOSPC, exitNoSpace},
	{unix.EDQUOT, exitNoSpace},
}

// A codeError ends the program with a code. Without an error of its own it is
// silent: what it has to say was printed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// exit ends the program with a code and without a message.
func exit(code int) error { return &codeError{code: code} }

// absent gives an error about a file or directory that the user named the code
// for what is not found, if that is what it says.
func absent(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return &codeError{code: exitNotFound, err: err}
	}
	return err
}

// usage marks an error of the command line itself.
func usage(err error) error {
	if errors.Is(err, errUsage) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

func usagef(format string, args ...any) error {
	return snapshot.WithHint(usage(fmt.Errorf(format, args...)), "snapfs help, or snapfs help VERB")
}

// report prints an error with its hint and returns the exit code for it.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	var coded *codeError
	if errors.As(err, &coded) && (coded.err == nil || coded.code == exitPipe) {
		return coded.code
	}
	fmt.Fprintf(w, "snapfs: %s\n", printable(err))
	if hint := snapshot.Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	if coded != nil {
		return coded.code
	}
	return exitCode(err)
}

// printable is an error's text with the paths quoted that the operating system's
// errors hold as they are. A newline that is left ends one of several errors.
func printable(err error) string {
	text := err.Error()
	for _, path := range pathsIn(err) {
		if q := quote(path); q != path && path != "" {
			text = strings.ReplaceAll(text, path, q)
		}
	}
	return printableText(text)
}

// printableText quotes the words of a text that cannot be printed as they are.
func printableText(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		for part := range strings.SplitAfterSeq(line, " ") {
			if word := strings.TrimSuffix(part, " "); !utf8.ValidString(word) || strings.ContainsFunc(word, unicode.IsControl) {
				part = quote(word) + part[len(word):]
			}
			b.WriteString(part)
		}
	}
	return b.String()
}

// pathsIn collects the paths that the operating system's errors in err name.
func pathsIn(err error) []string {
	var paths []string
	switch e := err.(type) {
	case *os.PathError:
		paths = append(paths, e.Path)
	case *os.LinkError:
		paths = append(paths, e.Old, e.New)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		paths = append(paths, pathsIn(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			paths = append(paths, pathsIn(err)...)
		}
	}
	return paths
}

func exitCode(err error) int {
	var pattern *policy.PatternError
	if errors.As(err, &pattern) {
		return exitUsage
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return exitTrouble
}
