package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

const benchObjects = 300_000

// packsOf yields n locations, 2,000 to a pack.
func packsOf(n int) func(context.Context) iter.Seq2[[]index.Located, error] {
	return func(context.Context) iter.Seq2[[]index.Located, error] {
		return func(yield func([]index.Located, error) bool) {
			for i := 0; i < n; {
				objects := make([]index.Located, 0, 2000)
				for ; i < n && len(objects) < cap(objects); i++ {
					objects = append(objects, indextest.Place(benchKey(i), i))
				}
				if !yield(objects, nil) {
					return
				}
			}
		}
	}
}

func benchKey(i int) cas.Key {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(i))
	return cas.NewObject(cas.Files, cas.Data, b[:]).Key
}

// benchStore makes a closed index of n locations.
func benchStore(b *testing.B, n int) (dir string, opt Options) {
	dir = b.TempDir()
	opt = testOptions(dir, indextest.NewPacks())
	opt.Packs = packsOf(n)
	ix, err := Open(b.Context(), filepath.Join(dir, "index"), opt)
	require.NoError(b, err)
	require.NoError(b, ix.Close())
	return filepath.Join(dir, "index"), opt
}

func BenchmarkOpenClose(b *testing.B) {
	for name, n := range map[string]int{"empty": 0, "300k": benchObjects} {
		dir, opt := benchStore(b, n)
		b.Run(name+"/read", func(b *testing.B) {
			for b.Loop() {
				ix, err := Open(b.Context(), dir, opt)
				require.NoError(b, err)
				_, err = ix.Locate(b.Context(), []cas.Key{benchKey(7)})
				require.NoError(b, err)
				require.NoError(b, ix.Close())
			}
		})
		b.Run(name+"/write", func(b *testing.B) {
			i := benchObjects
			for b.Loop() {
				ix, err := Open(b.Context(), dir, opt)
				require.NoError(b, err)
				i++
				require.NoError(b, ix.AddLocations(b.Context(), []index.Located{indextest.Place(benchKey(i), i)}))
				require.NoError(b, ix.Close())
			}
		})
	}
}

func BenchmarkRebuild300k(b *testing.B) {
	dir, opt := benchStore(b, benchObjects)
	opt.Rebuild = true
	for b.Loop() {
		ix, err := Open(b.Context(), dir, opt)
		require.NoError(b, err)
		require.NoError(b, ix.Close())
	}
	b.ReportMetric(rss(b), "RSS-MB")
	var size int64
	entries, err := os.ReadDir(dir)
	require.NoError(b, err)
	for _, e := range entries {
		st, err := e.Info()
		require.NoError(b, err)
		size += st.Size()
	}
	b.ReportMetric(float64(size)/1e6, "disk-MB")
}

func BenchmarkLocate300k(b *testing.B) {
	dir, opt := benchStore(b, benchObjects)
	ix, err := Open(b.Context(), dir, opt)
	require.NoError(b, err)
	defer func() { _ = ix.Close() }()
	keys := make([]cas.Key, benchObjects)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	sorted := append([]cas.Key(nil), keys...)
	for i := 0; i < len(sorted); i += 10_000 {
		slices.SortFunc(sorted[i:i+10_000], func(a, b cas.Key) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	}
	absent := make([]cas.Key, 10_000)
	for i := range absent {
		absent[i] = benchKey(i + benchObjects)
	}
	for name, run := range map[string]struct {
		keys  []cas.Key
		batch int
	}{
		"single": {keys, 1}, "batch 256": {keys, 256}, "batch 10000": {keys, 10_000}, "absent 10000": {absent, 10_000},
		"sorted 10000": {sorted, 10_000},
	} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				at := n % (len(run.keys) / run.batch * run.batch)
				_, err := ix.Locate(b.Context(), run.keys[at:at+run.batch])
				require.NoError(b, err)
				n += run.batch
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/key")
			b.ReportMetric(rss(b), "RSS-MB")
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	dir := b.TempDir()
	packs := indextest.NewPacks()
	ix, err := Open(b.Context(), filepath.Join(dir, "index"), testOptions(dir, packs))
	require.NoError(b, err)
	defer func() { _ = ix.Close() }()
	parent := ""
	for i := 0; b.Loop(); i++ {
		id := "c-" + benchKey(i).Hash.String()[:12]
		_, err := indextest.Publish(b, ix, packs, "acme", "", indextest.Record("t", id, parent))
		require.NoError(b, err)
		parent = id
	}
}

func BenchmarkList2000(b *testing.B) {
	dir := b.TempDir()
	packs := indextest.NewPacks()
	ix, err := Open(b.Context(), filepath.Join(dir, "index"), testOptions(dir, packs))
	require.NoError(b, err)
	defer func() { _ = ix.Close() }()
	parent := ""
	for i := range 2000 {
		id := "c-" + benchKey(i).Hash.String()[:12]
		_, err := indextest.Publish(b, ix, packs, "acme", "", indextest.Record("t", id, parent))
		require.NoError(b, err)
		parent = id
	}
	for b.Loop() {
		n := 0
		for _, err := range ix.Checkpoints(b.Context(), "acme", "t", index.Page{}) {
			require.NoError(b, err)
			n++
		}
		require.Equal(b, 2000, n)
	}
}

// rss returns the process's resident memory in MB, mapped files included.
func rss(b *testing.B) float64 {
	runtime.GC()
	data, err := os.ReadFile("/proc/self/statm")
	require.NoError(b, err)
	pages := 0.0
	for _, c := range strings.Fields(string(data))[1] {
		pages = pages*10 + float64(c-'0')
	}
	return pages * float64(os.Getpagesize()) / 1e6
}

func BenchmarkCheck300k(b *testing.B) {
	dir, opt := benchStore(b, benchObjects)
	ix, err := Open(b.Context(), dir, opt)
	require.NoError(b, err)
	defer func() { _ = ix.Close() }()
	for b.Loop() {
		for problem, err := range ix.Check(b.Context()) {
			require.NoError(b, err)
			require.Empty(b, problem)
		}
	}
}
