package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Extended attributes are served if the mount was asked to. The kernel does not
// keep them, so that every ls -l would ask for those of every file; else it is told
// once that there are none.

// GetXAttr implements [fuse.RawFileSystem].
func (f *FS) GetXAttr(_ <-chan struct{}, header *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	f.count(opGetxattr)
	if f.xattrs && tree.CheckXAttrName(name) != nil { // overlayfs asks for its own of each directory
		return 0, fuse.Status(unix.ENODATA)
	}
	set, status := f.attributes(header.NodeId)
	if status != fuse.OK {
		return 0, status
	}
	for _, x := range set {
		if x.Name == name {
			return fillXAttr(dest, []byte(x.Value))
		}
	}
	return 0, fuse.Status(unix.ENODATA)
}

// ListXAttr implements [fuse.RawFileSystem].
func (f *FS) ListXAttr(_ <-chan struct{}, header *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	f.count(opListxattr)
	set, status := f.attributes(header.NodeId)
	if status != fuse.OK {
		return 0, status
	}
	var names []byte
	for _, x := range set {
		names = append(append(names, x.Name...), 0)
	}
	return fillXAttr(dest, names)
}

// fillXAttr puts an answer where the kernel wants it; with no room at all it only
// wants to know how long it is.
func fillXAttr(dest, data []byte) (uint32, fuse.Status) {
	if len(dest) > 0 && len(dest) < len(data) {
		return 0, fuse.ERANGE
	}
	copy(dest, data)
	return uint32(len(data)), fuse.OK
}

// attributes returns the extended attributes of a node.
func (f *FS) attributes(id uint64) ([]tree.XAttr, fuse.Status) {
	if !f.xattrs {
		return nil, fuse.ENOSYS
	}
	n := f.node(id)
	if n == nil {
		return nil, staleNode
	}
	hash := xattrsOf(n)
	if hash.IsZero() {
		return nil, fuse.OK
	}
	set, err := f.trees.XAttrs(f.ctx, hash)
	if err != nil {
		return nil, f.fail("read attributes", id, err)
	}
	return set, fuse.OK
}

// xattrsOf names a node's set of extended attributes; zero: it has none.
func xattrsOf(n node) cas.Hash {
	switch n := n.(type) {
	case *treeNode:
		return n.xattrs
	case *treeDir:
		return n.xattrs
	}
	return cas.Hash{}
}
