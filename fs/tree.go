package fs

import (
	"errors"
	"time"

	"github.com/snapfs/snapfs/tree"
)

// treeDir is a directory of a saved workspace.
type treeDir struct {
	treeNode
	parent uint64 // node id of the directory that it is in
	source *source
}

func (d *treeDir) absent() time.Duration { return forever }

// above returns the number of the directory that it is in, which the kernel knows
// as long as it knows this one.
func (d *treeDir) above() uint64 {
	if up := d.source.fs.node(d.parent); up != nil {
		return up.number()
	}
	return d.ino
}

// owner returns the owner that the mount shows: the saved one if root mounts,
// else the user who does.
func (s *source) owner(uid, gid uint32) (uint32, uint32) {
	if s.fs.root {
		return uid, gid
	}
	return s.fs.uid, s.fs.gid
}

// meta returns what the mount shows of an entry.
func (s *source) meta(e tree.Entry) meta {
	if !e.Owned {
		e.UID, e.GID = s.rec.Root.UID, s.rec.Root.GID
	}
	e.UID, e.GID = s.owner(e.UID, e.GID)
	if !e.XAttrs.IsZero() && e.Kind != tree.Symlink && !s.fs.acls {
		e.Mode = s.narrowed(e)
	}
	if !s.fs.root && e.Kind != tree.Symlink {
		e.Mode |= 0o400 // everything is theirs, and readable by them
		if e.Kind == tree.Dir {
			e.Mode |= 0o100
		}
	}
	e.Name, e.Owned = "", false
	return meta{Entry: e, nlink: 1}
}

// narrowed returns the mode of an entry that may have an ACL, which the mount does
// not show: whoever copies the file must not get more rights than it gave. If the
// set cannot be read, the group gets none.
func (s *source) narrowed(e tree.Entry) uint32 {
	set, err := s.fs.trees.XAttrs(s.fs.ctx, e.XAttrs)
	if err != nil {
		s.fs.log.Error("cannot read the attributes of an entry", "attributes", e.XAttrs.String(), "error", err)
		return tree.NarrowMode(e.Mode, nil)
	}
	for _, x := range set {
		if x.Name == tree.ACLAccess {
			return tree.NarrowMode(e.Mode, x.Value)
		}
	}
	return e.Mode
}

// node returns the node of an entry of the directory, with one reference more.
func (d *treeDir) node(e tree.Entry) node {
	at, m := d.identity(e)
	if e.Kind == tree.Dir {
		return d.source.fs.dirNode(d.id, e.Name, d.source, at, &m)
	}
	return d.source.fs.fileNode(at, &m)
}

// identity returns what decides about an entry's node.
func (d *treeDir) identity(e tree.Entry) (place, meta) {
	m := d.source.meta(e)
	return d.source.linked(d.at.below(e.Name), &m), m
}

// linked returns the place that decides about a file's node: its own, or for
// one of several names of a file the place of the group, with its link count.
func (s *source) linked(at place, m *meta) place {
	g, ok := s.groups[at]
	if !ok || m.Kind == tree.Dir {
		return at
	}
	m.nlink = g.names
	return g.at
}

// inoOf returns the inode number of an entry, unless another one had it first.
func (d *treeDir) inoOf(e tree.Entry) uint64 {
	at, m := d.identity(e)
	return m.ino(at)
}

// open opens the directory object.
func (d *treeDir) open() (*tree.Directory, error) {
	return d.source.fs.trees.Open(d.source.fs.ctx, d.hash)
}

func (d *treeDir) lookup(name string) (node, error) {
	obj, err := d.open()
	if err != nil {
		return nil, err
	}
	e, err := obj.Lookup(d.source.fs.ctx, name)
	if errors.Is(err, tree.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.node(e), nil
}

func (d *treeDir) list(off uint64, plus bool, add func(listed) bool) error {
	obj, err := d.open()
	if err != nil || off >= uint64(obj.Len()) {
		return err
	}
	var dirs []uint64
	defer func(first bool) { d.source.fs.listings.follow(d.id, first, dirs) }(off == 0)
	for e, err := range obj.Entries(d.source.fs.ctx, int(off)) {
		if err != nil {
			return err
		}
		off++
		entry := listed{name: e.Name, off: off, mode: fileType(e.Kind)}
		if plus {
			entry.node = d.node(e)
			d.source.fs.listedAt(entry.node.nodeID(), d.id, off-1)
			if e.Kind == tree.Dir {
				dirs = append(dirs, entry.node.nodeID())
			}
		} else {
			entry.ino = d.inoOf(e)
		}
		if !add(entry) {
			break
		}
	}
	return nil
}
