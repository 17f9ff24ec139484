// Package castest is the suite that every [cas.Store] passes.
package castest

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// Run tests the stores that open makes, each a new and empty one.
func Run(t *testing.T, open func(t *testing.T) cas.Store) {
	t.Helper()
	tests := []struct {
		name string
		test func(t *testing.T, s cas.Store)
	}{
		{"RoundTrip", roundTrip},
		{"NamespacesAreApart", namespacesAreApart},
		{"Missing", missing},
		{"VisibleAfterFlush", visibleAfterFlush},
		{"CloseDropsTheRest", closeDropsTheRest},
		{"StoredOnce", storedOnce},
		{"ReadAppends", readAppends},
		{"Refused", refused},
		{"Concurrent", concurrent},
		{"Blobs", blobs},
		{"BlobEdit", blobEdit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

// Noise returns n bytes that do not compress, the same for the same seed.
func Noise(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// Put stores objects in a batch of their own.
func Put(t *testing.T, s cas.Store, objs ...cas.Object) cas.WriterStats {
	t.Helper()
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), objs...))
	require.NoError(t, w.Flush(t.Context()))
	stats := w.Stats()
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "a second Close does nothing")
	return stats
}

func roundTrip(t *testing.T, s cas.Store) {
	contents := [][]byte{
		nil, {0}, []byte("hello"), bytes.Repeat([]byte("compressible "), 10_000),
		make([]byte, 1<<20), Noise(1, 1<<20), Noise(2, 5<<20), bytes.Repeat([]byte{7}, 10<<20),
	}
	var objs []cas.Object
	for _, c := range contents {
		objs = append(objs, cas.NewObject(cas.Files, cas.Data, c), cas.NewObject(cas.Trees, cas.List, c))
	}
	Put(t, s, objs...)
	for _, o := range objs {
		got, err := s.Read(t.Context(), o.Key, nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(o.Data, got), "object of %d bytes", len(o.Data))
	}
}

func namespacesAreApart(t *testing.T, s cas.Store) {
	o := cas.NewObject(cas.Files, cas.Data, []byte("x"))
	Put(t, s, o)
	has, err := s.Has(t.Context(), []cas.Key{o.Key, {NS: cas.Artifacts, Hash: o.Key.Hash}})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, has)
	_, err = s.Read(t.Context(), cas.Key{NS: cas.Artifacts, Hash: o.Key.Hash}, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.NotEqual(t, cas.Data.Sum([]byte("x")), cas.List.Sum([]byte("x")), "a list is never named like data")
}

func missing(t *testing.T, s cas.Store) {
	key := cas.NewObject(cas.Files, cas.Data, []byte("absent")).Key
	dst := []byte("kept")
	_, err := s.Read(t.Context(), key, dst)
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.ErrorContains(t, err, key.Hash.String())
	require.Equal(t, "kept", string(dst))
	has, err := s.Has(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, has)
}

func visibleAfterFlush(t *testing.T, s cas.Store) {
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Flush(t.Context()), "an empty batch")
	for round := range 3 {
		o := cas.NewObject(cas.Files, cas.Data, Noise(uint64(round), 1000))
		require.NoError(t, w.Put(t.Context(), o))
		has, err := s.Has(t.Context(), []cas.Key{o.Key})
		require.NoError(t, err)
		require.Equal(t, []bool{false}, has, "not before Flush")
		require.NoError(t, w.Flush(t.Context()))
		_, err = s.Read(t.Context(), o.Key, nil)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, w.Stats().Objects)
	require.EqualValues(t, 3000, w.Stats().Plain)
}

func closeDropsTheRest(t *testing.T, s cas.Store) {
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	o := cas.NewObject(cas.Files, cas.Data, []byte("never flushed"))
	require.NoError(t, w.Put(t.Context(), o))
	require.NoError(t, w.Close())
	require.Error(t, w.Put(t.Context(), o), "after Close")
	require.Error(t, w.Flush(t.Context()), "after Close")
	_, err = s.Read(t.Context(), o.Key, nil)
	require.ErrorIs(t, err, cas.ErrNotFound)
}

func storedOnce(t *testing.T, s cas.Store) {
	o := cas.NewObject(cas.Files, cas.Data, Noise(3, 4096))
	first := Put(t, s, o, o)
	require.EqualValues(t, 1, first.Objects)
	require.GreaterOrEqual(t, first.Stored, int64(4096))
	require.Equal(t, cas.WriterStats{}, Put(t, s, o, o))
}

func readAppends(t *testing.T, s cas.Store) {
	raw := cas.NewObject(cas.Files, cas.Data, Noise(4, 5000))
	packed := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("ab"), 5000))
	Put(t, s, raw, packed)
	got, err := s.Read(t.Context(), raw.Key, []byte("head"))
	require.NoError(t, err)
	got, err = s.Read(t.Context(), packed.Key, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(bytes.Join([][]byte{[]byte("head"), raw.Data, packed.Data}, nil), got))
}

// A Put that is refused takes none of its objects, and the writer goes on.
func refused(t *testing.T, s cas.Store) {
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	good := cas.NewObject(cas.Files, cas.Data, []byte("good"))
	require.ErrorIs(t, w.Put(t.Context(), good, cas.NewObject(cas.Files, cas.Data, make([]byte, cas.MaxObject+1))), cas.ErrTooLarge)
	require.Error(t, w.Put(t.Context(), good, cas.Object{Key: cas.Key{NS: 99}, Kind: cas.Data}))
	require.Error(t, w.Put(t.Context(), good, cas.Object{Key: good.Key, Kind: 99}))
	require.NoError(t, w.Put(t.Context(), good))
	require.NoError(t, w.Flush(t.Context()))
	_, err = s.Read(t.Context(), good.Key, nil)
	require.NoError(t, err)
}

// concurrent has several writers store overlapping objects while readers read
// them.
func concurrent(t *testing.T, s cas.Store) {
	const writers, each = 4, 300
	objs := make([]cas.Object, each)
	for i := range objs {
		objs[i] = cas.NewObject(cas.Files, cas.Data, Noise(uint64(100+i), 100+i*50))
	}
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for n := range writers {
		wg.Go(func() {
			errs[n] = func() error {
				w, err := s.NewWriter(t.Context())
				if err != nil {
					return err
				}
				defer w.Close()
				var puts sync.WaitGroup
				perr := make([]error, 3)
				for k := range perr {
					puts.Go(func() {
						for i := range objs {
							if perr[k] == nil {
								perr[k] = w.Put(t.Context(), objs[(i*(k+1)+n)%each])
							}
						}
					})
				}
				puts.Wait()
				for _, err := range perr {
					if err != nil {
						return err
					}
				}
				if err := w.Flush(t.Context()); err != nil {
					return err
				}
				for _, o := range objs {
					if _, err := s.Read(t.Context(), o.Key, nil); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// BlobContents are blobs around every boundary of the chunking, by name.
func BlobContents() map[string][]byte {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	return map[string][]byte{
		"empty":                 nil,
		"one chunk":             Noise(10, cas.ChunkedSize),
		"just chunked":          Noise(11, cas.ChunkedSize+1),
		"several chunks":        Noise(12, 7<<20+123),
		"zeros":                 make([]byte, 9<<20),
		"zeros, ragged end":     make([]byte, 9<<20+17),
		"hole in the middle":    join(Noise(13, 1<<20+5), make([]byte, 3<<20), Noise(14, 100_000)),
		"hole at the start":     join(make([]byte, 2<<20), Noise(15, 2<<20)),
		"hole at the end":       join(Noise(16, 2<<20), make([]byte, 1<<20)),
		"block not aligned":     join(Noise(17, 2<<20-1), make([]byte, cas.ZeroBlock), Noise(18, 70_000)),
		"alternating":           bytes.Repeat(join(Noise(19, cas.ZeroBlock), make([]byte, cas.ZeroBlock)), 20),
		"small data after hole": join(make([]byte, 1<<20), []byte("x")),
	}
}

func blobs(t *testing.T, s cas.Store) {
	for name, content := range BlobContents() {
		w, err := s.NewWriter(t.Context())
		require.NoError(t, err)
		blob, err := cas.WriteBlob(t.Context(), w, cas.Files, bytes.NewReader(content))
		require.NoError(t, err)
		require.NoError(t, w.Flush(t.Context()))
		require.NoError(t, w.Close())
		require.EqualValues(t, len(content), blob.Size, name)
		require.Equal(t, len(content) > cas.ChunkedSize, blob.Chunked(), name)
		var got bytes.Buffer
		require.NoError(t, cas.CopyBlob(t.Context(), &got, s, cas.Files, blob), name)
		require.True(t, bytes.Equal(content, got.Bytes()), name)

		again, err := cas.WriteBlob(t.Context(), discard{}, cas.Files, shortReads{bytes.NewReader(content)})
		require.NoError(t, err)
		require.Equal(t, blob, again, "%s: the name depends on the bytes alone", name)
	}
}

// blobEdit changes a large blob a little and looks at what that costs.
func blobEdit(t *testing.T, s cas.Store) {
	base := Noise(20, 32<<20)
	store := func(content []byte) int64 {
		w, err := s.NewWriter(t.Context())
		require.NoError(t, err)
		defer w.Close()
		_, err = cas.WriteBlob(t.Context(), w, cas.Files, bytes.NewReader(content))
		require.NoError(t, err)
		require.NoError(t, w.Flush(t.Context()))
		return w.Stats().Stored
	}
	store(base)
	inserted := bytes.Join([][]byte{base[:10<<20], []byte("inserted"), base[10<<20:]}, nil)
	require.Less(t, store(inserted), int64(9<<20), "an insertion costs a few chunks")
	require.Less(t, store(append(bytes.Clone(base), "appended"...)), int64(5<<20), "an addition costs the last chunk")
}

// discard is a writer that stores nothing.
type discard struct{}

func (discard) Put(context.Context, ...cas.Object) error { return nil }
func (discard) Flush(context.Context) error              { return nil }
func (discard) Stats() cas.WriterStats                   { return cas.WriterStats{} }
func (discard) Close() error                             { return nil }

// shortReads yields short reads of odd lengths.
type shortReads struct{ r *bytes.Reader }

func (r shortReads) Read(p []byte) (int, error) {
	return r.r.Read(p[:min(len(p), 4099)])
}
