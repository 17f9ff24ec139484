package restore

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/tree"
)

// errUnmakeable: the file system cannot hold an entry; that was noted.
var errUnmakeable = errors.New("the file system cannot hold it")

// oneOf reports whether an error is one of some.
func oneOf(err error, some ...unix.Errno) bool {
	return slices.ContainsFunc(some, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// absent reports whether an error says that nothing has a name, or that nothing can.
func absent(err error) bool {
	return oneOf(err, unix.ENOENT, unix.EILSEQ, unix.EINVAL, unix.ENAMETOOLONG)
}

// unable reports whether an error of a call that is about an entry in, or with, the open
// fd says that the file system has no such thing. Those in user space say it in many ways.
func unable(fd int, err error) bool {
	return oneOf(err, unix.EOPNOTSUPP, unix.ENOSYS) || oneOf(err, unix.EPERM, unix.EINVAL) && ownerless(fd)
}

// unmakeable notes an entry that the file system of the open directory dir cannot hold,
// and makes an [errUnmakeable] of the error that says so. Any other error it returns as
// it is.
func (w *writer) unmakeable(dir int, path string, kind tree.Kind, err error) error {
	var why string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EFBIG):
		why = "the file system can hold no file of that size"
	case kind == tree.Symlink && (unable(dir, err) || errors.Is(err, unix.EPERM)):
		why = "the file system can hold no symlinks"
	case oneOf(err, unix.EINVAL, unix.EILSEQ, unix.ENAMETOOLONG), oneOf(err, unix.ENOENT, unix.EPERM) && ownerless(dir):
		why = "the file system can hold no such name"
	default:
		return err
	}
	if kind == tree.Dir {
		why += ", nor what is in it"
	}
	w.incomplete(path, fmt.Errorf("not made: %s", why))
	w.mu.Lock()
	w.unmade++
	w.mu.Unlock()
	return errUnmakeable
}

// modes knows with which modes files come into being as they were asked for, and which
// ones they keep. The umask, the file system and its mount decide that, for all files
// of a restore alike; so one of each mode is looked at.
type modes struct {
	fresh, kept [tree.MaxMode + 1]atomic.Uint32
}

// known marks a mode that was looked at.
const known = 1 << 31

// exact reports whether a new file that was to have mode does.
func (m *modes) exact(fd int, mode uint32) bool { return modeOf(&m.fresh[mode], fd, mode) == mode }

// keeps returns the mode that a file has which was given this one.
func (m *modes) keeps(fd int, mode uint32) uint32 { return modeOf(&m.kept[mode], fd, mode) }

func modeOf(seen *atomic.Uint32, fd int, mode uint32) uint32 {
	if is := seen.Load(); is != 0 {
		return is &^ known
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return mode
	}
	is := st.Mode & 0o7777
	seen.Store(is | known)
	return is
}

// chmod sets the mode of an open file or directory. One that the file system does not
// keep is noted.
func (w *writer) chmod(fd int, path string, mode uint32) error {
	err := unix.Fchmod(fd, mode)
	switch {
	case unable(fd, err):
	case err != nil:
		return err
	case w.modes.keeps(fd, mode) == mode:
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if is := st.Mode & 0o7777; is != mode {
		w.incomplete(path, fmt.Errorf("mode %04o instead of %04o: the file system keeps no other", is, mode))
	}
	return nil
}

// times knows whether the file system keeps times to the nanosecond.
type times struct{ exact, rounds atomic.Bool }

// setTime sets the times of an entry without following a link; name "" is dir itself.
// What the file system makes of them is noted.
func (w *writer) setTime(dir int, name, path string, e *tree.Entry) error {
	if err := setTime(dir, name, e); err != nil {
		if !unable(dir, err) {
			return err
		}
		w.incomplete(path, fmt.Errorf("its time: %w", err))
		return nil
	}
	// A time between 1980 and 2038 is kept like any other such time.
	const first, last = 315532800, 1<<31 - 1
	usual := e.MtimeSec > first && e.MtimeSec < last
	if usual && w.times.exact.Load() {
		return nil
	}
	var st unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(dir, &st)
	} else {
		err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return err
	}
	is, want := time.Unix(st.Mtim.Unix()), time.Unix(e.MtimeSec, int64(e.MtimeNsec))
	switch off := is.Sub(want).Abs(); {
	case is.Equal(want):
		if usual && e.MtimeNsec%1000 != 0 {
			w.times.exact.Store(true)
		}
	case off <= 2*time.Second: // the unit of a vfat
		if !w.times.rounds.Swap(true) {
			w.incomplete("", fmt.Errorf("the file system rounds times: %s has %s instead of %s", tree.Quote(shown(path)), stamp(is), stamp(want)))
		}
	default:
		w.incomplete(path, fmt.Errorf("time %s instead of %s: the file system keeps no other", stamp(is), stamp(want)))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// folds reports whether a directory takes names for one that differ in case: it says so,
// or finds a marker that is in it by another name. full says how: see [folded].
func (t *target) folds() (folds, full bool) {
	const casefold = 0x40000000 // FS_CASEFOLD_FL of linux/fs.h
	flags, err := unix.IoctlGetUint32(t.fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&casefold != 0 {
		return true, true
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(t.fd, &fs) == nil && (fs.Type == unix.MSDOS_SUPER_MAGIC || fs.Type == unix.EXFAT_SUPER_MAGIC) {
		return true, false
	}
	return t.knows(strings.ToUpper(capture.Marker)), false
}

// knows reports whether a name leads to an entry of the directory. A file system in user
// space may give one file a number for each name, so that numbers prove nothing.
func (t *target) knows(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(t.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// foldsNear is folds for a path of which the end may be missing, and where nothing may be
// written to find out.
func foldsNear(path string) (folds, full bool) {
	t, err := openTarget(path)
	if err != nil {
		if up := filepath.Dir(path); errors.Is(err, iofs.ErrNotExist) && up != path {
			return foldsNear(up)
		}
		return false, false
	}
	defer t.close()
	if folds, full = t.folds(); folds {
		return folds, full
	}
	names, err := namesIn(t.fd)
	if err != nil {
		return false, false
	}
	for _, name := range names {
		other := strings.ToUpper(name)
		if other == name {
			other = strings.ToLower(name)
		}
		if _, listed := slices.BinarySearch(names, other); !listed {
			return t.knows(other), false
		}
	}
	// It is empty, or has no letters: its own name tells as much, but for a mountpoint.
	above, err := openTarget(filepath.Dir(path))
	if err != nil {
		return false, false
	}
	defer above.close()
	base := filepath.Base(path)
	other := strings.ToUpper(base)
	names, err = namesIn(above.fd)
	return err == nil && !t.isMountRoot() && other != base && !slices.Contains(names, other) && above.knows(other), false
}
