package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// ErrMountBelow: something is mounted in what is to be removed.
var ErrMountBelow = errors.New("something is mounted there")

// RemoveAll removes a path with all below it, whatever their modes, but goes neither
// through a link nor into what is mounted: then it fails with [ErrMountBelow], and what is
// left stays. It goes down by open directories, so that what is mounted meanwhile is not
// met either. A path that is missing is fine.
func RemoveAll(path string) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return removeAt(dir, filepath.Base(path))
}

// removeAt is RemoveAll for an entry of an open directory.
func removeAt(dir int, name string) error {
	fail := func(err error) error { return fmt.Errorf("remove %s: %w", tree.Quote(name), err) }
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// unlink(2) of a directory is EISDIR on Linux, and EPERM says POSIX.
	if !oneOf(err, unix.EISDIR, unix.EPERM, unix.EACCES) {
		return fail(err)
	}
	if rerr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); rerr == nil || errors.Is(rerr, unix.ENOENT) {
		return nil
	} else if errors.Is(rerr, unix.ENOTDIR) {
		return fail(err)
	}
	var above, st unix.Stat_t
	if err := unix.Fstat(dir, &above); err != nil {
		return fail(err)
	}
	outer, _ := statusOf(dir, "", &above)
	sub, err := enter(dir, name)
	if err != nil {
		return fail(err)
	}
	defer sub.leave()
	if err := unix.Fstat(sub.fd, &st); err != nil {
		return fail(err)
	}
	if inner, _ := statusOf(sub.fd, "", &st); inner != outer {
		return fail(ErrMountBelow)
	}
	if st.Mode&0o300 != 0o300 && own(sub.fd, &st) {
		if err := unix.Fchmod(sub.fd, 0o700); err != nil {
			return fail(err)
		}
	}
	names, err := namesIn(sub.fd)
	if err != nil {
		return fail(err)
	}
	var errs []error
	for _, n := range names {
		if err := removeAt(sub.fd, n); err != nil {
			errs = append(errs, err)
			if len(errs) == 10 {
				break
			}
		}
	}
	if len(errs) > 0 {
		return fail(errors.Join(errs...))
	}
	sub.let = false
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fail(err)
	}
	return nil
}
