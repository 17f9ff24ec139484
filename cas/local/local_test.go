package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/internal/disk"
)

// memIndex is the smallest Index.
type memIndex struct {
	dir string
	mu  sync.Mutex
	at  map[cas.Key]cas.Location
}

func (m *memIndex) Locate(_ context.Context, keys []cas.Key) ([]cas.Location, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	locs := make([]cas.Location, len(keys))
	for i, k := range keys {
		locs[i] = m.at[k]
	}
	return locs, nil
}

func (m *memIndex) Have(ctx context.Context, keys []cas.Key) ([]bool, error) {
	locs, err := m.Locate(ctx, keys)
	have := make([]bool, len(keys))
	for i := range locs {
		have[i] = !locs[i].IsZero()
	}
	return have, err
}

func (m *memIndex) AddPack(_ context.Context, id cas.PackID) error {
	objects, err := New(m.dir, m, Options{}).Adopt(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objects {
		m.at[o.Key] = o.Location
	}
	return err
}

// newStore makes an empty store; at the end of the test every pack in it must
// be sound.
func newStore(t *testing.T, opt Options) (*Store, *memIndex) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Create(disk.OS, dir))
	index := &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}
	s := New(dir, index, opt)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		if !t.Failed() {
			verify(t, dir)
		}
	})
	return s, index
}

// verify reads every record of every pack and compares footers with scans.
func verify(t *testing.T, dir string) {
	t.Helper()
	for id, err := range Packs(dir) {
		require.NoError(t, err)
		report, err := VerifyPack(context.Background(), dir, id)
		require.NoError(t, err)
		require.Empty(t, report.Problems)
		listed, err := ReadFooter(dir, id)
		require.NoError(t, err)
		require.Equal(t, listed, report.Whole)
	}
}

func TestSuite(t *testing.T) {
	castest.Run(t, func(t *testing.T) cas.Store { s, _ := newStore(t, Options{}); return s })
	t.Run("CompressionOff", func(t *testing.T) {
		castest.Run(t, func(t *testing.T) cas.Store { s, _ := newStore(t, Options{Compression: Off}); return s })
	})
}

func TestCompression(t *testing.T) {
	small := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("some words "), 300))
	tiny := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("w"), minCompress-1))
	dust := cas.NewObject(cas.Files, cas.Data, castest.Noise(2, 3000))
	text := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("some words "), 30_000))
	noise := cas.NewObject(cas.Files, cas.Data, castest.Noise(1, 300_000))
	s, index := newStore(t, Options{})
	castest.Put(t, s, text, noise, small, tiny, dust)
	require.Equal(t, cas.Raw, index.at[tiny.Key].Encoding)
	require.Equal(t, cas.Raw, index.at[dust.Key].Encoding)
	require.Equal(t, cas.Snappy, index.at[small.Key].Encoding)
	require.Less(t, int(index.at[small.Key].Stored), len(small.Data)/10)
	require.Equal(t, cas.Zstd, index.at[text.Key].Encoding)
	require.Less(t, int(index.at[text.Key].Stored), len(text.Data)/10)
	require.Equal(t, cas.Raw, index.at[noise.Key].Encoding)

	off, index := newStore(t, Options{Compression: Off})
	castest.Put(t, off, text)
	require.Equal(t, cas.Raw, index.at[text.Key].Encoding)

	_, err := ParseCompression("best")
	require.ErrorContains(t, err, `"best"`)
}

// TestPayloadLies: a payload that tells of another length than its record is
// corrupt, and no memory is taken for what it claims.
func TestPayloadLies(t *testing.T) {
	o := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("some words "), 300))
	honest := s2.EncodeSnappy(nil, o.Data)
	huge := append(binary.AppendUvarint(nil, 1<<32-1), honest[2:]...)
	enc, err := newEncoder()
	require.NoError(t, err)
	for name, r := range map[string]record{
		"Longer":     {encoding: cas.Snappy, payload: huge, plain: uint32(len(o.Data))},
		"Shorter":    {encoding: cas.Snappy, payload: honest, plain: uint32(len(o.Data) + 1)},
		"CutOff":     {encoding: cas.Snappy, payload: honest[:len(honest)-1], plain: uint32(len(o.Data))},
		"Empty":      {encoding: cas.Snappy, plain: uint32(len(o.Data))},
		"LongZstd":   {encoding: cas.Zstd, payload: enc.EncodeAll(o.Data, nil), plain: uint32(len(o.Data) - 1)},
		"OtherBytes": {encoding: cas.Snappy, payload: s2.EncodeSnappy(nil, bytes.ToUpper(o.Data)), plain: uint32(len(o.Data))},
	} {
		t.Run(name, func(t *testing.T) {
			r.key, r.kind = o.Key, o.Kind
			_, err := r.decode(nil)
			require.ErrorIs(t, err, cas.ErrCorrupt)
		})
	}
	got, err := record{key: o.Key, kind: o.Kind, encoding: cas.Snappy, payload: honest, plain: uint32(len(o.Data))}.decode([]byte("before "))
	require.NoError(t, err)
	require.Equal(t, "before "+string(o.Data), string(got))
}

// Many packs are written at once, none is longer than its limit, and all
// footers agree with what a scan finds.
func TestPacksRotate(t *testing.T) {
	s, index := newStore(t, Options{Compression: Off})
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	for i := range 24 {
		require.NoError(t, w.Put(t.Context(), cas.NewObject(cas.Files, cas.Data, castest.Noise(uint64(i), 8<<20))))
	}
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, w.Close())
	packs, bytes, err := Size(index.dir)
	require.NoError(t, err)
	require.Equal(t, 4, packs, "7 records of 8 MiB fit into a pack of 64 MiB")
	require.Greater(t, bytes, int64(24*8<<20))
	left, err := os.ReadDir(filepath.Join(index.dir, tmpDir))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDamageIsFound(t *testing.T) {
	for _, opt := range []Options{{}, {Compression: Off}} {
		dir := t.TempDir()
		require.NoError(t, Create(disk.OS, dir))
		index := &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}
		s := New(dir, index, opt)
		o := cas.NewObject(cas.Files, cas.Data, bytes.Repeat([]byte("0123456789"), 200))
		other := cas.NewObject(cas.Files, cas.Data, []byte("another"))
		castest.Put(t, s, o, other)
		at := index.at[o.Key]
		path := packPath(dir, at.Pack)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := int(at.Offset); i < int(at.Offset)+recordHeader+int(at.Stored); i++ {
			inChecksum := i >= int(at.Offset)+60 && i < int(at.Offset)+64
			damaged := bytes.Clone(whole)
			damaged[i] ^= 0x40
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			got, err := s.Read(t.Context(), o.Key, nil)
			if inChecksum {
				require.NoError(t, err, "the hash proves the bytes")
				require.Equal(t, o.Data, got)
			} else {
				require.ErrorIs(t, err, cas.ErrCorrupt, "byte %d", i)
			}
			_, err = s.Read(ByChecksum(t.Context()), o.Key, nil)
			require.ErrorIs(t, err, cas.ErrCorrupt, "byte %d", i)
			report, err := VerifyPack(t.Context(), dir, at.Pack)
			require.NoError(t, err)
			require.NotEmpty(t, report.Problems, "byte %d", i)
			require.Len(t, report.Damaged, 1, "byte %d", i)
			require.Equal(t, o.Key, report.Damaged[0].Key)
			require.Len(t, report.Whole, 1, "byte %d", i)
		}
		require.NoError(t, os.WriteFile(path, whole[:int(at.Offset)+recordHeader+3], 0o600))
		_, err = s.Read(t.Context(), o.Key, nil)
		require.ErrorIs(t, err, cas.ErrCorrupt, "cut short")
		require.NoError(t, os.Remove(path))
		s.packs.Purge()
		_, err = s.Read(t.Context(), o.Key, nil)
		require.ErrorIs(t, err, cas.ErrNotFound)
		require.ErrorContains(t, err, at.Pack.String())
	}
}

// TestLongRawObject: one that is read to where it is wanted is proved like any
// other.
func TestLongRawObject(t *testing.T) {
	s, index := newStore(t, Options{})
	o := cas.NewObject(cas.Files, cas.Data, castest.Noise(5, longRaw+777))
	castest.Put(t, s, o)
	at := index.at[o.Key]
	require.Equal(t, cas.Raw, at.Encoding)
	path := packPath(index.dir, at.Pack)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, ctx := range []context.Context{t.Context(), ByChecksum(t.Context()), OnWait(t.Context(), func() {})} {
		got, err := s.Read(ctx, o.Key, []byte("before"))
		require.NoError(t, err)
		require.Equal(t, append([]byte("before"), o.Data...), got)
		for _, i := range []int{0, 5, 8, 21, 25, 30, 64, 65, 20_000, recordHeader + int(at.Stored) - 1} {
			damaged := bytes.Clone(whole)
			damaged[int(at.Offset)+i] ^= 0x10
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			got, err := s.Read(ctx, o.Key, nil)
			require.ErrorIs(t, err, cas.ErrCorrupt, "byte %d", i)
			require.Nil(t, got)
		}
		require.NoError(t, os.WriteFile(path, whole, 0o600))
	}
}

// A pack that was cut or lost its footer still yields its whole records.
func TestScanWithoutFooter(t *testing.T) {
	s, index := newStore(t, Options{})
	a, b := cas.NewObject(cas.Files, cas.Data, []byte("a")), cas.NewObject(cas.Files, cas.Data, castest.Noise(5, 5000))
	castest.Put(t, s, a, b)
	pack := index.at[a.Key].Pack
	path := packPath(index.dir, pack)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	objects, err := Footer(index.dir, pack)
	require.NoError(t, err)
	require.Len(t, objects, 2)

	require.NoError(t, os.WriteFile(path, whole[:len(whole)-5], 0o600))
	found, err := Footer(index.dir, pack)
	require.NoError(t, err)
	require.Equal(t, objects, found)
	require.NoError(t, os.WriteFile(path, whole[:int(index.at[b.Key].Offset)+70], 0o600))
	found, err = Footer(index.dir, pack)
	require.NoError(t, err)
	require.Equal(t, objects[:1], found)
	require.NoError(t, os.WriteFile(path, whole, 0o600))
}

// A reader finds an object that gc moved to another pack meanwhile.
func TestReadFollowsAMove(t *testing.T) {
	s, index := newStore(t, Options{})
	o := cas.NewObject(cas.Files, cas.Data, []byte("moved"))
	castest.Put(t, s, o)
	old := index.at[o.Key]
	moved := &movingIndex{memIndex: index, stale: old}
	delete(index.at, o.Key)
	castest.Put(t, s, o)
	require.NoError(t, os.Remove(packPath(index.dir, old.Pack)))
	got, err := New(index.dir, moved, Options{}).Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
	require.Equal(t, "moved", string(got))
}

// movingIndex answers its first question with a place that is gone.
type movingIndex struct {
	*memIndex
	stale cas.Location
	once  sync.Once
}

func (m *movingIndex) Locate(ctx context.Context, keys []cas.Key) (locs []cas.Location, err error) {
	m.once.Do(func() { locs = []cas.Location{m.stale} })
	if locs != nil {
		return locs, nil
	}
	return m.memIndex.Locate(ctx, keys)
}

// A file that is written is spared, one whose process was killed is swept.
func TestSweepSparesOpenFiles(t *testing.T) {
	_, index := newStore(t, Options{})
	f, err := CreateTemp(disk.OS, index.dir)
	require.NoError(t, err)
	require.NoError(t, Sweep(disk.OS, index.dir))
	require.FileExists(t, f.Name())
	require.NoError(t, f.Close())
	require.NoError(t, Sweep(disk.OS, index.dir))
	require.NoFileExists(t, f.Name())
}

func TestSweepSparesLivingWriters(t *testing.T) {
	s, index := newStore(t, Options{})
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	o := cas.NewObject(cas.Files, cas.Data, []byte("alive"))
	require.NoError(t, w.Put(t.Context(), o))
	dead := filepath.Join(index.dir, tmpDir, "dead.pack")
	require.NoError(t, os.WriteFile(dead, []byte("x"), 0o600))
	require.NoError(t, Sweep(disk.OS, index.dir))
	require.NoFileExists(t, dead)
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, w.Close())
	_, err = s.Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
}

// A full file system ends writes with ErrNoSpace before it is full, and reads
// go on.
func TestNoSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.NoError(t, Create(disk.OS, dir))
	index := &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}
	s := New(dir, index, Options{})
	defer s.Close()
	o := cas.NewObject(cas.Files, cas.Data, castest.Noise(1, 1<<20))
	castest.Put(t, s, o)

	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	for i := range 32 {
		if err = w.Put(t.Context(), cas.NewObject(cas.Files, cas.Data, castest.Noise(uint64(100+i), 1<<20))); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Flush(t.Context())
	}
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.ErrorIs(t, w.Flush(t.Context()), cas.ErrNoSpace, "a batch that lost bytes never flushes")
	require.NoError(t, w.Close())
	left, err := os.ReadDir(filepath.Join(dir, tmpDir))
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "ballast"), castest.Noise(2, 14<<20), 0o600))
	require.ErrorIs(t, CheckSpace(dir), cas.ErrNoSpace)
	_, err = s.createPack(false)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	_, err = s.Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "ballast")))
	castest.Put(t, s, cas.NewObject(cas.Files, cas.Data, []byte("room again")))
}

func FuzzParseRecord(f *testing.F) {
	o := cas.NewObject(cas.Files, cas.Data, []byte("seed"))
	f.Add(record{key: o.Key, kind: o.Kind, plain: 4, payload: o.Data}.append(nil))
	f.Add(record{key: o.Key, kind: o.Kind, plain: 4, encoding: cas.Snappy, payload: s2.EncodeSnappy(nil, o.Data)}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b, true)
		if err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
			return
		}
		require.Equal(t, b[:recordHeader+len(r.payload)], r.append(nil))
		if _, err := r.decode(nil); err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
		}
	})
}

func FuzzParseFooter(f *testing.F) {
	o := cas.Located{Key: cas.NewObject(cas.Files, cas.Data, nil).Key, Location: cas.Location{Kind: cas.Data, Offset: packHeader}}
	f.Add(appendFooter(nil, []cas.Located{o}))
	f.Add(appendFooter(nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < trailer {
			return
		}
		n, err := parseTrailer(b[len(b)-trailer:])
		if err != nil || n != int64(len(b)-trailer) {
			return
		}
		objects, err := parseFooter(b, cas.PackID{}, maxPack)
		if err == nil {
			require.Equal(t, b, appendFooter(nil, objects))
		}
	})
}
