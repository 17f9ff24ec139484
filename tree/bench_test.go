package tree

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkBuild(b *testing.B) {
	es := flat(10_000, 1)
	for b.Loop() {
		store(b, newMemory(), es)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/entry")
}

func BenchmarkDecode(b *testing.B) {
	_, objs := store(b, newMemory(), flat(maxWhole, 1))
	data := string(objs[0].Data)
	for b.Loop() {
		_, err := decodeObject(data)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/maxWhole, "ns/entry")
}

func benchmarkEntries(b *testing.B, cache int64) {
	src := newMemory()
	root, _ := store(b, src, flat(10_000, 1))
	r := NewReader(src, cache)
	for b.Loop() {
		d, err := r.Open(context.Background(), root.Hash)
		require.NoError(b, err)
		for _, err := range d.Entries(context.Background(), 0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/entry")
}

func BenchmarkEntriesCold(b *testing.B)   { benchmarkEntries(b, 0) }
func BenchmarkEntriesCached(b *testing.B) { benchmarkEntries(b, 64<<20) }

func BenchmarkLookup(b *testing.B) {
	src := newMemory()
	es := flat(10_000, 1)
	root, _ := store(b, src, es)
	d, err := NewReader(src, 64<<20).Open(context.Background(), root.Hash)
	require.NoError(b, err)
	i := 0
	for b.Loop() {
		i = (i + 4567) % len(es)
		if _, err := d.Lookup(context.Background(), es[i].Name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDiff compares two directories of 43,009 entries, one of which
// changed.
func BenchmarkDiff(b *testing.B) {
	src := newMemory()
	es := flat(43_009, 1)
	old, _ := store(b, src, es)
	es[20_000].Hash = content("changed")
	changed, _ := store(b, src, es)
	r := NewReader(src, 0)
	for b.Loop() {
		require.Len(b, diffLines(b, r, old.Hash, changed.Hash, DiffOptions{}), 1)
	}
}
