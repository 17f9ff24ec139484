package memory

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
)

// newStore makes an empty store; at the end of the test it must be sound.
func newStore(t *testing.T) *Store {
	s := New()
	t.Cleanup(func() {
		if !t.Failed() {
			verify(t, s)
		}
	})
	return s
}

// verify reads every object and counts.
func verify(t *testing.T, s *Store) {
	t.Helper()
	var sum int64
	all := s.Objects()
	for _, o := range all {
		data, err := s.Read(context.Background(), o.Key, nil)
		require.NoError(t, err)
		require.EqualValues(t, len(data), o.Location.Plain)
		sum += int64(len(data))
	}
	objects, bytes := s.Size()
	require.Equal(t, len(all), objects)
	require.Equal(t, sum, bytes)
}

func TestSuite(t *testing.T) {
	castest.Run(t, func(t *testing.T) cas.Store { return newStore(t) })
}

func TestBytesAreNotShared(t *testing.T) {
	s := newStore(t)
	data := []byte("content")
	o := cas.NewObject(cas.Files, cas.Data, data)
	stats := castest.Put(t, s, o)
	require.Equal(t, cas.WriterStats{Objects: 1, Plain: 7, Stored: 7}, stats)
	copy(data, "borrow!")
	got, err := s.Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
	require.Equal(t, "content", string(got))
	copy(got, "changed")
	got, err = s.Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
	require.Equal(t, "content", string(got))
}

func TestCorrupt(t *testing.T) {
	s := New()
	o := cas.NewObject(cas.Files, cas.Data, []byte("content"))
	o.Data = []byte("another")
	castest.Put(t, s, o)
	_, err := s.Read(t.Context(), o.Key, nil)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.ErrorContains(t, err, o.Key.String())
}

func TestRefusedPutTakesNothing(t *testing.T) {
	s := newStore(t)
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	good := cas.NewObject(cas.Files, cas.Data, []byte("good"))
	large := cas.Object{Key: good.Key, Kind: cas.Data, Data: make([]byte, cas.MaxObject+1)}
	require.ErrorIs(t, w.Put(t.Context(), good, large), cas.ErrTooLarge)
	require.Error(t, w.Put(t.Context(), good, cas.NewObject(0, cas.Data, nil)))
	require.Error(t, w.Put(t.Context(), good, cas.NewObject(cas.Files, 0, nil)))
	require.NoError(t, w.Flush(t.Context()))
	require.Equal(t, cas.WriterStats{}, w.Stats())
	require.NoError(t, w.Put(t.Context(), good), "it can be put again")
	require.NoError(t, w.Flush(t.Context()))
	_, err = s.Read(t.Context(), good.Key, nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

// located is what the store says of an object.
func located(o cas.Object) cas.Located {
	n := uint32(len(o.Data))
	return cas.Located{Key: o.Key, Location: cas.Location{Kind: o.Kind, Stored: n, Plain: n}}
}

func TestDelete(t *testing.T) {
	s := newStore(t)
	a := cas.NewObject(cas.Files, cas.Data, []byte("a"))
	b := cas.NewObject(cas.Trees, cas.List, []byte("bb"))
	castest.Put(t, s, a, b)
	s.Delete(a.Key, a.Key, cas.Key{NS: cas.Files, Hash: b.Key.Hash})
	require.Equal(t, []cas.Located{located(b)}, s.Objects())
	_, err := s.Read(t.Context(), a.Key, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.EqualValues(t, 1, castest.Put(t, s, a, b).Objects, "what was deleted is new again")
	s.Delete(b.Key, a.Key)
	objects, bytes := s.Size()
	require.Zero(t, objects)
	require.Zero(t, bytes)
}

func TestContext(t *testing.T) {
	s := newStore(t)
	o := cas.NewObject(cas.Files, cas.Data, []byte("x"))
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), o))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.NewWriter(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Has(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Read(ctx, o.Key, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, w.Put(ctx, o), context.Canceled)
	require.ErrorIs(t, w.Flush(ctx), context.Canceled)
	require.Empty(t, s.Objects())
	require.NoError(t, w.Flush(t.Context()), "the batch is still there")
	require.Equal(t, []cas.Located{located(o)}, s.Objects())
	require.NoError(t, w.Close())
}
