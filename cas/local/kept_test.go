package local

import (
	"cmp"
	"context"
	iofs "io/fs"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
)

// packsIn lists a store's packs.
func packsIn(t *testing.T, dir string) (ids []cas.PackID) {
	t.Helper()
	for id, err := range Packs(dir) {
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids
}

// readKept reads objects, by their hashes and by their checksums.
func readKept(t *testing.T, k *Kept, objects []cas.Object) {
	t.Helper()
	for _, ctx := range []context.Context{t.Context(), ByChecksum(OnWait(t.Context(), func() {}))} {
		for _, o := range objects {
			data, err := k.Read(ctx, o.Key, []byte("before"))
			require.NoError(t, err)
			require.Equal(t, append([]byte("before"), o.Data...), data)
		}
	}
}

// TestKeptPacksOutliveTheirFiles: what was opened stays readable, and is closed with
// its last user.
func TestKeptPacksOutliveTheirFiles(t *testing.T) {
	s, index := newStore(t, Options{})
	objects := objectsOf(0, 300)
	for part := range slices.Chunk(objects, 100) {
		castest.Put(t, s, part...)
	}
	long := cas.NewObject(cas.Files, cas.Data, castest.Noise(7, 3*longRaw))
	castest.Put(t, s, long)
	objects = append(objects, long)
	ids := packsIn(t, index.dir)
	require.Len(t, ids, 4)
	k := NewKept(index.dir)
	require.NoError(t, k.Add(ids...))
	require.NoError(t, k.Add(ids[0]))
	for _, id := range ids {
		require.NoError(t, os.Remove(packPath(index.dir, id)))
	}
	readKept(t, k, objects)
	_, err := k.Read(t.Context(), cas.Key{NS: cas.Trees, Hash: objects[0].Key.Hash}, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)

	err = k.Add(ids[0], cas.PackID{1})
	require.ErrorIs(t, err, iofs.ErrNotExist)
	k.Remove(ids...)
	first, err := footer(k.now.Load().packs[0].file.File, ids[0])
	require.NoError(t, err, "it was added twice, and taken away once")
	require.Len(t, k.now.Load().table.spots, len(first))
	for _, o := range objects {
		_, err := k.Read(t.Context(), o.Key, nil)
		if slices.ContainsFunc(first, func(l cas.Located) bool { return l.Key == o.Key }) {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, cas.ErrNotFound)
		}
	}
	require.ErrorIs(t, k.Add(ids[1]), iofs.ErrNotExist, "nobody had it any more")
	require.NoError(t, k.Close())
	require.NoError(t, k.Close())
	_, err = k.Read(t.Context(), first[0].Key, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)
}

// TestKeptOfManyPacks: small packs come and go while others read.
func TestKeptOfManyPacks(t *testing.T) {
	s, index := newStore(t, Options{})
	objects := objectsOf(0, 600)
	for part := range slices.Chunk(objects, 3) {
		castest.Put(t, s, part...)
	}
	castest.Put(t, New(index.dir, &memIndex{dir: index.dir, at: map[cas.Key]cas.Location{}}, Options{}), objects[:3]...) // a second time
	ids := packsIn(t, index.dir)
	require.Len(t, ids, 201)
	k := NewKept(index.dir)
	defer k.Close()
	require.NoError(t, k.Add(ids...))
	require.Len(t, k.now.Load().table.spots, 603)
	require.True(t, slices.IsSortedFunc(k.now.Load().table.spots, func(a, b spot) int { return cmp.Compare(a.prefix, b.prefix) }))
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for range 20 {
				mine := ids[50*i : 50*i+50]
				if err := k.Add(mine...); err != nil {
					t.Error(err)
				}
				k.Remove(mine...)
			}
		})
	}
	readKept(t, k, objects)
	others.Wait()
	k.Remove(ids...)
	require.Empty(t, k.now.Load().table.spots)
}

// TestKeptDamage: a damaged record is told from one that is missing, and of two packs
// that hold an object the sound one is enough.
func TestKeptDamage(t *testing.T) {
	dir := t.TempDir()
	_, mem := newStore(t, Options{})
	require.NoError(t, os.CopyFS(dir, os.DirFS(mem.dir)))
	s := New(dir, &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}, Options{})
	defer s.Close()
	objects := objectsOf(0, 2)
	castest.Put(t, s, objects...)
	k := NewKept(dir)
	defer k.Close()
	ids := packsIn(t, dir)
	require.NoError(t, k.Add(ids...))
	data, err := os.ReadFile(packPath(dir, ids[0]))
	require.NoError(t, err)
	at := s.index.(*memIndex).at[objects[0].Key]
	data[at.Offset+recordHeader+5] ^= 1
	require.NoError(t, os.Chmod(packPath(dir, ids[0]), 0o600))
	require.NoError(t, os.WriteFile(packPath(dir, ids[0]), data, 0o600))
	for _, ctx := range []context.Context{t.Context(), ByChecksum(t.Context())} {
		_, err = k.Read(ctx, objects[0].Key, nil)
		require.ErrorIs(t, err, cas.ErrCorrupt)
	}
	readKept(t, k, objects[1:])

	again := New(dir, &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}, Options{})
	defer again.Close()
	castest.Put(t, again, objects[0])
	more := slices.DeleteFunc(packsIn(t, dir), func(id cas.PackID) bool { return id == ids[0] })
	require.NoError(t, k.Add(more...))
	readKept(t, k, objects)
}

// BenchmarkKept reads from two thousand packs.
func BenchmarkKept(b *testing.B) {
	k := NewKept("")
	next := &keptPacks{}
	for i := range 2000 {
		objects := make([]cas.Located, 50)
		for j := range objects {
			objects[j].Key = cas.Key{NS: cas.Files, Hash: cas.Data.Sum([]byte{byte(i), byte(i >> 8), byte(j)})}
		}
		next.table = merge(next.table, keptTable{spots: spotsOf(objects), in: slices.Repeat([]uint32{uint32(i)}, len(objects))})
	}
	next.packs = make([]keptPack, 2000)
	k.now.Store(next)
	key := cas.Key{NS: cas.Trees}
	for b.Loop() {
		key.Hash[0]++
		_, _ = k.readIn(b.Context(), next, key, nil)
	}
}
