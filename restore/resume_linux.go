package restore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// whole tells whether a file that is there looks as one does whose content was
// written to its end: its time is set after that.
func (w *writer) whole(fd int, path string, st *unix.Stat_t, e *tree.Entry) bool {
	return w.ours(fd, path, st, e) && st.Mtim.Sec == e.MtimeSec && st.Mtim.Nsec == int64(e.MtimeNsec)
}

// ours tells whether a file that is there can be one that an earlier restore made, as
// long as the saved one.
func (w *writer) ours(fd int, path string, st *unix.Stat_t, e *tree.Entry) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && w.owners.made(fd, st, e) && st.Size == int64(e.Size) &&
		int(st.Nlink) <= w.links.names(path) // another name may be anybody's
}

// keep opens a file that is there and complete. One that is not is removed, never
// written to: then, and when there is none, fd is -1.
func (w *writer) keep(t *target, path string, e *tree.Entry) (fd int, err error) {
	// A file whose mode keeps its own owner out is made anew.
	fd, err = openFile(t.fd, e.Name)
	if errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil {
			var right bool
			if right, err = w.holds(fd, path, &st, e); right {
				return fd, nil
			}
		}
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
	}
	return -1, w.remove(t, e)
}

// remove takes away an entry that an earlier restore made, so that it can be made
// anew. What is of another kind, or somebody else's, stays.
func (w *writer) remove(t *target, e *tree.Entry) error {
	var st unix.Stat_t
	if err := unix.Fstatat(t.fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	kind := uint32(unix.S_IFREG)
	if e.Kind == tree.Symlink {
		kind = unix.S_IFLNK
	}
	if st.Mode&unix.S_IFMT != kind || !w.owners.made(t.fd, &st, e) {
		return errReplaced
	}
	w.step()
	return unix.Unlinkat(t.fd, e.Name, 0)
}

// holds tells whether a file is there to its end. Within one boot of the machine
// the kernel has every byte that was written before the time was set. After another
// one, or when the saved time may be that of writing itself, its content is compared, and
// so is that of a file with another time in which secrets may have been put back.
func (w *writer) holds(fd int, path string, st *unix.Stat_t, e *tree.Entry) (bool, error) {
	if !w.whole(fd, path, st, e) {
		if e.Flags&tree.Redacted == 0 || !w.ours(fd, path, st, e) {
			return false, nil
		}
		is, err := w.compare(fd, path, e)
		return is == alike, err
	}
	if b := w.left.begun; w.left.boot && (e.MtimeSec < b.Sec || e.MtimeSec == b.Sec && int64(e.MtimeNsec) < b.Nsec) {
		return true, nil
	}
	is, err := w.compare(fd, path, e)
	return is != unlike, err
}

// readAt fills buf with n bytes of a file. What cannot be read does not count as
// there.
func readAt(fd int, buf *[]byte, n, off int64) bool {
	*buf = slices.Grow((*buf)[:0], int(n))[:n]
	for rest := *buf; len(rest) > 0; {
		got, err := ignoringEINTR(func() (int, error) { return unix.Pread(fd, rest, off) })
		if err != nil || got == 0 {
			return false
		}
		rest, off = rest[got:], off+int64(got)
	}
	return true
}

// keepLink reports whether a symlink is there with the saved text; another one is
// removed.
func (w *writer) keepLink(t *target, e *tree.Entry) (bool, error) {
	buf := make([]byte, len(e.Target)+1)
	n, err := unix.Readlinkat(t.fd, e.Name, buf)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EINVAL): // no link
		return false, errReplaced
	case err != nil:
		return false, err
	case string(buf[:n]) == e.Target:
		return true, nil
	}
	return false, w.remove(t, e)
}

// strip removes the attributes that a restore sets, but for those of the saved set.
func strip(fd int, saved []tree.XAttr) error {
	names, err := listXattrs(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.ContainsFunc(saved, func(x tree.XAttr) bool { return x.Name == name }) {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// listXattrs returns the names of an open file's attributes, as far as a restore sets
// such.
func listXattrs(fd int) ([]string, error) {
	size, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil, nil
	}
	buf := make([]byte, size+1024)
	if err == nil {
		size, err = unix.Flistxattr(fd, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	var names []string
	for name := range bytes.SplitSeq(buf[:size], []byte{0}) {
		if tree.CheckXAttrName(string(name)) == nil {
			names = append(names, string(name))
		}
	}
	return names, nil
}
