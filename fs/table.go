package fs

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// A table holds the nodes of saved trees that the kernel knows, of which there
// are millions. An entry takes about 120 bytes with its share of the index, a
// directory 80 more, and holds no pointer that the garbage collector would have to
// follow.
//
// A node id is a count of all nodes ever made, and the slot of the node in the
// table; slot 0 is for nodes that are elsewhere.
type table struct {
	chunks []*chunk // nil: all of it is free
	open   int      // no chunk before this one has a free slot
	used   int
	count  uint64 // of nodes ever made, from a random start
	byIno  buckets

	// Directories have one node a path, with what else belongs to them.
	dirs   map[dirKey]uint32 // slots
	inDir  map[uint32]dirInfo
	seed   maphash.Seed
	extras map[uint32]extra
}

const (
	slotBits  = 28
	chunkSize = 1 << 10
	noSlot    = 0
)

type chunk struct {
	inodes [chunkSize]inode
	used   int
	free   int // no slot before this one is free
}

// inode is a node of a saved tree: its identity (see [meta]), what it shows, and
// the kernel's references.
type inode struct {
	id        uint64 // 0: the slot is free
	at        place
	ino       uint64
	size      uint64
	hash      cas.Hash
	mtimeSec  int64
	dir       uint32 // slot of the directory that it was listed in last; 0: none
	position  uint32 // there
	refs      uint32
	mtimeNsec uint32
	uid, gid  uint32
	nlink     uint32
	next      uint32 // slot of the next inode in its bucket
	mode      uint16
	kind      tree.Kind
	flags     tree.Flags
	odd       bool // it is in extras
	given     bool // the kernel was given its content
}

// extra is what few entries have.
type extra struct {
	target string
	xattrs cas.Hash
}

// dirKey names a directory's path: the node above it, and a hash of its name that
// nobody can foresee.
type dirKey struct{ parent, name uint64 }

// dirInfo is what a directory's node has besides.
type dirInfo struct {
	key    dirKey
	source *source
}

func newTable() table {
	t := table{count: rand.Uint64N(1 << (62 - slotBits)), seed: maphash.MakeSeed()}
	t.clear()
	return t
}

// clear gives back the memory of a table without nodes: a map keeps its own.
func (t *table) clear() {
	t.chunks, t.open, t.byIno = nil, 0, buckets{}
	t.dirs, t.inDir, t.extras = map[dirKey]uint32{}, map[uint32]dirInfo{}, map[uint32]extra{}
}

// newID gives the next node id for a slot.
func (t *table) newID(slot uint32) uint64 {
	t.count++
	return t.count<<slotBits | uint64(slot)
}

// slot returns a slot's inode, which is valid until the mutex is given up.
func (t *table) slot(slot uint32) *inode {
	return &t.chunks[(slot-1)/chunkSize].inodes[(slot-1)%chunkSize]
}

// find returns the slot of a node id; noSlot: it is not here.
func (t *table) find(id uint64) uint32 {
	slot := uint32(id & (1<<slotBits - 1))
	if slot == noSlot || int(slot-1)/chunkSize >= len(t.chunks) || t.chunks[(slot-1)/chunkSize] == nil || t.slot(slot).id != id {
		return noSlot
	}
	return slot
}

// add makes an inode with one reference.
func (t *table) add(ino uint64, at place, m *meta) uint32 {
	for t.open < len(t.chunks) && t.chunks[t.open] != nil && t.chunks[t.open].used == chunkSize {
		t.open++
	}
	if t.open == len(t.chunks) {
		t.chunks = append(t.chunks, nil)
	}
	if t.chunks[t.open] == nil {
		t.chunks[t.open] = new(chunk)
	}
	c := t.chunks[t.open]
	for c.inodes[c.free].id != 0 {
		c.free++
	}
	slot := uint32(t.open*chunkSize+c.free) + 1
	c.used++
	t.used++
	*t.slot(slot) = inode{
		id: t.newID(slot), at: at, ino: ino, refs: 1, size: m.Size, hash: m.Hash,
		mtimeSec: m.MtimeSec, mtimeNsec: m.MtimeNsec, uid: m.UID, gid: m.GID, nlink: m.nlink,
		mode: uint16(m.Mode), kind: m.Kind, flags: m.Flags,
	}
	if m.Target != "" || !m.XAttrs.IsZero() {
		t.slot(slot).odd = true
		t.extras[slot] = extra{target: strings.Clone(m.Target), xattrs: m.XAttrs} // it shares memory with its whole directory
	}
	t.byIno.add(t, slot)
	return slot
}

// remove frees a slot.
func (t *table) remove(slot uint32) {
	t.byIno.remove(t, slot)
	in := t.slot(slot)
	if in.odd {
		delete(t.extras, slot)
	}
	if in.kind == tree.Dir {
		info := t.inDir[slot]
		delete(t.inDir, slot)
		if t.dirs[info.key] == slot { // else its path has another node by now
			delete(t.dirs, info.key)
		}
	}
	*in = inode{}
	t.used--
	i, j := int(slot-1)/chunkSize, int(slot-1)%chunkSize
	c := t.chunks[i]
	c.free = min(c.free, j)
	t.open = min(t.open, i)
	if c.used--; c.used == 0 {
		t.chunks[i] = nil
	}
	if t.used == 0 {
		t.clear()
	}
}

// is reports whether an inode has an identity.
func (t *table) is(slot uint32, at place, m *meta) bool {
	in := t.slot(slot)
	if in.at != at || in.hash != m.Hash || in.size != m.Size || in.kind != m.Kind || uint32(in.mode) != m.Mode || in.flags != m.Flags ||
		in.uid != m.UID || in.gid != m.GID || in.nlink != m.nlink || in.mtimeSec != m.MtimeSec || in.mtimeNsec != m.MtimeNsec {
		return false
	}
	odd := m.Target != "" || !m.XAttrs.IsZero()
	return in.odd == odd && (!odd || t.extras[slot] == extra{target: m.Target, xattrs: m.XAttrs})
}

// holder looks for who shows an inode number: a slot that is equal, or whether
// there is another.
func (t *table) holder(ino uint64, at place, m *meta) (slot uint32, taken bool) {
	for s := t.byIno.first(ino); s != noSlot; s = t.slot(s).next {
		if t.slot(s).ino != ino {
			continue
		}
		if m != nil && t.is(s, at, m) {
			return s, true
		}
		taken = true
	}
	return noSlot, taken
}

// key names the path of a directory below parent.
func (t *table) key(parent uint64, name string) dirKey {
	return dirKey{parent: parent, name: maphash.String(t.seed, name)}
}

// attr shows an inode. Its ctime is its mtime: it has to be the same for every
// reader at every time.
func (in *inode) attr(out *fuse.Attr) {
	out.Ino = in.ino
	out.Mode = uint32(in.mode) | fileType(in.kind)
	out.Size = in.size
	out.Blocks = (in.size + 511) / 512
	out.Nlink = in.nlink
	out.Owner = fuse.Owner{Uid: in.uid, Gid: in.gid}
	out.Mtime, out.Mtimensec = uint64(in.mtimeSec), in.mtimeNsec
	out.Ctime, out.Ctimensec = out.Mtime, out.Mtimensec
	out.Atime, out.Atimensec = out.Mtime, out.Mtimensec
	out.Blksize = blockSize
	if in.kind == tree.Dir {
		out.Blksize = dirBlockSize
	}
}

// buckets find inodes by number: the heads of lists that go through
// [inode.next].
type buckets struct {
	heads []uint32
	n     int
}

const leastBuckets = 256

func (b *buckets) first(ino uint64) uint32 {
	if len(b.heads) == 0 {
		return noSlot
	}
	return b.heads[ino&uint64(len(b.heads)-1)]
}

func (b *buckets) add(t *table, slot uint32) {
	if b.n++; b.n > len(b.heads) {
		b.resize(t, max(leastBuckets, 2*len(b.heads)))
	}
	b.link(t, slot)
}

func (b *buckets) link(t *table, slot uint32) {
	in := t.slot(slot)
	head := &b.heads[in.ino&uint64(len(b.heads)-1)]
	in.next, *head = *head, slot
}

func (b *buckets) remove(t *table, slot uint32) {
	in := t.slot(slot)
	at := &b.heads[in.ino&uint64(len(b.heads)-1)]
	for *at != slot {
		at = &t.slot(*at).next
	}
	*at = in.next
	if b.n--; b.n < len(b.heads)/8 && len(b.heads) > leastBuckets {
		b.resize(t, len(b.heads)/2)
	}
}

// resize makes n buckets, a power of two, of those that there are.
func (b *buckets) resize(t *table, n int) {
	old := b.heads
	b.heads = make([]uint32, n)
	for _, slot := range old {
		for slot != noSlot {
			next := t.slot(slot).next
			b.link(t, slot)
			slot = next
		}
	}
}
