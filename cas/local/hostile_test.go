package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// allocated returns how many bytes fn takes in all.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// bomb packs n zeros so that the frame does not tell how many they are.
func bomb(t testing.TB, n int, options ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	enc, err := zstd.NewWriter(&b, options...)
	require.NoError(t, err)
	zeros := make([]byte, 1<<20)
	for ; n > 0; n -= len(zeros) {
		_, err := enc.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, enc.Close())
	return b.Bytes()
}

// TestBombs: a payload that unfolds to more than its record says is damage. What it
// says itself decides over no memory, and what it does not say over no more than an
// object can take.
func TestBombs(t *testing.T) {
	key := cas.NewObject(cas.Files, cas.Data, []byte("x")).Key
	enc, err := newEncoder()
	require.NoError(t, err)
	zeros := enc.EncodeAll(make([]byte, 60<<20), nil)
	frame := func(descriptor byte, rest ...byte) []byte { // of a header and an empty last block
		return append(append([]byte{0x28, 0xb5, 0x2f, 0xfd, descriptor}, rest...), 1, 0, 0)
	}
	const notSaid = 512 << 20 // as it grows, all copies together
	tests := map[string]struct {
		payload []byte
		most    int64
	}{
		"60 MiB":                  {zeros, 1 << 20},
		"32 MiB, not said":        {bomb(t, 32<<20), notSaid},
		"128 MiB, not said":       {bomb(t, 128<<20), notSaid},
		"two frames":              {append(slices.Clone(enc.EncodeAll(make([]byte, 1<<10), nil)), zeros...), notSaid},
		"64 frames":               {bytes.Repeat(zeros, 64), notSaid},
		"a window of two TiB":     {frame(0, 0xff), 1 << 20},
		"a window of 64 MiB":      {bomb(t, 4<<20, zstd.WithWindowSize(64<<20)), notSaid},
		"a length of 2^64 - 1":    {frame(0xe0, bytes.Repeat([]byte{0xff}, 8)...), 1 << 20},
		"a dictionary":            {frame(0x23, 1, 2, 3, 4, 0), 1 << 20},
		"a skippable frame":       {[]byte("\x50\x2a\x4d\x18\xff\xff\xff\xff"), 1 << 20},
		"nothing":                 {nil, 1 << 20},
		"a frame of nothing":      {frame(0x20, 0), 1 << 20},
		"a frame without a block": {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 1}, 1 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := record{key: key, kind: cas.Data, encoding: cas.Zstd, plain: 1 << 10, payload: test.payload}
			var err error
			taken := allocated(func() { _, err = r.unpack(nil) })
			require.ErrorIs(t, err, cas.ErrCorrupt)
			require.Less(t, taken, test.most)
		})
	}
}

// TestHeadersThatLie: what a record says of itself is checked before it is believed.
func TestHeadersThatLie(t *testing.T) {
	o := cas.NewObject(cas.Files, cas.Data, []byte("content"))
	good := record{key: o.Key, kind: o.Kind, plain: uint32(len(o.Data)), payload: o.Data}.append(nil)
	_, err := parseRecord(good, true)
	require.NoError(t, err)
	number := func(at int, n uint32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[at:], n) }
	}
	octet := func(at int, n byte) func(b []byte) { return func(b []byte) { b[at] = n } }
	for name, change := range map[string]func(b []byte){
		"magic":          octet(0, 's'),
		"version":        octet(4, 2),
		"kind":           octet(5, 3),
		"no kind":        octet(5, 0),
		"namespace":      octet(6, 6),
		"no namespace":   octet(6, 0),
		"domain":         octet(7, 1),
		"encoding":       octet(8, 3),
		"reserved":       octet(11, 1),
		"dictionary":     number(12, 1),
		"encryption":     number(16, 1),
		"plain 4 GiB":    number(20, 1<<32-1),
		"plain 64 MiB":   number(20, cas.MaxObject+1),
		"plain is other": number(20, 6),
		"stored 4 GiB":   number(24, 1<<32-1),
		"past the end":   func(b []byte) { number(20, 8)(b); number(24, 8)(b) },
		"other name":     octet(28, 0),
	} {
		t.Run(name, func(t *testing.T) {
			b := slices.Clone(good)
			change(b)
			binary.LittleEndian.PutUint32(b[60:], crc32.Update(crc32.Checksum(b[:60], castagnoli), castagnoli, b[recordHeader:]))
			var err error
			taken := allocated(func() {
				var r record
				if r, err = parseRecord(b, true); err == nil {
					_, err = r.decode(nil)
				}
			})
			require.ErrorIs(t, err, cas.ErrCorrupt)
			require.Less(t, taken, int64(1<<20))
		})
	}
}

// TestFootersThatLie: a pack whose footer says what is not so is found by a check, and
// nobody who reads by it gets anything but the right bytes.
func TestFootersThatLie(t *testing.T) {
	one, two := cas.NewObject(cas.Files, cas.Data, []byte("the one")), cas.NewObject(cas.Trees, cas.Data, []byte("the two"))
	body, offs := rawPack(encodedRecord(t, one), encodedRecord(t, two))
	located := func(o cas.Object, off int) cas.Located {
		return cas.Located{Key: o.Key, Location: cas.Location{Offset: uint32(off), Stored: 7, Plain: 7, Kind: cas.Data}}
	}
	honest := []cas.Located{located(one, offs[0]), located(two, offs[1])}
	change := func(fn func(l *cas.Located)) []byte {
		lie := slices.Clone(honest)
		fn(&lie[0])
		return appendFooter(nil, lie)
	}
	counted := func(n uint32) []byte {
		b := appendFooter(nil, honest)
		binary.LittleEndian.PutUint32(b[len(b)-trailer:], n)
		binary.LittleEndian.PutUint32(b[len(b)-trailer+4:], crc32.Checksum(b[:len(b)-trailer+4], castagnoli))
		return b
	}
	for name, footer := range map[string][]byte{
		"offset outside":        change(func(l *cas.Located) { l.Location.Offset = 1<<32 - 1 }),
		"offset in the footer":  change(func(l *cas.Located) { l.Location.Offset = uint32(len(body)) }),
		"offset in the header":  change(func(l *cas.Located) { l.Location.Offset = 0 }),
		"offset of another":     change(func(l *cas.Located) { l.Location.Offset = uint32(offs[1]) }),
		"offset inside":         change(func(l *cas.Located) { l.Location.Offset += 5 }),
		"stored 4 GiB":          change(func(l *cas.Located) { l.Location.Stored = 1<<32 - 1 }),
		"plain 4 GiB":           change(func(l *cas.Located) { l.Location.Plain, l.Location.Encoding = 1<<32-1, cas.Zstd }),
		"longer":                change(func(l *cas.Located) { l.Location.Stored, l.Location.Plain = 8, 8 }),
		"kind":                  change(func(l *cas.Located) { l.Location.Kind = 9 }),
		"another kind":          change(func(l *cas.Located) { l.Location.Kind = cas.List }),
		"namespace":             change(func(l *cas.Located) { l.Key.NS = 0 }),
		"another namespace":     change(func(l *cas.Located) { l.Key.NS = cas.Records }),
		"encoding":              change(func(l *cas.Located) { l.Location.Encoding = 7 }),
		"another encoding":      change(func(l *cas.Located) { l.Location.Encoding = cas.Snappy }),
		"another name":          change(func(l *cas.Located) { l.Key.Hash[0]++ }),
		"wrong order":           appendFooter(nil, []cas.Located{honest[1], honest[0]}),
		"twice":                 appendFooter(nil, append(slices.Clone(honest), honest[1])),
		"a hundred thousand":    appendFooter(nil, slices.Repeat(honest, 50_000)),
		"one is not there":      appendFooter(nil, honest[1:]),
		"nothing":               appendFooter(nil, nil),
		"a count of 2^32 - 1":   counted(1<<32 - 1),
		"a count of none":       counted(0),
		"a count of one":        counted(1),
		"a count of a million":  counted(1_000_000),
		"no footer":             nil,
		"a trailer and no more": appendFooter(nil, nil)[:trailer-1],
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, Create(disk.OS, dir))
			id := cas.PackID{1}
			require.NoError(t, os.MkdirAll(filepath.Dir(packPath(dir, id)), 0o700))
			require.NoError(t, os.WriteFile(packPath(dir, id), append(slices.Clone(body), footer...), 0o600))
			index := &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}
			s := New(dir, index, Options{Places: 1 << 20})
			defer s.Close()
			taken := allocated(func() {
				report, err := VerifyPack(t.Context(), dir, id)
				require.NoError(t, err)
				require.NotEmpty(t, report.Problems)
				objects, err := Footer(dir, id)
				if err != nil {
					require.ErrorIs(t, err, cas.ErrCorrupt)
				}
				for _, o := range objects {
					index.at[o.Key] = o.Location
				}
			})
			require.Less(t, taken, int64(256<<20))
			for key := range index.at {
				got, err := s.Read(t.Context(), key, nil)
				if err != nil {
					require.ErrorIs(t, err, cas.ErrCorrupt)
					continue
				}
				require.Equal(t, key.Hash, cas.Data.Sum(got))
			}
		})
	}
}

// TestIndexThatLies: a place that no pack can have is damage, and takes no memory.
func TestIndexThatLies(t *testing.T) {
	s, index := newStore(t, Options{})
	o := cas.NewObject(cas.Files, cas.Data, []byte("content"))
	index.at[o.Key] = cas.Location{Pack: cas.PackID{1}, Stored: 1<<32 - 1, Plain: 1<<32 - 1, Kind: cas.Data}
	for _, encoding := range []cas.Encoding{cas.Raw, cas.Zstd, cas.Snappy, 77} {
		at := index.at[o.Key]
		at.Encoding = encoding
		index.at[o.Key] = at
		taken := allocated(func() {
			_, err := s.Read(t.Context(), o.Key, nil)
			require.ErrorIs(t, err, cas.ErrCorrupt)
		})
		require.Less(t, taken, int64(1<<20))
	}
}

// TestByHash: a record with a right checksum that lies about its object's name is read
// where checksums are enough, and refused where somebody asks for hashes.
func TestByHash(t *testing.T) {
	s, index := newStore(t, Options{})
	o := cas.NewObject(cas.Trees, cas.Data, []byte("directory"))
	id := cas.PackID{1}
	lie := record{key: o.Key, kind: o.Kind, plain: 9, payload: []byte("DIRECTORY")}.append(nil)
	b, offs := rawPack(lie)
	index.at[o.Key] = cas.Location{Pack: id, Offset: uint32(offs[0]), Stored: 9, Plain: 9, Kind: cas.Data}
	require.NoError(t, os.MkdirAll(filepath.Dir(packPath(index.dir, id)), 0o700))
	require.NoError(t, os.WriteFile(packPath(index.dir, id), b, 0o600))
	t.Cleanup(func() { require.NoError(t, os.Remove(packPath(index.dir, id))) }) // before the store is verified
	ctx := ByChecksum(t.Context())
	got, err := s.Read(ctx, o.Key, nil)
	require.NoError(t, err)
	require.Equal(t, "DIRECTORY", string(got))
	for _, ctx := range []context.Context{ByHash(ctx), ByHash(t.Context()), t.Context()} {
		_, err = s.Read(ctx, o.Key, nil)
		require.ErrorIs(t, err, cas.ErrCorrupt)
	}
}
