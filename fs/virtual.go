package fs

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// dir is what all directory nodes have in common.
type dir struct {
	fs     *FS
	id     uint64
	ino    uint64
	refs   uint64
	parent *dir
	name   string // key in parent's children
	// children are the nodes below that the kernel knows and that belong to this
	// very path: directories and links. The table's mutex guards it.
	children map[string]kept
}

func (d *dir) nodeID() uint64   { return d.id }
func (d *dir) number() uint64   { return d.ino }
func (d *dir) lookups() *uint64 { return &d.refs }
func (d *dir) above() uint64 {
	if d.parent == nil {
		return d.ino
	}
	return d.parent.ino
}
func (d *dir) forgotten(f *FS) {
	delete(f.taken, d.ino)
	d.leave()
}

// take gives a node that no tree has its inode number. The table's mutex is
// held.
func (d *dir) take(ino uint64) {
	d.ino = d.fs.numbered(ino)
	d.fs.taken[d.ino] = struct{}{}
}

// leave takes the node out of its parent.
func (d *dir) leave() {
	if d.parent != nil && d.parent.children[d.name] != nil && d.parent.children[d.name].nodeID() == d.id {
		delete(d.parent.children, d.name)
	}
}

// child returns the node of a name with one reference more. The first time,
// build makes it and gives it its inode number, with the table's mutex held.
func (d *dir) child(name string, build func(base dir) kept) kept {
	f := d.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := d.children[name]; n != nil {
		*n.lookups()++
		return n
	}
	n := build(dir{fs: f, id: f.table.newID(noSlot), parent: d, name: name})
	f.enter(n)
	if d.children == nil {
		d.children = map[string]kept{}
	}
	d.children[name] = n
	return n
}

// detach takes a child out of the tree that lookups find, because what it showed
// is gone: who still has it open keeps it, and whatever gets its name is another
// node. It returns the child, or nil.
func (d *dir) detach(name string) kept {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	n := d.children[name]
	delete(d.children, name)
	return n
}

// known returns the child that the kernel knows, without a reference, or nil.
func (d *dir) known(name string) kept {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	return d.children[name]
}

// dirAttr shows a directory that no tree has.
func (d *dir) dirAttr(out *fuse.Attr, mtime time.Time) {
	out.Mode = unix.S_IFDIR | 0o555
	out.Nlink = 1 // as on file systems that do not count: find(1) then looks for itself
	out.Owner = fuse.Owner{Uid: d.fs.uid, Gid: d.fs.gid}
	setTimes(out, mtime)
	out.Blksize = dirBlockSize
}

func setTimes(out *fuse.Attr, t time.Time) { out.SetTimes(&t, &t, &t) }

// link is a symbolic link that no tree has: latest, and the names of
// checkpoints. One that leads elsewhere is another node.
type link struct {
	dir
	target string
	time   time.Time
	stays  time.Duration
}

func (l *link) valid() time.Duration { return l.stays }
func (l *link) attr(out *fuse.Attr) {
	out.Mode = unix.S_IFLNK | 0o777
	out.Nlink = 1
	out.Size = uint64(len(l.target))
	out.Owner = fuse.Owner{Uid: l.fs.uid, Gid: l.fs.gid}
	setTimes(out, l.time)
}

// linkTo returns the node of a link called name in d.
func (d *dir) linkTo(name, target string, t time.Time) node {
	return d.child(name+"\x00"+target, func(base dir) kept {
		n := &link{dir: base, target: target, time: t, stays: changing}
		n.take(virtualIno("link", name, target))
		return n
	})
}

// bytesFile is a small file that no tree has.
type bytesFile struct {
	dir
	data []byte
	time time.Time
}

func (b *bytesFile) valid() time.Duration { return forever }
func (b *bytesFile) attr(out *fuse.Attr) {
	out.Mode = unix.S_IFREG | 0o444
	out.Nlink = 1
	out.Size = uint64(len(b.data))
	out.Blocks = (out.Size + 511) / 512
	out.Owner = fuse.Owner{Uid: b.fs.uid, Gid: b.fs.gid}
	setTimes(out, b.time)
	out.Blksize = blockSize
}

// rootDir is the root of the mount.
type rootDir struct{ dir }

func (d *rootDir) valid() time.Duration  { return forever }
func (d *rootDir) absent() time.Duration { return forever }
func (d *rootDir) attr(out *fuse.Attr)   { d.dirAttr(out, d.fs.started) }

func (d *rootDir) threads() node {
	return d.child(threadsName, func(base dir) kept {
		n := &threadsDir{dir: base}
		n.take(virtualIno(threadsName))
		return n
	})
}

func (d *rootDir) lookup(name string) (node, error) {
	if name != threadsName {
		return nil, nil
	}
	return d.threads(), nil
}

func (d *rootDir) list(off uint64, _ bool, add func(listed) bool) error {
	if off == 0 {
		add(listed{name: threadsName, off: 1, mode: unix.S_IFDIR, ino: virtualIno(threadsName),
			make: func() (node, error) { return d.threads(), nil }})
	}
	return nil
}

// A roster gives names places in a listing that stay while the listing changes:
// who reads a directory in several steps sees each name that was there all the
// time exactly once.
type roster struct {
	mu    sync.Mutex
	ids   []string // "" where one went away
	place map[string]int
}

// update brings the roster up to date; new ids come last.
func (r *roster) update(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(map[string]bool, len(ids))
	if r.place == nil {
		r.place = make(map[string]int, len(ids))
	}
	for _, id := range ids {
		there[id] = true
		if _, ok := r.place[id]; !ok {
			r.place[id] = len(r.ids)
			r.ids = append(r.ids, id)
		}
	}
	for i, id := range r.ids {
		if id != "" && !there[id] {
			delete(r.place, id)
			r.ids[i] = ""
		}
	}
}

// from returns the ids from a place on, with holes.
func (r *roster) from(i uint64) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids[min(i, uint64(len(r.ids))):])
}

// idOf returns the id of a file name. A name that was cut is looked for among
// all ids.
func (f *FS) idOf(name string, all func() ([]string, error)) (id string, ok bool, err error) {
	id, long, ok := snapshot.DecodeName(name)
	if !long {
		return id, ok, nil
	}
	ids, err := all()
	if err != nil {
		return "", false, err
	}
	i := slices.IndexFunc(ids, func(id string) bool { return snapshot.EncodeName(id) == name })
	if i < 0 {
		return "", false, nil
	}
	return ids[i], true, nil
}

// notThere turns errors that say that something does not exist into nil.
func notThere(err error) error {
	if errors.Is(err, index.ErrThreadNotFound) || errors.Is(err, index.ErrCheckpointNotFound) ||
		errors.Is(err, index.ErrInvalid) || errors.Is(err, snapshot.ErrAmbiguous) {
		return nil
	}
	return err
}
