package capture

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// What overlayfs keeps in the upper directory, see Documentation/filesystems/overlayfs.rst
// of the kernel: a whiteout is a character device with the number 0, or an empty file with
// an attribute in a directory that is marked so.
const (
	overlayOpaque   = "trusted.overlay.opaque"
	overlayRedirect = "trusted.overlay.redirect"
	overlayWhiteout = "trusted.overlay.whiteout"
	overlayMetacopy = "trusted.overlay.metacopy"

	// LowerMark is the attribute that whoever makes an upper directory gives it. Who cannot
	// see it cannot see overlayfs' own either, and would take what was deleted for there.
	LowerMark = "trusted.overlay.snapfs"

	opaqueAll       = "y" // nothing of the saved directory shows
	opaqueWhiteouts = "x" // there are whiteouts that are files
)

// overlaid returns the directory of the saved tree that shows in one of the upper
// directory, of which up is the directory above, and nil for the root; nil: none does.
func (c *walker) overlaid(fd *dirFD, up *directory, name string) (*savedDir, error) {
	opaque, err := overlayAttr(fd.fd, overlayOpaque)
	if err != nil {
		return nil, err
	}
	fd.whiteouts = opaque == opaqueWhiteouts
	redirect, err := overlayAttr(fd.fd, overlayRedirect)
	if err != nil || opaque == opaqueAll {
		return nil, err
	}
	l := c.lower
	if up == nil {
		if redirect != "" {
			return nil, fmt.Errorf("%w: the workspace's root is redirected", ErrNeedsScan)
		}
		return &savedDir{hash: l.Root}, nil
	}
	from, path := up.saved, name
	if redirect != "" {
		if absolute, ok := strings.CutPrefix(redirect, "/"); ok {
			from, path = &savedDir{hash: l.Root}, absolute
		} else {
			path = redirect
		}
		if tree.CheckPath(path) != nil || from == up.saved && strings.Contains(path, "/") {
			return nil, fmt.Errorf("%w: %s is redirected to %s", ErrNeedsScan, tree.Quote(up.path+name), tree.Quote(redirect))
		}
	}
	if from == nil {
		return nil, nil
	}
	e, err := l.Trees.Find(c.ctx, from.hash, path)
	switch {
	case errors.Is(err, tree.ErrNotFound) && redirect != "":
		return nil, fmt.Errorf("%w: %s is redirected to %s, which is not in the checkpoint", ErrNeedsScan, tree.Quote(up.path+name), tree.Quote(redirect))
	case errors.Is(err, tree.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case e.Kind != tree.Dir:
		return nil, nil
	}
	return &savedDir{hash: e.Hash, path: from.path + path + "/"}, nil
}

// overlayAttr reads an attribute of overlayfs' own; empty: there is none. The kernel writes
// none without a value, and refuses an entry that has one.
func overlayAttr(fd int, name string) (string, error) {
	value, err := getXattr(fd, name)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err == nil && len(value) == 0 {
		err = fmt.Errorf("%w: the attribute %s is empty", ErrNeedsScan, name)
	}
	return string(value), err
}

// checkOverlaid refuses a file without content of its own, and one that the kernel does not
// show, being a whiteout, although it is in no directory that is marked so.
func (w *worker) checkOverlaid(fd int, size int64) error {
	if w.lower == nil {
		return nil
	}
	has := func(name string) (bool, error) {
		_, err := getXattr(fd, name)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			return false, nil
		}
		return err == nil, err
	}
	copied, err := has(overlayMetacopy)
	if err == nil && copied {
		err = ErrMetacopy
	}
	if err == nil && size == 0 {
		var white bool
		if white, err = has(overlayWhiteout); white {
			err = errVanished
		}
	}
	return err
}

// isWhiteout reports whether an entry of the upper directory only says that the saved one
// of its name is gone.
func (d *dirFD) isWhiteout(n dirName) (bool, error) {
	if n.kind != unix.DT_CHR && (n.kind != unix.DT_REG || !d.whiteouts) {
		return false, nil
	}
	st, err := d.look(n.name)
	if err != nil {
		return false, err
	}
	if kindOf(&st) == unix.DT_CHR {
		return st.Rdev == 0, nil
	}
	if st.Size != 0 || kindOf(&st) != unix.DT_REG {
		return false, nil
	}
	fd, err := d.open(n.name, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	_, err = getXattr(fd, overlayWhiteout)
	if errors.Is(err, unix.ENODATA) {
		return false, nil
	}
	return err == nil, err
}
