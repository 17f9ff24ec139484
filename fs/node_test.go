package fs

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// TestCollidingNumbers: things of different identity never share a node or a
// number, although the same number follows from both.
func TestCollidingNumbers(t *testing.T) {
	f := newFS("", nil, nil, Options{})
	at, m := placeOf("a"), sample()
	want := m.ino(at)
	// What has the numbers already: a file, a directory, something virtual.
	other, dir := m, m
	other.Size++
	dir.Kind = tree.Dir
	f.table.add(want, at, &other)
	f.table.add(want+1, at, &dir)
	f.taken[want+2] = struct{}{}
	n := f.fileNode(at, &m)
	require.Equal(t, want+3, n.ino)
	require.Equal(t, n.id, f.fileNode(at, &m).id)
	require.EqualValues(t, 2, f.table.slot(f.table.find(n.id)).refs)
	var shown fuse.Attr
	n.attr(&shown)
	require.EqualValues(t, m.Size, shown.Size)

	want = dir.ino(at)
	different := dir
	different.Mode++
	f.table.add(want, at, &m)
	f.table.add(want+1, at, &different)
	d := f.dirNode(7, "a", nil, at, &dir)
	require.Equal(t, want+2, d.ino)
	require.Equal(t, d.id, f.dirNode(7, "a", nil, at, &dir).id)
	twin := f.dirNode(8, "a", nil, at, &dir)
	require.Equal(t, d.ino, twin.ino, "it is equal, in another checkpoint")
	require.NotEqual(t, d.id, twin.id)
	require.NotEqual(t, d.ino, f.dirNode(7, "b", nil, placeOf("b"), &dir).ino)

	v := &artifactsDir{dir: dir2(f)}
	v.take(n.ino)
	require.Equal(t, n.ino+1, v.ino)
	f.forget(n.id, 2)
	require.Zero(t, f.table.find(n.id))
	_, taken := f.table.holder(n.ino, at, nil)
	require.False(t, taken)
	require.Contains(t, f.taken, v.ino)
}

func dir2(f *FS) dir { return dir{fs: f, id: f.table.newID(noSlot)} }

// TestReservedNumbers: 0 and 1 are nobody's, and the last number is followed by
// the first.
func TestReservedNumbers(t *testing.T) {
	f := newFS("", nil, nil, Options{})
	for from, want := range map[uint64]uint64{0: 2, 1: 2, 2: 2, inoMask: inoMask} {
		require.Equal(t, want, f.numbered(from))
	}
	f.taken[inoMask] = struct{}{}
	require.EqualValues(t, 2, f.numbered(inoMask))
}

// TestMountsDiffer: a node of one mount is never taken for one of another.
func TestMountsDiffer(t *testing.T) {
	a, b := newFS("", nil, nil, Options{}), newFS("", nil, nil, Options{})
	require.NotEqual(t, a.gen, b.gen)
	require.NotEqual(t, a.table.count, b.table.count)
	require.NotZero(t, a.gen)
	require.Less(t, a.table.newID(noSlot), uint64(1)<<62)
}

// kernel is what a kernel knows: nodes by id, with its references.
type kernel struct {
	t    *testing.T
	fs   *FS
	refs map[uint64]uint64
	dirs map[uint64]bool
	ino  map[uint64]uint64
	ever map[uint64]bool
}

// learn takes an answer that comes with a reference.
func (k *kernel) learn(out *fuse.EntryOut) {
	if out.NodeId == 0 {
		return // nothing is there
	}
	if k.refs[out.NodeId] == 0 {
		require.False(k.t, k.ever[out.NodeId], "a node id came back")
		k.ever[out.NodeId], k.ino[out.NodeId] = true, out.Ino
	}
	require.Equal(k.t, k.ino[out.NodeId], out.Ino)
	k.refs[out.NodeId]++
	k.dirs[out.NodeId] = out.Mode&fuse.S_IFDIR != 0
}

func (k *kernel) lookup(dir uint64, name string) {
	var out fuse.EntryOut
	require.Equal(k.t, fuse.OK, k.fs.Lookup(nil, &fuse.InHeader{NodeId: dir}, name, &out))
	k.learn(&out)
}

// forget takes back some of the references of a node, or all.
func (k *kernel) forget(id, n uint64) {
	n = min(n, k.refs[id])
	k.fs.Forget(id, n)
	if k.refs[id] -= n; k.refs[id] == 0 {
		delete(k.refs, id)
		var out fuse.AttrOut
		require.Equal(k.t, staleNode, k.fs.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: id}}, &out))
	}
}

// list reads a page of a directory, of random size and from a random place.
func (k *kernel) list(dir uint64, r *rand.Rand) {
	in := &fuse.ReadIn{InHeader: fuse.InHeader{NodeId: dir}, Offset: uint64(r.IntN(6))}
	buf := make([]byte, 200+r.IntN(2000))
	require.Equal(k.t, fuse.OK, k.fs.ReadDirPlus(nil, in, fuse.NewDirEntryList(buf, in.Offset)))
	for _, e := range plusEntries(buf) {
		k.learn(e)
	}
}

// TestReferencesBalance acts as a kernel that looks up, lists and forgets at
// random: what it has forgotten is gone, what it knows is there.
func TestReferencesBalance(t *testing.T) {
	ctx := t.Context()
	store, err := snapshot.Open(ctx, filepath.Join(t.TempDir(), "store"), snapshot.Options{Create: true})
	require.NoError(t, err)
	ws := t.TempDir()
	for i := range 8 {
		dir := filepath.Join(ws, fmt.Sprint("d", i%2), fmt.Sprint("e", i%4))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), []byte{byte(i)}, 0o644))
	}
	require.NoError(t, os.Link(ws+"/d0/e0/f0", ws+"/d1/linked"))
	_, err = store.Save(ctx, snapshot.SaveOptions{Workspace: ws, Thread: "t", Name: "n"})
	require.NoError(t, err)
	_, err = store.Fork(ctx, "t@latest", snapshot.ForkOptions{Thread: "u"})
	require.NoError(t, err)
	cp, err := store.Resolve(ctx, "t@latest")
	require.NoError(t, err)

	f := New(store, Options{})
	k := &kernel{t: t, fs: f, refs: map[uint64]uint64{}, dirs: map[uint64]bool{}, ino: map[uint64]uint64{}, ever: map[uint64]bool{}}
	names := []string{"threads", "t", "u", "latest", "by-name", "n", cp.ID, "files", "artifacts", "checkpoint.json", "d0", "d1", "e0", "e1", "f0", "f1", "linked", "nothing"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		ids := []uint64{fuse.FUSE_ROOT_ID}
		for id := range k.refs {
			ids = append(ids, id)
		}
		id := ids[r.IntN(len(ids))]
		switch what := r.IntN(10); {
		case what < 6 && (id == fuse.FUSE_ROOT_ID || k.dirs[id]):
			k.lookup(id, names[r.IntN(len(names))])
		case what < 8 && (id == fuse.FUSE_ROOT_ID || k.dirs[id]):
			k.list(id, r)
		case id != fuse.FUSE_ROOT_ID:
			k.forget(id, uint64(1+r.IntN(3)))
		}
		require.Equal(t, len(k.refs)+1, f.Inodes())
	}
	require.Greater(t, len(k.ever), 500)
	for id, n := range k.refs {
		k.forget(id, n)
	}
	require.Equal(t, 1, f.Inodes())
	require.Len(t, f.taken, 1)
	require.Empty(t, f.nodes[fuse.FUSE_ROOT_ID].(*rootDir).children)
	_, err = store.Verify(ctx, snapshot.VerifyOptions{Data: true}, func(p string) error { return fmt.Errorf("%s", p) })
	require.NoError(t, err)
	require.NoError(t, store.Close())
}

// TestListingsAhead makes answers before they are asked for: what the kernel gets
// has its references, and what it never asks for leaves none.
func TestListingsAhead(t *testing.T) {
	ctx := t.Context()
	store, err := snapshot.Open(ctx, filepath.Join(t.TempDir(), "store"), snapshot.Options{Create: true})
	require.NoError(t, err)
	defer store.Close()
	ws := t.TempDir()
	for i := range 60 {
		dir := filepath.Join(ws, fmt.Sprint("d", i%4), fmt.Sprint("e", i%12))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), []byte{byte(i)}, 0o644))
	}
	res, err := store.Save(ctx, snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.NoError(t, err)
	f := New(store, Options{})
	k := &kernel{t: t, fs: f, refs: map[uint64]uint64{}, dirs: map[uint64]bool{}, ino: map[uint64]uint64{}, ever: map[uint64]bool{}}
	id := uint64(fuse.FUSE_ROOT_ID)
	for _, name := range []string{"threads", "t", res.Checkpoint.ID, "files"} {
		var out fuse.EntryOut
		require.Equal(t, fuse.OK, f.Lookup(nil, &fuse.InHeader{NodeId: id}, name, &out))
		k.learn(&out)
		id = out.NodeId
	}
	top := len(k.refs)
	ask := func(dir uint64) (asked []uint64, ahead bool) {
		data, ahead := f.listings.take(dir, 32<<10)
		if !ahead {
			data = make([]byte, 32<<10)
			require.Equal(t, fuse.OK, f.ReadDirPlus(nil, &fuse.ReadIn{InHeader: fuse.InHeader{NodeId: dir}}, fuse.NewDirEntryList(data, 0)))
		}
		for _, e := range plusEntries(data) {
			if e.NodeId == 0 {
				continue // "." and ".."
			}
			k.learn(e)
			if k.dirs[e.NodeId] {
				asked = append(asked, e.NodeId)
			}
		}
		return asked, ahead
	}
	made := 0
	for round := range 6 {
		dirs := []uint64{id}
		for len(dirs) > 0 {
			dir := dirs[0]
			below, ahead := ask(dir)
			if ahead {
				made++
			}
			dirs = append(below, dirs[1:]...)
			for range round { // as much as the leader has time for
				f.listings.make(f)
			}
			if round == 5 && len(dirs) > 3 {
				dirs = dirs[:3] // the rest is never asked for
			}
		}
		f.listings.clear(f)
		require.Equal(t, len(k.refs)+1, f.Inodes())
		require.Greater(t, len(k.refs), top+20)
		for id, n := range k.refs {
			if k.refs[id] > 0 && !k.dirs[id] && id%3 == 0 {
				k.forget(id, n)
			}
		}
	}
	require.Greater(t, made, 30)
	_, ok := f.listings.take(id, 32<<10)
	require.False(t, ok)
	for id, n := range k.refs {
		k.forget(id, n)
	}
	require.Equal(t, 1, f.Inodes())
}

// plusEntries decodes the answer to READDIRPLUS (linux/fuse.h): a
// fuse_entry_out, a fuse_dirent and the name, padded to 8 bytes, each.
func plusEntries(buf []byte) []*fuse.EntryOut {
	const entrySize, direntSize = int(unsafe.Sizeof(fuse.EntryOut{})), 24
	var all []*fuse.EntryOut
	for len(buf) >= entrySize+direntSize {
		name := int(binary.NativeEndian.Uint32(buf[entrySize+16:]))
		if name == 0 {
			break // nothing was written here
		}
		all = append(all, &fuse.EntryOut{
			NodeId: binary.NativeEndian.Uint64(buf),
			Attr: fuse.Attr{
				Ino:  binary.NativeEndian.Uint64(buf[unsafe.Offsetof(fuse.EntryOut{}.Attr):]),
				Mode: binary.NativeEndian.Uint32(buf[unsafe.Offsetof(fuse.EntryOut{}.Attr)+unsafe.Offsetof(fuse.Attr{}.Mode):]),
			},
		})
		buf = buf[entrySize+direntSize+(name+7)&^7:]
	}
	return all
}
