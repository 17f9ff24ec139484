package cas

import (
	"bytes"
	"context"
	"encoding/hex"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHashParses(t *testing.T) {
	h := Data.Sum([]byte("abc"))
	require.Equal(t, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85", h.String(), "BLAKE3's published vector")
	back, err := ParseHash(h.String())
	require.NoError(t, err)
	require.Equal(t, h, back)
	for _, bad := range []string{"", "6437", h.String() + "00", "6437B3AC38465133FFB63B75273A8DB548C558465D79DB03FD359C6CD5BD9D85", "zz37b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"} {
		_, err := ParseHash(bad)
		require.Error(t, err, bad)
		_, err = ParsePackID(bad)
		require.Error(t, err, bad)
	}
	for n := Files; n <= Records; n++ {
		back, err := ParseNamespace(n.String())
		require.NoError(t, err)
		require.Equal(t, n, back)
	}
	_, err = ParseNamespace("namespace 0")
	require.Error(t, err)
}

// memWriter keeps the objects that it is given.
type memWriter struct {
	mu   sync.Mutex
	objs map[Key][]byte
}

func (w *memWriter) Put(_ context.Context, objs ...Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objs {
		w.objs[o.Key] = bytes.Clone(o.Data)
	}
	return nil
}
func (w *memWriter) Flush(context.Context) error { return nil }
func (w *memWriter) Stats() WriterStats          { return WriterStats{} }
func (w *memWriter) Close() error                { return nil }
func (w *memWriter) Read(_ context.Context, k Key, dst []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, ok := w.objs[k]
	if !ok {
		return nil, ErrNotFound
	}
	return append(dst, b...), nil
}

// sample is 12 MiB of fixed bytes with a hole of 2 MiB that begins inside a
// block of zeros' alignment.
func sample() []byte {
	b := make([]byte, 12<<20)
	state := uint64(42)
	for i := range b {
		state = state*6364136223846793005 + 1442695040888963407
		b[i] = byte(state >> 56)
	}
	clear(b[5<<20+100 : 7<<20+100])
	return b
}

// The cut points are part of the format: a store dedups only against blobs that
// were cut alike.
func TestCutPointsArePinned(t *testing.T) {
	w := &memWriter{objs: map[Key][]byte{}}
	blob, err := WriteBlob(t.Context(), w, Files, bytes.NewReader(sample()))
	require.NoError(t, err)
	chunks, err := Chunks(t.Context(), w, Files, blob)
	require.NoError(t, err)
	var lens []int64
	for _, c := range chunks {
		if c.Zeros() {
			lens = append(lens, -c.Len)
		} else {
			lens = append(lens, c.Len)
		}
	}
	require.Equal(t, []int64{1600271, 267381, 1123401, 1323214, 994149, -2031616, 1709164, 1290620, 1252976, 990120}, lens)
	require.Equal(t, "be5bfe02d7ffc528e09ec1f1a943ae4170957468e554e51e66a928cfe9dd4d23", blob.Hash.String())
}

func TestZeroRunsAreAlignedAndMaximal(t *testing.T) {
	w := &memWriter{objs: map[Key][]byte{}}
	blob, err := WriteBlob(t.Context(), w, Files, bytes.NewReader(sample()))
	require.NoError(t, err)
	chunks, err := Chunks(t.Context(), w, Files, blob)
	require.NoError(t, err)
	var zeros []Chunk
	for _, c := range chunks {
		if c.Zeros() {
			zeros = append(zeros, c)
		}
	}
	require.Equal(t, []Chunk{{Off: 5<<20 + ZeroBlock, Len: 2<<20 - ZeroBlock}}, zeros)
	require.Equal(t, len(chunks), ChunkAt(chunks, blob.Size))
	for i, c := range chunks {
		require.Equal(t, i, ChunkAt(chunks, c.Off))
		require.Equal(t, i, ChunkAt(chunks, c.Off+c.Len-1))
	}
}

func TestDecodeListRefuses(t *testing.T) {
	h := Data.Sum(nil)
	good, err := EncodeList([]Chunk{{Len: MaxChunk, Hash: h}, {Len: ZeroBlock}, {Len: 5, Hash: h}})
	require.NoError(t, err)
	_, err = DecodeList(good)
	require.NoError(t, err)
	enc := func(chunks ...Chunk) []byte { b, err := EncodeList(chunks); require.NoError(t, err); return b }
	mut := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	bad := map[string][]byte{
		"empty":              nil,
		"magic":              mut(0, 'x'),
		"version":            mut(4, 2),
		"reserved":           mut(6, 1),
		"other length":       mut(8, 9),
		"entry kind":         mut(listHeader, 3),
		"cut":                good[:len(good)-1],
		"trailing":           append(bytes.Clone(good), 0),
		"small blob":         enc(Chunk{Len: 100, Hash: h}),
		"long chunk":         enc(Chunk{Len: MaxChunk + 1, Hash: h}),
		"empty chunk":        enc(Chunk{Len: MaxChunk, Hash: h}, Chunk{Len: 0, Hash: h}),
		"zeros not aligned":  enc(Chunk{Len: MaxChunk - 1, Hash: h}, Chunk{Len: ZeroBlock}),
		"zeros cut in two":   enc(Chunk{Len: MaxChunk, Hash: h}, Chunk{Len: ZeroBlock}, Chunk{Len: ZeroBlock}),
		"ragged zeros":       enc(Chunk{Len: MaxChunk}, Chunk{Len: 5}, Chunk{Len: 5, Hash: h}),
		"zeros of no length": enc(Chunk{Len: MaxChunk, Hash: h}, Chunk{Len: 0}),
	}
	for name, b := range bad {
		_, err := DecodeList(b)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	short := &memWriter{objs: map[Key][]byte{}}
	obj := NewObject(Files, List, good)
	require.NoError(t, short.Put(t.Context(), obj))
	_, err = Chunks(t.Context(), short, Files, Blob{Hash: obj.Key.Hash, Size: 2 << 20})
	require.ErrorIs(t, err, ErrCorrupt, "a list for another length")
}

func FuzzDecodeList(f *testing.F) {
	h := Data.Sum(nil)
	seed, _ := EncodeList([]Chunk{{Len: MaxChunk, Hash: h}, {Len: ZeroBlock}, {Len: 5, Hash: h}})
	f.Add(seed)
	f.Add([]byte(hex.EncodeToString(seed)))
	f.Fuzz(func(t *testing.T, b []byte) {
		chunks, err := DecodeList(b)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		again, err := EncodeList(chunks)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
