package fs

import (
	"errors"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/tree"
)

// treeDir is a directory of a saved workspace. Its own path decides its node
// id, what it shows its inode number.
type treeDir struct {
	dir
	source *source
	shown  *shownDir
}

// newTreeDir makes the node of a directory; the table's mutex is held.
func newTreeDir(base dir, s *source, at place, m meta) *treeDir {
	shown := s.fs.shown(at, m)
	base.ino = shown.ino
	return &treeDir{dir: base, source: s, shown: shown}
}

func (d *treeDir) forgotten(f *FS) {
	if d.shown.refs--; d.shown.refs == 0 {
		delete(f.inos, d.shown.ino)
	}
	d.leave()
}

func (d *treeDir) valid() time.Duration  { return forever }
func (d *treeDir) absent() time.Duration { return forever }
func (d *treeDir) attr(out *fuse.Attr)   { d.shown.attr(out) }

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
	if !e.XAttrs.IsZero() && e.Kind != tree.Symlink {
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
	set, err := s.fs.store.Trees().XAttrs(s.fs.ctx, e.XAttrs)
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

// node returns the node of an entry of the directory.
func (d *treeDir) node(e tree.Entry) node {
	at := d.shown.at.below(e.Name)
	m := d.source.meta(e)
	if e.Kind == tree.Dir {
		return d.child(strings.Clone(e.Name), func(base dir) node { return newTreeDir(base, d.source, at, m) })
	}
	group := d.source.linked(at, &m)
	return d.fs.fileNode(group, m)
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

// ino returns the inode number of an entry, unless another one had it first.
func (d *treeDir) inoOf(e tree.Entry) uint64 {
	at := d.shown.at.below(e.Name)
	m := d.source.meta(e)
	return m.ino(d.source.linked(at, &m))
}

// open opens the directory object.
func (d *treeDir) open() (*tree.Directory, error) {
	return d.fs.store.Trees().Open(d.fs.ctx, d.shown.Hash)
}

func (d *treeDir) lookup(name string) (node, error) {
	obj, err := d.open()
	if err != nil {
		return nil, err
	}
	e, err := obj.Lookup(d.fs.ctx, name)
	if errors.Is(err, tree.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.node(e), nil
}

func (d *treeDir) list(off uint64, add func(listed) bool) error {
	obj, err := d.open()
	if err != nil {
		return err
	}
	for e, err := range obj.Entries(d.fs.ctx, int(off)) {
		if err != nil {
			return err
		}
		off++
		if !add(listed{name: e.Name, off: off, mode: fileType(e.Kind), ino: d.inoOf(e),
			node: func() (node, error) { return d.node(e), nil }}) {
			break
		}
	}
	return nil
}
