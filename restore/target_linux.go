package restore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// target is an open directory that is being filled. One that only leads to an
// included entry is made when the first such entry is.
type target struct {
	parent *target // nil for the root
	path   string  // "" for the root, else it ends in a slash
	entry  tree.Entry
	left   atomic.Int32 // tasks in it and directories below it that are not done
	// A scaffold stands for a directory that is in the target already: only what is in
	// it is moved there.
	scaffold bool
	late     bool   // it is to be moved, and gets its metadata then
	stage    string // of the root: the name of a restore's own directory in it

	mu    sync.Mutex
	made  bool
	never bool // the file system cannot hold it
	fd    int
	names []string // of the root: what the restore made in it
	acl   []byte   // of the root: its own default ACL, which undo puts back
}

// openTarget opens the root of a restore.
func openTarget(dir string) (*target, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}
	return &target{fd: fd, made: true}, nil
}

func (t *target) close() {
	if t.made {
		_ = unix.Close(t.fd)
	}
}

// note remembers a name that the restore made in the root.
func (t *target) note(name string) {
	if t.parent != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
}

// checkEmpty fails unless the directory, which messages call dir, has no entries
// but those of its file system and, when it is ours, the marker.
func (t *target) checkEmpty(dir string, marked bool) error {
	fd, err := unix.Openat(t.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at the target %s: %w", tree.Quote(dir), err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("look at the target: %w", err)
	}
	if !marked && slices.Contains(names, capture.Marker) {
		return &UnfinishedError{Dir: tree.Quote(dir)}
	}
	for _, name := range names {
		switch {
		case name == capture.Marker:
		case name == "lost+found" && t.isMountRoot():
		default:
			return fmt.Errorf("%s holds %s: %w", tree.Quote(dir), tree.Quote(name), ErrNotEmpty)
		}
	}
	return nil
}

// isMountRoot reports whether the directory is the root of a file system: there,
// a lost+found belongs to the file system.
func (t *target) isMountRoot() bool {
	var st, up unix.Stat_t
	if unix.Fstat(t.fd, &st) != nil || unix.Fstatat(t.fd, "..", &up, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return st.Dev != up.Dev || st.Ino == up.Ino
}

// undo removes what the restore made in the directory, the marker last; of one that
// was resumed that is also what the killed one had made. What others made in the
// directory meanwhile is theirs.
func (t *target) undo() error {
	for _, name := range t.names {
		if err := removeAt(t.fd, name); err != nil {
			return err
		}
	}
	var err error
	if len(t.acl) > 0 {
		err = unix.Fsetxattr(t.fd, tree.ACLDefault, t.acl, 0)
	}
	return errors.Join(err, unix.Unlinkat(t.fd, capture.Marker, 0))
}

// defaultACL returns the directory's default ACL.
func (t *target) defaultACL() []byte {
	buf := make([]byte, tree.MaxXAttrValue)
	n, err := unix.Fgetxattr(t.fd, tree.ACLDefault, buf)
	if err != nil || n == 0 {
		return nil // it has none, or its file system knows none
	}
	return bytes.Clone(buf[:n])
}

// clearDefaultACL takes the default ACL off the directory: everything made in it
// would inherit rights that nobody saved.
func (t *target) clearDefaultACL() error {
	if t.defaultACL() == nil {
		return nil
	}
	if err := unix.Fremovexattr(t.fd, tree.ACLDefault); err != nil {
		return fmt.Errorf("restore: remove the default ACL of the target: %w", err)
	}
	return nil
}

// make creates the directory if it is not there yet.
func (t *target) make(w *writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made {
		return nil
	}
	if t.never {
		return errUnmakeable
	}
	if err := t.parent.make(w); err != nil {
		return err
	}
	name := t.entry.Name
	w.step()
	switch err := unix.Mkdirat(t.parent.fd, name, 0o700); {
	case err == nil:
		t.parent.note(name)
	case w.left != nil && errors.Is(err, unix.EEXIST):
		if t.fd, err = adopt(w.owners, t.parent.fd, &t.entry); err != nil {
			return w.at(t.path, err)
		}
		t.made = true
		if err = freshen(t.fd); err != nil {
			return w.at(t.path, err)
		}
		return nil
	default:
		if err = w.unmakeable(t.parent.fd, t.path, tree.Dir, err); errors.Is(err, errUnmakeable) {
			t.never = true
			if d, err := w.reader.Open(w.ctx, t.entry.Hash); err == nil {
				below := d.Root().Totals
				w.mu.Lock()
				w.unmade += int64(below.Files + below.Dirs)
				w.mu.Unlock()
			}
			return err
		}
		return w.at(t.path, cas.NoSpace(err))
	}
	fd, err := unix.Openat(t.parent.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return w.at(t.path, err)
	}
	t.fd, t.made = fd, true
	return nil
}

// inPlace makes sure that the directory still is what its name leads to: what was
// restored into it would be elsewhere otherwise.
func (t *target) inPlace() error {
	var st, named unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return err
	}
	err := unix.Fstatat(t.parent.fd, t.entry.Name, &named, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && (named.Dev != st.Dev || named.Ino != st.Ino) {
		err = errors.New("it was replaced meanwhile")
	}
	return err
}

// openBelow opens a directory by its path below t, one component at a time and
// without following a link. It holds even where openat2(2) is forbidden.
func (t *target) openBelow(path string) (int, error) {
	fd, err := unix.Openat(t.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		if name == "" {
			continue
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// entered is an open directory of a live target.
type entered struct {
	fd   int
	mode uint32 // that it had
	let  bool   // it was changed to let its owner look in
}

// enter opens a directory without following a link. One whose mode keeps its own owner
// out lets the caller in until it is left.
func enter(dir int, name string) (entered, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|flags, 0)
	if !errors.Is(err, unix.EACCES) && os.Geteuid() == 0 {
		return entered{fd: fd}, err
	}
	at, perr := unix.Openat(dir, name, unix.O_PATH|flags, 0)
	if perr != nil {
		return entered{fd: fd}, errors.Join(err, perr)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if perr := unix.Fstat(at, &st); perr != nil || !own(at, &st) || st.Mode&0o500 == 0o500 {
		return entered{fd: fd}, err
	}
	if err == nil { // it can be listed, but not searched
		_ = unix.Close(fd)
	}
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), st.Mode&0o7777|0o700); err != nil {
		return entered{fd: -1}, err
	}
	fd, err = unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return entered{fd: fd, mode: st.Mode & 0o7777, let: true}, err
}

// leave closes the directory and gives it the mode back that it had.
func (e *entered) leave() {
	if e.let {
		_ = unix.Fchmod(e.fd, e.mode)
	}
	_ = unix.Close(e.fd)
}

// openFile opens a live file to look at it, whatever it is by now: no link is followed, and
// nobody is waited for.
func openFile(dir int, name string) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
}

// namesIn lists an open directory, in order.
func namesIn(fd int) ([]string, error) {
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// reopenBelow opens a directory like openBelow, so that its metadata can be set.
func (t *target) reopenBelow(path string) (int, error) {
	at, err := t.openBelow(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// sync makes everything below the directory durable: once for all files.
func (t *target) sync() error {
	if err := unix.Syncfs(t.fd); err != nil {
		return fmt.Errorf("sync the restored tree: %w", cas.NoSpace(err))
	}
	return nil
}

// setTime sets an entry's times without following a link. name "" is dir itself.
func setTime(dir int, name string, e *tree.Entry) error {
	ts := []unix.Timespec{
		{Nsec: unix.UTIME_OMIT},
		{Sec: e.MtimeSec, Nsec: int64(e.MtimeNsec)},
	}
	if name != "" {
		return unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW)
	}
	// A null path means the open file itself (utimensat(2)); the wrapper cannot
	// say that.
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(dir), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setXattrs sets extended attributes on an open file or directory. It returns
// the mode to set: where an ACL cannot be restored, the group's bits, which
// held the ACL's mask, become the group's own entry, never wider.
func (w *writer) setXattrs(fd int, path string, e *tree.Entry) (mode uint32, err error) {
	mode = e.Mode
	if e.XAttrs.IsZero() {
		return mode, nil
	}
	set, err := w.reader.XAttrs(w.ctx, e.XAttrs)
	if err != nil {
		return 0, w.at(path, err)
	}
	// From the end: an ACL, which comes first in the order of names, may take from the
	// owner the right to set the others.
	for _, x := range slices.Backward(set) {
		err := unix.Fsetxattr(fd, x.Name, x.Value, 0)
		if err == nil {
			continue
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EIO) {
			return 0, w.at(path, fmt.Errorf("set %s: %w", x.Name, cas.NoSpace(err)))
		}
		w.incomplete(path, fmt.Errorf("set %s: %w", x.Name, err))
		if x.Name == tree.ACLAccess {
			mode = tree.NarrowMode(mode, x.Value)
		}
	}
	return mode, nil
}

// corrupt marks content that does not agree with the tree.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
}
