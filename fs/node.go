package fs

import (
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// A node is what the kernel knows by a node id.
type node interface {
	// nodeID and number return the node id and the inode number. They are fixed
	// once the node is in the table.
	nodeID() uint64
	number() uint64
	// attr fills in everything but the inode number.
	attr(out *fuse.Attr)
	// valid says how long the kernel may remember the name and the attributes.
	valid() time.Duration
	// lookups returns the count of references that the kernel holds. It is
	// guarded by the table's mutex.
	lookups() *uint64
	// forgotten gives back the inode number and undoes what refers to the node
	// from elsewhere, when the last reference is gone. The table's mutex is held.
	forgotten(f *FS)
}

// A directory is a node that has entries. The nodes that its methods return
// have one reference more, which is the kernel's once it has the answer.
type directory interface {
	node
	// lookup finds an entry; nil without an error: there is none.
	lookup(name string) (node, error)
	// list calls add for the entries behind offset off, in order, until it
	// returns false.
	list(off uint64, add func(e listed) bool) error
	// absent says how long the kernel may remember that a name is not there.
	absent() time.Duration
	// above returns the inode number of the directory that this one is in.
	above() uint64
}

// listed is one entry of a listing.
type listed struct {
	name string
	off  uint64 // where the listing goes on behind it
	mode uint32 // file type
	ino  uint64
	node func() (node, error)
}

// file is a regular file or a symlink under a checkpoint.
type file struct {
	id   uint64
	ino  uint64
	at   place
	refs uint64
	meta
}

func (f *file) nodeID() uint64       { return f.id }
func (f *file) number() uint64       { return f.ino }
func (f *file) lookups() *uint64     { return &f.refs }
func (f *file) valid() time.Duration { return forever }
func (f *file) attr(out *fuse.Attr)  { f.meta.attr(out) }
func (f *file) forgotten(fs *FS)     { delete(fs.inos, f.ino) }

// attr shows an entry of a tree. Its ctime is its mtime: it has to be the same
// for every reader at every time.
func (m *meta) attr(out *fuse.Attr) {
	out.Mode = m.Mode | fileType(m.Kind)
	out.Size = m.Size
	out.Blocks = (m.Size + 511) / 512
	out.Nlink = m.nlink
	out.Owner = fuse.Owner{Uid: m.UID, Gid: m.GID}
	out.Mtime, out.Mtimensec = uint64(m.MtimeSec), m.MtimeNsec
	out.Ctime, out.Ctimensec = out.Mtime, out.Mtimensec
	out.Atime, out.Atimensec = out.Mtime, out.Mtimensec
	out.Blksize = blockSize
}

// blockSize is what stat(2) recommends for reads, in bytes.
const blockSize = 128 << 10

// fileType returns the S_IF... bits of a kind.
func fileType(k tree.Kind) uint32 {
	switch k {
	case tree.Dir:
		return unix.S_IFDIR
	case tree.Symlink:
		return unix.S_IFLNK
	}
	return unix.S_IFREG
}

// newID gives the next node id. The table's mutex is held.
func (f *FS) newID() uint64 {
	f.last++
	return f.last
}

// A shownDir is what directories of equal path, content and metadata show: one
// inode number, in however many checkpoints they are.
type shownDir struct {
	at   place
	ino  uint64
	refs int // directory nodes that show it
	meta
}

// numbered finds the holder of an inode number: the one of who that same says is
// equal, or a number that is free, beginning with the one that follows from the
// identity. The table's mutex is held.
func (f *FS) numbered(ino uint64, same func(holder any) bool) (uint64, any) {
	for ; ; ino = (ino + 1) & inoMask {
		holder, taken := f.inos[ino]
		if taken && same(holder) {
			return ino, holder
		}
		if !taken && ino > 1 {
			return ino, nil
		}
	}
}

// nobody is for numbers that no two nodes share.
func nobody(any) bool { return false }

// shown returns what a directory shows, with one more node that does. The
// table's mutex is held.
func (f *FS) shown(at place, m meta) *shownDir {
	ino, holder := f.numbered(m.ino(at), func(holder any) bool {
		d, ok := holder.(*shownDir)
		return ok && d.at == at && d.meta == m
	})
	d, ok := holder.(*shownDir)
	if !ok {
		d = &shownDir{at: at, ino: ino, meta: m}
		f.inos[ino] = d
	}
	d.refs++
	return d
}

// enter puts a new node with one reference into the table, whose mutex is held.
func (f *FS) enter(n node) {
	*n.lookups() = 1
	f.nodes[n.nodeID()] = n
}

// fileNode returns the node of a file or symlink: the one that the kernel knows
// already if there is an equal one.
func (f *FS) fileNode(at place, m meta) node {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino, holder := f.numbered(m.ino(at), func(holder any) bool {
		n, ok := holder.(*file)
		return ok && n.at == at && n.meta == m
	})
	if n, ok := holder.(*file); ok {
		n.refs++
		return n
	}
	m.Target = strings.Clone(m.Target) // it shares memory with its whole directory
	n := &file{id: f.newID(), ino: ino, at: at, meta: m}
	f.inos[ino] = n
	f.enter(n)
	return n
}

// fill tells the kernel about a node.
func (f *FS) fill(n node, out *fuse.EntryOut) {
	out.NodeId = n.nodeID()
	out.Generation = f.gen
	n.attr(&out.Attr)
	out.Ino = n.number()
	out.SetEntryTimeout(n.valid())
	out.SetAttrTimeout(n.valid())
}

// Forget implements [fuse.RawFileSystem].
func (f *FS) Forget(id, lookups uint64) {
	f.count(opForget)
	f.forget(id, lookups)
}

// forget takes references away; a node without any is dropped.
func (f *FS) forget(id, lookups uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[id]
	if n == nil {
		return
	}
	refs := n.lookups()
	if *refs -= min(*refs, lookups); *refs > 0 {
		return
	}
	delete(f.nodes, id)
	n.forgotten(f)
}
