package tree

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

func TestLookupReadsLittle(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	es := flat(100_000, 3)
	root, _ := store(t, src, es)
	r := NewReader(src, 0)

	for _, at := range []int{0, 1, 54_321, 99_999} {
		src.took()
		d, err := r.Open(ctx, root.Hash)
		require.NoError(t, err)
		require.Equal(t, 100_000, d.Len())
		e, err := d.Lookup(ctx, es[at].Name)
		require.NoError(t, err)
		require.Equal(t, es[at], e)
		require.LessOrEqual(t, src.took(), 3)

		for e, err := range d.Entries(ctx, at) {
			require.NoError(t, err)
			require.Equal(t, es[at], e)
			break
		}
		require.LessOrEqual(t, src.took(), 2)
	}

	d, err := r.Open(ctx, root.Hash)
	require.NoError(t, err)
	for _, name := range []string{"", "a", "module-8", "zzz", es[77].Name + "x", strings.Repeat("x", 999)} {
		_, err = d.Lookup(ctx, name)
		require.ErrorIs(t, err, ErrNotFound)
		require.NotErrorIs(t, err, cas.ErrNotFound)
	}
}

func TestEntriesFrom(t *testing.T) {
	src := newMemory()
	es := flat(3000, 4)
	root, _ := store(t, src, es)
	d, err := NewReader(src, 1<<20).Open(context.Background(), root.Hash)
	require.NoError(t, err)
	for _, from := range []int{0, 1, 15, 16, 64, 65, 1500, 2998, 2999} {
		require.Equal(t, es[from:], entries(t, d, from))
	}
	require.Equal(t, es, entries(t, d, -1))
	require.Empty(t, entries(t, d, 3000))
	require.Empty(t, entries(t, d, 1<<40))
}

func TestFind(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	m := model{"a": dir("", cas.Hash{}), "a/b": dir("", cas.Hash{}), "a/b/c": file("", "x"), "link": symlink("", "a")}
	root := m.build(t, src, "")
	r := NewReader(src, 1<<20)

	for _, path := range []string{"", "."} {
		e, err := r.Find(ctx, root.Hash, path)
		require.NoError(t, err)
		require.Equal(t, Entry{Kind: Dir, Hash: root.Hash}, e)
	}
	e, err := r.Find(ctx, root.Hash, "a/b/c")
	require.NoError(t, err)
	require.Equal(t, file("c", "x"), e)
	for _, path := range []string{"b", "a/c", "a/b/c/d", "link/b"} {
		_, err := r.Find(ctx, root.Hash, path)
		require.ErrorIs(t, err, ErrNotFound, path)
	}
	for _, path := range []string{"/a", "a/", "..", "a/../a", "a//b"} {
		_, err := r.Find(ctx, root.Hash, path)
		require.ErrorIs(t, err, ErrInvalid, path)
	}
}

func TestMissingObject(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	es := flat(1000, 5)
	root, objs := store(t, src, es)
	r := NewReader(src, 1<<20)
	_, err := r.Open(ctx, content("nothing"))
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.NotErrorIs(t, err, ErrNotFound)
	_, err = r.XAttrs(ctx, content("nothing"))
	require.ErrorIs(t, err, cas.ErrNotFound)

	delete(src.objs, objs[3].Key)
	d, err := r.Open(ctx, root.Hash)
	require.NoError(t, err)
	n := 0
	for _, err = range d.Entries(ctx, 0) {
		if err == nil {
			n++
		}
	}
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.NotZero(t, n)
	require.ErrorIs(t, Walk(ctx, r, root.Hash, func(string, Entry) error { return nil }), cas.ErrNotFound)
	require.ErrorIs(t, Verify(ctx, r, root.Hash), cas.ErrNotFound)
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src := newMemory()
	root, _ := store(t, src, flat(1000, 5))
	other, _ := store(t, src, flat(1000, 6))
	r := NewReader(src, 1<<20)
	nothing := func(string, Entry) error { return nil }
	require.ErrorIs(t, Walk(ctx, r, root.Hash, nothing), context.Canceled)
	require.ErrorIs(t, Diff(ctx, r, root.Hash, other.Hash, DiffOptions{}, func(Change) error { return nil }), context.Canceled)
	require.ErrorIs(t, Verify(ctx, r, root.Hash), context.Canceled)
}

func TestCache(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	es := flat(10_000, 5)
	root, objs := store(t, src, es)
	set, err := EncodeXAttrs([]XAttr{{Name: "user.x", Value: []byte("1")}})
	require.NoError(t, err)
	src.put(set)

	all := NewReader(src, 16<<20)
	d, err := all.Open(ctx, root.Hash)
	require.NoError(t, err)
	entries(t, d, 0)
	require.Equal(t, len(objs), src.took())
	entries(t, d, 0)
	for range 2 {
		_, err = all.XAttrs(ctx, set.Key.Hash)
		require.NoError(t, err)
	}
	require.Equal(t, 1, src.took())

	// One object under two names of use is refused, cached or not.
	_, err = all.Open(ctx, set.Key.Hash)
	requireCorrupt(t, err)
	_, err = all.XAttrs(ctx, root.Hash)
	requireCorrupt(t, err)

	small := NewReader(src, 64<<10)
	d, err = small.Open(ctx, root.Hash)
	require.NoError(t, err)
	require.Equal(t, es, entries(t, d, 0))
	src.took()
	entries(t, d, 0)
	require.NotZero(t, src.took(), "it does not hold all of them")

	none := NewReader(src, 0)
	_, err = none.Open(ctx, root.Hash)
	require.NoError(t, err)
	src.took()
	_, err = none.Open(ctx, root.Hash)
	require.NoError(t, err)
	require.Equal(t, 1, src.took())
}

func TestReaderIsConcurrent(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	es := flat(5000, 5)
	root, _ := store(t, src, es)
	r := NewReader(src, 100<<10)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for w := range 8 {
		wg.Go(func() {
			d, err := r.Open(ctx, root.Hash)
			for i := w; i < len(es) && err == nil; i += 8 {
				var e Entry
				if e, err = d.Lookup(ctx, es[i].Name); err == nil && e != es[i] {
					err = fmt.Errorf("got %+v", e)
				}
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// TestSegmentsMustFit: a list that says something else than its segments is
// refused wherever it is read.
func TestSegmentsMustFit(t *testing.T) {
	ctx := context.Background()
	es := flat(2000, 9)
	src := newMemory()
	root, objs := store(t, src, es)
	top, err := decodeObject(string(objs[len(objs)-1].Data))
	require.NoError(t, err)
	require.EqualValues(t, 1, top.level)
	items := func() []item {
		var its []item
		for i := range top.count() {
			its = append(its, top.item(i))
		}
		return its
	}
	put := func(es []Entry) item {
		var b Builder
		for _, e := range es {
			require.NoError(t, b.Add(e, Totals{}))
		}
		o := b.leaf(whole(append(b.closed, b.open)))
		src.put(o)
		return item{first: es[0].Name, count: uint64(len(es)), entries: uint64(len(es)), totals: b.totals, hash: o.Key.Hash}
	}
	n := int(items()[0].count)
	refuse := func(why string, its []item) {
		t.Helper()
		obj, _ := list(1, its)
		src.put(obj)
		r := NewReader(src, 1<<20)
		d, err := r.Open(ctx, obj.Key.Hash)
		if err == nil {
			for _, err = range d.Entries(ctx, 0) {
				if err != nil {
					break
				}
			}
		}
		require.ErrorIs(t, err, ErrInvalid, why)
		requireCorrupt(t, err)
		requireCorrupt(t, Walk(ctx, r, obj.Key.Hash, func(string, Entry) error { return nil }))
		requireCorrupt(t, Verify(ctx, r, obj.Key.Hash))
		requireCorrupt(t, Diff(ctx, r, obj.Key.Hash, root.Hash, DiffOptions{}, func(Change) error { return nil }))
	}

	its := items()
	its[1].totals.Bytes++
	refuse("totals", its)

	its = items()
	its[1].first = es[n].Name[:10]
	refuse("first name", its)

	its = items()
	its[2].count++
	its[2].entries++
	refuse("count", its)

	its = items()
	its[0].hash, its[1].hash = its[1].hash, its[0].hash
	refuse("swapped", its)

	its = items()
	its[0].hash = root.Hash
	refuse("level", its)

	its = items()
	its[0] = put(es[:n-1])
	refuse("no cut there", its)

	its = items()
	its = append([]item{put(es[:n+int(its[1].count)])}, its[2:]...)
	refuse("too long, or over a cut", its)

	its = items()
	over := append([]Entry(nil), es[:n]...)
	for i := 0; ; i++ {
		over[n-1].Name = fmt.Sprint(es[n].Name, i)
		if cutPoint(0, over[n-1].Name) {
			break
		}
	}
	its[0] = put(over)
	refuse("overlap", its)

	its = items()
	refuse("few enough for one object", its[:3])

	obj, _ := list(1, items()[:top.count()-1])
	src.put(obj)
	require.NoError(t, Verify(ctx, NewReader(src, 0), obj.Key.Hash), "without its last segment it is another directory")
}
