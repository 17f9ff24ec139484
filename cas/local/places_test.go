package local

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
)

// countingIndex counts what it is asked.
type countingIndex struct {
	*memIndex
	asked atomic.Int64
}

func (c *countingIndex) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	c.asked.Add(1)
	return c.memIndex.Locate(ctx, keys)
}

// objectsOf makes n objects that differ.
func objectsOf(from, n int) []cas.Object {
	objects := make([]cas.Object, n)
	for i := range objects {
		objects[i] = cas.NewObject(cas.Files, cas.Data, castest.Noise(uint64(from+i), 200))
	}
	return objects
}

func readAll(t *testing.T, s *Store, objects []cas.Object) {
	t.Helper()
	for _, o := range objects {
		data, err := s.Read(t.Context(), o.Key, nil)
		require.NoError(t, err)
		require.Equal(t, o.Data, data)
	}
}

// learnedStore has one pack of n objects, whose places are known.
func learnedStore(t *testing.T, n int) (s *Store, index *countingIndex, objects []cas.Object) {
	_, mem := newStore(t, Options{})
	index = &countingIndex{memIndex: mem}
	s = New(mem.dir, index, Options{Places: 1 << 20})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	objects = objectsOf(0, n)
	castest.Put(t, s, objects...)
	readAll(t, s, objects[:worthwhile])
	index.asked.Store(0)
	return s, index, objects
}

// TestPlacesSpareTheIndex: a pack that is read from often is known.
func TestPlacesSpareTheIndex(t *testing.T) {
	s, index, objects := learnedStore(t, 300)
	readAll(t, s, objects)
	require.Zero(t, index.asked.Load())
	_, err := s.Read(t.Context(), cas.Key{NS: cas.Artifacts, Hash: objects[0].Key.Hash}, nil)
	require.ErrorIs(t, err, cas.ErrNotFound, "of another namespace")
	require.EqualValues(t, 1, index.asked.Load())
}

// TestPlacesMayBeWrong: what is known of a pack is a guess. Another object there,
// a pack that is gone or was moved: the index has the last word.
func TestPlacesMayBeWrong(t *testing.T) {
	s, index, objects := learnedStore(t, 60)
	spots := s.known.packs[0].spots
	for i := range spots { // as if the names began alike
		spots[i].offset, spots[i].stored = spots[(i+1)%len(spots)].offset, spots[(i+1)%len(spots)].stored
	}
	readAll(t, s, objects)
	require.NotZero(t, index.asked.Load())

	s, index, objects = learnedStore(t, 60)
	old := s.known.packs[0].pack
	var live []cas.Located
	for _, o := range objects {
		live = append(live, cas.Located{Key: o.Key, Location: index.at[o.Key]})
	}
	moved, err := s.Rewrite(t.Context(), live)
	require.NoError(t, err)
	for _, o := range moved {
		index.at[o.Key] = o.Location
	}
	require.NoError(t, os.Remove(packPath(index.dir, old)))
	readAll(t, s, objects) // it is open still
	require.Zero(t, index.asked.Load())
	s.packs.Purge()
	readAll(t, s, objects)
	require.NotZero(t, index.asked.Load())
	for _, c := range s.known.packs {
		require.NotEqual(t, old, c.pack)
	}
}

// TestPlacesAreBounded: the packs used last stay.
func TestPlacesAreBounded(t *testing.T) {
	_, mem := newStore(t, Options{})
	index := &countingIndex{memIndex: mem}
	s := New(mem.dir, index, Options{Places: 4 * 50 * spotSize})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var packs [][]cas.Object
	for i := range 7 {
		packs = append(packs, objectsOf(100*i, 50))
		castest.Put(t, s, packs[i]...)
		readAll(t, s, packs[i])
	}
	require.Len(t, s.known.packs, 4)
	require.LessOrEqual(t, s.known.used, s.known.max)
	index.asked.Store(0)
	for _, objects := range packs[3:] {
		readAll(t, s, objects)
	}
	require.Zero(t, index.asked.Load())
	readAll(t, s, packs[0])
	require.Len(t, s.known.packs, 4)

	none := New(mem.dir, index, Options{})
	t.Cleanup(func() { require.NoError(t, none.Close()) })
	index.asked.Store(0)
	readAll(t, none, packs[0])
	require.EqualValues(t, len(packs[0]), index.asked.Load(), "without memory for it the index is asked each time")
}

// TestClosedUnderARead: a pack that is closed while somebody is about to read from
// it, since others are needed more or it was rewritten, is opened again.
func TestClosedUnderARead(t *testing.T) {
	_, mem := newStore(t, Options{})
	damaged := atomic.Int64{}
	s := New(mem.dir, mem, Options{Places: 1 << 20, Damaged: func(cas.Located) { damaged.Add(1) }})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	objects := objectsOf(0, 100)
	castest.Put(t, s, objects...)
	for _, ctx := range []context.Context{t.Context(), ByChecksum(OnWait(t.Context(), func() {}))} {
		var readers sync.WaitGroup
		var failed atomic.Pointer[error]
		stop := make(chan struct{})
		for range 4 {
			readers.Go(func() {
				for i := range 5000 {
					if _, err := s.Read(ctx, objects[i%len(objects)].Key, nil); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		}
		go func() {
			readers.Wait()
			close(stop)
		}()
		for done := false; !done; {
			select {
			case <-stop:
				done = true
			default:
				s.packs.Purge()
			}
		}
		if err := failed.Load(); err != nil {
			require.NoError(t, *err)
		}
		require.Zero(t, damaged.Load())
	}
}

// TestWithoutWait: what the kernel has is read, and nothing is said of the rest.
func TestWithoutWait(t *testing.T) {
	s, _, objects := learnedStore(t, 60)
	ctx := WithoutWait(t.Context())
	for _, o := range objects {
		data, err := s.Read(ctx, o.Key, nil)
		if errors.Is(err, ErrWouldWait) {
			continue // the file system cannot tell, or the kernel dropped it
		}
		require.NoError(t, err)
		require.Equal(t, o.Data, data)
	}
}

// TestExpect: objects that were announced are found at once, and again when they have
// moved.
func TestExpect(t *testing.T) {
	_, mem := newStore(t, Options{})
	index := &countingIndex{memIndex: mem}
	s := New(mem.dir, index, Options{Places: 1 << 20})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	objects := objectsOf(0, worthwhile-1) // too few to learn their pack
	castest.Put(t, s, objects...)
	var keys []cas.Key
	var live []cas.Located
	for _, o := range objects {
		keys = append(keys, o.Key)
		live = append(live, cas.Located{Key: o.Key, Location: index.at[o.Key]})
	}
	nothing := cas.Key{NS: cas.Artifacts, Hash: keys[0].Hash}
	index.asked.Store(0)
	s.Expect(t.Context(), append(keys, nothing))
	require.EqualValues(t, 1, index.asked.Load())
	readAll(t, s, objects)
	s.Expect(t.Context(), keys)
	require.EqualValues(t, 1, index.asked.Load())
	_, err := s.Read(t.Context(), nothing, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)

	moved, err := s.Rewrite(t.Context(), live)
	require.NoError(t, err)
	for _, o := range moved {
		index.at[o.Key] = o.Location
	}
	require.NoError(t, os.Remove(packPath(index.dir, live[0].Location.Pack)))
	s.packs.Purge()
	readAll(t, s, objects)

	// Only so many are remembered, and none where nothing may be.
	many := make([]cas.Key, 2*toldObjects)
	at := make([]cas.Location, len(many))
	for i := range many {
		many[i].Hash[0], many[i].Hash[1], many[i].Hash[2] = byte(i), byte(i>>8), 1
		at[i].Kind = cas.Data
	}
	s.known.tell(many, at)
	require.Len(t, s.known.told, toldObjects)
	none := places{}
	none.tell(many[:1], at[:1])
	require.Empty(t, none.told)
}
