package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// A node is what the kernel knows by a node id. Those of saved trees lie in the
// [table] and are put together for each request; the others are kept as they are.
type node interface {
	// nodeID and number return the node id and the inode number, which are fixed.
	nodeID() uint64
	number() uint64
	// attr fills in everything, but the inode number of a kept node.
	attr(out *fuse.Attr)
	// valid says how long the kernel may remember the name and the attributes.
	valid() time.Duration
}

// A kept node is one that no tree has.
type kept interface {
	node
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
	// returns false. With plus, each comes with its node, or with what makes it.
	list(off uint64, plus bool, add func(e listed) bool) error
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
	ino  uint64 // unless there is a node
	node node   // with a reference more, like what make makes
	make func() (node, error)
}

// treeNode is a file, symlink or directory under a checkpoint, as it was when it
// was asked for.
type treeNode struct {
	inode
	extra
}

func (n *treeNode) nodeID() uint64       { return n.id }
func (n *treeNode) number() uint64       { return n.ino }
func (n *treeNode) valid() time.Duration { return forever }

// blockSize is what stat(2) recommends for reads, in bytes.
const blockSize = 128 << 10

// dirBlockSize is the same for directories. The C library takes a buffer of that
// size for a listing, of 32 KiB at least, and the kernel as many pages for each
// request.
const dirBlockSize = 4 << 10

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

// numbered finds a number for a kept node: the first that is free. The mutex is
// held.
func (f *FS) numbered(ino uint64) uint64 {
	for ; ; ino = (ino + 1) & inoMask {
		if f.free(ino) {
			if _, taken := f.table.holder(ino, 0, nil); !taken {
				return ino
			}
		}
	}
}

// free reports whether a number is no kept node's, and can be somebody's.
func (f *FS) free(ino uint64) bool {
	_, taken := f.taken[ino]
	return !taken && ino > 1
}

// treeNumber finds the inode number of an identity: that of the slot that has it
// already, or a number that is free, beginning with the one that follows from the
// identity. The mutex is held.
func (f *FS) treeNumber(at place, m *meta) (ino uint64, slot uint32) {
	for ino = m.ino(at); ; ino = (ino + 1) & inoMask {
		if !f.free(ino) {
			continue
		}
		if slot, taken := f.table.holder(ino, at, m); slot != noSlot || !taken {
			return ino, slot
		}
	}
}

// enter puts a new kept node with one reference among the nodes; the mutex is
// held.
func (f *FS) enter(n kept) {
	*n.lookups() = 1
	f.nodes[n.nodeID()] = n
}

// fileNode returns the node of a file or symlink with one reference more: the one
// that the kernel knows already if there is an equal one.
func (f *FS) fileNode(at place, m *meta) *treeNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino, slot := f.treeNumber(at, m)
	if slot != noSlot {
		f.table.slot(slot).refs++
	} else {
		slot = f.table.add(ino, at, m)
	}
	return f.inTable(slot)
}

// dirNode returns the node of a directory called name below the node parent, with
// one reference more. Its path decides its node id, what it shows its inode
// number: directories that are equal in different checkpoints show the same.
func (f *FS) dirNode(parent uint64, name string, s *source, at place, m *meta) *treeDir {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.table.key(parent, name)
	slot, ok := f.table.dirs[key]
	if ok && f.table.is(slot, at, m) {
		f.table.slot(slot).refs++
	} else {
		ino, _ := f.treeNumber(at, m)
		slot = f.table.add(ino, at, m)
		f.table.dirs[key] = slot
		f.table.inDir[slot] = dirInfo{key: key, source: s}
	}
	return f.dirInTable(slot)
}

// inTable returns the node in a slot; the mutex is held.
func (f *FS) inTable(slot uint32) *treeNode {
	n := &treeNode{inode: *f.table.slot(slot)}
	if n.odd {
		n.extra = f.table.extras[slot]
	}
	return n
}

// dirInTable returns the directory in a slot; the mutex is held.
func (f *FS) dirInTable(slot uint32) *treeDir {
	info := f.table.inDir[slot]
	return &treeDir{treeNode: *f.inTable(slot), parent: info.key.parent, source: info.source}
}

// node returns the node of an id, or nil. The kernel only names those that it was
// given and has not forgotten.
func (f *FS) node(id uint64) node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodeLocked(id)
}

// nodeLocked is node for who holds the mutex.
func (f *FS) nodeLocked(id uint64) node {
	slot := f.table.find(id)
	switch {
	case slot == noSlot:
		if n, ok := f.nodes[id]; ok {
			return n
		}
		return nil
	case f.table.slot(slot).kind == tree.Dir:
		return f.dirInTable(slot)
	}
	return f.inTable(slot)
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
	if slot := f.table.find(id); slot != noSlot {
		in := f.table.slot(slot)
		if in.refs -= uint32(min(uint64(in.refs), lookups)); in.refs == 0 {
			f.table.remove(slot)
		}
		return
	}
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
