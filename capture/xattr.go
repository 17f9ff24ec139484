package capture

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// xattrs stores the extended attributes of an open file or directory that are
// content: those of users, and POSIX ACLs. Most files have none. hides tells that there
// are more, which have a declared secret.
func (w *worker) xattrs(fd int) (hash cas.Hash, hides bool, err error) {
	names, err := listXattrs(fd)
	if err != nil || len(names) == 0 {
		return cas.Hash{}, false, err
	}
	set := make([]tree.XAttr, 0, len(names))
	for _, name := range names {
		value, err := getXattr(fd, name)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile; the ctime tells
		}
		if err != nil {
			return cas.Hash{}, false, err
		}
		if declared := w.opt.Screen.Declared; declared.Holds(name) || declared.Holds(string(value)) {
			hides = true
			continue
		}
		set = append(set, tree.XAttr{Name: name, Value: value})
	}
	if len(set) == 0 {
		return cas.Hash{}, hides, nil
	}
	obj, err := tree.EncodeXAttrs(set)
	if err != nil {
		return cas.Hash{}, false, err
	}
	w.addTrees(obj)
	return obj.Key.Hash, hides, nil
}

// listXattrs returns the sorted names of the attributes that are content.
func listXattrs(fd int) ([]string, error) {
	var small [256]byte
	buf := small[:]
	n, err := unix.Flistxattr(fd, buf)
	for errors.Is(err, unix.ERANGE) {
		if n, err = unix.Flistxattr(fd, nil); err == nil {
			buf = make([]byte, n+256)
			n, err = unix.Flistxattr(fd, buf)
		}
	}
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(buf[:n-1], []byte{0}) {
		if s := string(name); strings.HasPrefix(s, "user.") || strings.HasPrefix(s, "system.posix_acl_") {
			names = append(names, s)
		}
	}
	slices.Sort(names)
	return names, nil
}

// getXattr returns one attribute's value.
func getXattr(fd int, name string) ([]byte, error) {
	buf := make([]byte, 256)
	n, err := unix.Fgetxattr(fd, name, buf)
	for errors.Is(err, unix.ERANGE) {
		if n, err = unix.Fgetxattr(fd, name, nil); err == nil {
			buf = make([]byte, n+256)
			n, err = unix.Fgetxattr(fd, name, buf)
		}
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
