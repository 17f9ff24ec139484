package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/internal/disk"
)

// leave has a writer with [Options.Keep] put objects and end, and returns the pack that it
// left.
func leave(t *testing.T, s *Store, dir string, objs ...cas.Object) string {
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), objs...))
	require.NoError(t, w.Close())
	left, err := filepath.Glob(filepath.Join(dir, tmpDir, keptPrefix+"*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	return left[0]
}

// TestSalvage: of a pack that was cut off or damaged anywhere all records before that are
// taken over, and nothing else.
func TestSalvage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "store-")
		require.NoError(t, err)
		require.NoError(t, Create(disk.OS, dir))
		index := &memIndex{dir: dir, at: map[cas.Key]cas.Location{}}
		s := New(dir, index, Options{Keep: true})
		defer s.Close()
		var objs []cas.Object
		for i := range rapid.IntRange(1, 5).Draw(rt, "objects") {
			data := castest.Noise(uint64(i), rapid.SampledFrom([]int{0, 10, 3000, 100_000}).Draw(rt, "size"))
			objs = append(objs, cas.NewObject(cas.Files, cas.Data, append(data, byte(i))))
		}
		path := leave(t, s, dir, objs...)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		ends := []int{packHeader}
		for off := packHeader; off < len(data); {
			r, err := parseRecord(data[off:], true)
			require.NoError(t, err)
			off += recordHeader + len(r.payload)
			ends = append(ends, off)
		}
		require.Len(t, ends, len(objs)+1, "what Put returned for is there")
		at := rapid.IntRange(0, len(data)).Draw(rt, "at")
		if rapid.Bool().Draw(rt, "damaged") && at < len(data) {
			data[at] ^= 1
		} else {
			data = data[:at]
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
		whole := 0
		for whole < len(objs) && at >= ends[whole+1] && at >= packHeader {
			whole++
		}

		require.NoError(t, Sweep(disk.OS, dir))
		require.FileExists(t, path)
		sum, err := s.Salvage(t.Context())
		require.NoError(t, err)
		require.Equal(t, whole, sum.Objects)
		require.NoFileExists(t, path)
		for i, o := range objs {
			got, err := s.Read(t.Context(), o.Key, nil)
			if i >= whole {
				require.ErrorIs(t, err, cas.ErrNotFound)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, o.Data, got)
		}
		if whole > 0 {
			require.Equal(t, Salvaged{Packs: 1, Objects: whole, Bytes: int64(ends[whole] - packHeader)}, sum)
			report, err := VerifyPack(t.Context(), dir, index.at[objs[0].Key].Pack)
			require.NoError(t, err)
			require.Empty(t, report.Problems)
		}
		again, err := s.Salvage(t.Context())
		require.NoError(t, err)
		require.Zero(t, again)
	})
}

// TestSalvageLeavesOthers: not what a living writer has, nor what others put there.
func TestSalvageLeavesOthers(t *testing.T) {
	s, index := newStore(t, Options{Keep: true})
	w, err := s.NewWriter(t.Context())
	require.NoError(t, err)
	o := cas.NewObject(cas.Files, cas.Data, []byte("alive"))
	require.NoError(t, w.Put(t.Context(), o))
	stray := filepath.Join(index.dir, tmpDir, keptPrefix+"stray")
	require.NoError(t, os.WriteFile(stray, []byte("x"), 0o600))
	sum, err := s.Salvage(t.Context())
	require.NoError(t, err)
	require.Zero(t, sum)
	require.NoError(t, SweepAll(disk.OS, index.dir))
	require.NoFileExists(t, stray)
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, w.Close())
	_, err = s.Read(t.Context(), o.Key, nil)
	require.NoError(t, err)
}

// TestKeptPacksGo: after some days, or when everything is swept.
func TestKeptPacksGo(t *testing.T) {
	for name, sweep := range map[string]func(dir, path string) error{
		"some days": func(dir, path string) error {
			old := time.Now().Add(-keptFor - time.Hour)
			if err := os.Chtimes(path, old, old); err != nil {
				return err
			}
			return Sweep(disk.OS, dir)
		},
		"all": func(dir, _ string) error { return SweepAll(disk.OS, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			s, index := newStore(t, Options{Keep: true})
			path := leave(t, s, index.dir, cas.NewObject(cas.Files, cas.Data, []byte("left")))
			require.NoError(t, Sweep(disk.OS, index.dir))
			require.FileExists(t, path)
			require.NoError(t, sweep(index.dir, path))
			require.NoFileExists(t, path)
		})
	}
}

// TestSalvageTwice: one that was cut off when its footer was written, or before it was
// handed over.
func TestSalvageTwice(t *testing.T) {
	s, index := newStore(t, Options{Keep: true})
	o := cas.NewObject(cas.Files, cas.Data, []byte("left"))
	path := leave(t, s, index.dir, o)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	id, err := cas.ParsePackID(filepath.Base(path)[len(keptPrefix) : len(filepath.Base(path))-len(packSuffix)])
	require.NoError(t, err)
	located, _, err := wholeRecords(mustOpen(t, path), id)
	require.NoError(t, err)
	whole := appendFooter(data, located)
	for cut := len(data); cut <= len(whole); cut += 7 {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		sum, err := s.Salvage(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, sum.Objects, fmt.Sprint(cut))
		require.NoError(t, s.RemovePack(id))
		delete(index.at, o.Key)
	}
}

func mustOpen(t *testing.T, path string) *os.File {
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
