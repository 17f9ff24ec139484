package indextest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

func testThreads(e *env) {
	for i := range 5 {
		e.publish(fmt.Sprintf("t%d", i), fmt.Sprintf("c%d", i), "")
	}
	e.publish("t1", "later", "c1")
	want := []string{"t1", "t4", "t3", "t2", "t0"}
	require.Equal(e, want, e.threadIDs("acme", index.Page{}))
	require.Equal(e, want[:2], e.threadIDs("acme", index.Page{Limit: 2}))
	require.Equal(e, want[2:4], e.threadIDs("acme", index.Page{Limit: 2, Before: "t4"}))
	require.Equal(e, want[1:], e.threadIDs("acme", index.Page{Before: "t1"}))
	require.Empty(e, e.threadIDs("acme", index.Page{Before: "t0"}))
	for _, err := range e.ix.Threads(e.Context(), "acme", index.Page{Before: "none"}) {
		require.ErrorIs(e, err, index.ErrThreadNotFound)
	}
}

func testCheckpoints(e *env) {
	parent := ""
	var want []string
	for i := range 300 { // more than a byte can count
		id := fmt.Sprintf("c%d", i)
		e.publish("t", id, parent)
		parent, want = id, append([]string{id}, want...)
	}
	e.publish("other", "o", "")
	require.Equal(e, want, e.checkpointIDs("t", index.Page{}))
	var paged []string
	for p := (index.Page{Limit: 7}); ; p.Before = paged[len(paged)-1] {
		ids := e.checkpointIDs("t", p)
		if len(ids) == 0 {
			break
		}
		paged = append(paged, ids...)
	}
	require.Equal(e, want, paged)
	for _, before := range []string{"none", "o"} {
		errs := 0
		for _, err := range e.ix.Checkpoints(e.Context(), "acme", "t", index.Page{Before: before}) {
			require.ErrorIs(e, err, index.ErrCheckpointNotFound)
			errs++
		}
		require.Equal(e, 1, errs)
	}
	for range e.ix.Checkpoints(e.Context(), "acme", "t", index.Page{}) {
		break // a consumer may stop
	}
}

func testListWhileWriting(e *env) {
	e.publish("t", "c1", "")
	e.publish("u", "d1", "")
	var seen []string
	for th, err := range e.ix.Threads(e.Context(), "acme", index.Page{}) {
		require.NoError(e, err)
		if len(seen) == 0 { // would move t to the front, and add one
			e.publish("t", "c2", "c1")
			e.publish("v", "e1", "")
		}
		seen = append(seen, th.ID)
	}
	require.Equal(e, []string{"u", "t"}, seen)
	require.Equal(e, []string{"v", "t", "u"}, e.threadIDs("acme", index.Page{}))

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				for th, err := range e.ix.Threads(e.Context(), "acme", index.Page{}) {
					if err != nil {
						e.Error(err)
						return
					}
					n := 0
					for _, err := range e.ix.Checkpoints(e.Context(), "acme", th.ID, index.Page{}) {
						if err != nil {
							e.Error(err)
							return
						}
						n++
					}
					if n < th.Checkpoints {
						e.Errorf("thread %s: %d checkpoints listed, it had %d", th.ID, n, th.Checkpoints)
					}
				}
			}
		})
	}
	parent := "c2"
	for i := range 20 {
		id := fmt.Sprintf("w%d", i)
		e.publish("t", id, parent)
		parent = id
	}
	wg.Wait()
}

func testByPrefix(e *env) {
	ids := []string{"2026-01-01-abc123", "2026-01-02-abd", "abc", "abc-2026", "trailing-", "a--b", "zz/abc"}
	parent := ""
	for _, id := range ids {
		e.publish("t", id, parent)
		parent = id
	}
	tests := []struct {
		prefix string
		limit  int
		want   []string
	}{
		{"abc", 0, []string{"2026-01-01-abc123", "abc", "abc-2026"}},
		{"abc1", 0, []string{"2026-01-01-abc123"}},
		{"2026", 0, []string{"2026-01-01-abc123", "2026-01-02-abd", "abc-2026"}},
		{"2026-01-02-abd", 0, []string{"2026-01-02-abd"}},
		{"01", 0, nil},
		{"trailing-", 0, []string{"trailing-"}},
		{"b", 0, []string{"a--b"}},
		{"-", 0, nil},
		{"abc\x00", 0, nil},
		{"nothing", 0, nil},
		{strings.Repeat("a", 1<<17), 0, nil},
	}
	for _, test := range tests {
		found, err := e.ix.ByPrefix(e.Context(), "acme", test.prefix, test.limit)
		require.NoError(e, err)
		var got []string
		for _, cp := range found {
			got = append(got, cp.ID)
		}
		require.Equal(e, test.want, got, "%.40q", test.prefix)
	}
	found, err := e.ix.ByPrefix(e.Context(), "acme", "abc", 2)
	require.NoError(e, err)
	require.Len(e, found, 2)
	found, err = e.ix.ByPrefix(e.Context(), "acme", "", 0)
	require.NoError(e, err)
	require.Len(e, found, len(ids))
}

func testNotFound(e *env) {
	ctx := e.Context()
	e.publish("thread", "checkpoint", "")
	long := strings.Repeat("t", 1<<17)
	for _, id := range []string{"", "threa", "thread1", "checkpoint", long} {
		_, err := e.ix.Thread(ctx, "acme", id)
		require.ErrorIs(e, err, index.ErrThreadNotFound)
		_, err = e.ix.Named(ctx, "acme", id, "n")
		require.ErrorIs(e, err, index.ErrThreadNotFound)
		errs := 0
		for _, err := range e.ix.Checkpoints(ctx, "acme", id, index.Page{}) {
			require.ErrorIs(e, err, index.ErrThreadNotFound)
			errs++
		}
		require.Equal(e, 1, errs)
	}
	for _, id := range []string{"", "checkpoin", "checkpoint1", "thread", long} {
		_, err := e.ix.Checkpoint(ctx, "acme", id)
		require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	}
	require.Empty(e, e.threadIDs(long, index.Page{}))
}

func testLocations(e *env) {
	ctx := e.Context()
	const n = 5000 // more than one of an engine's transactions
	objects := make([]index.Located, n)
	keys := make([]cas.Key, 0, n)
	for i := range objects {
		ns := cas.Files + cas.Namespace(i%2)
		objects[i] = Place(cas.NewObject(ns, cas.Data, fmt.Append(nil, i/2)).Key, i) // equal hashes in two namespaces
		keys = append(keys, objects[i].Key)
	}
	require.NoError(e, e.ix.AddLocations(ctx, objects))
	require.NoError(e, e.ix.AddLocations(ctx, nil))
	locs, err := e.ix.Locate(ctx, keys)
	require.NoError(e, err)
	for i, l := range locs {
		require.Equal(e, objects[i].Location, l)
	}
	again := Place(keys[7], n+1)
	fresh := Place(cas.Key{NS: cas.Trees, Hash: keys[7].Hash}, n+2)
	require.NoError(e, e.ix.AddLocations(ctx, []index.Located{again, fresh}))
	locs, err = e.ix.Locate(ctx, []cas.Key{keys[7], fresh.Key, {NS: cas.Records, Hash: keys[7].Hash}, {}, keys[7]})
	require.NoError(e, err)
	require.Equal(e, []cas.Location{objects[7].Location, fresh.Location, {}, {}, objects[7].Location}, locs)
	locs, err = e.ix.Locate(ctx, nil)
	require.NoError(e, err)
	require.Empty(e, locs)
	require.ErrorIs(e, e.ix.AddLocations(ctx, []index.Located{{Key: keys[0]}}), index.ErrInvalid)

	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			key := cas.NewObject(cas.Files, cas.Data, []byte("contended")).Key
			if err := e.ix.AddLocations(ctx, []index.Located{Place(key, w)}); err != nil {
				e.Error(err)
			}
			if _, err := e.ix.Locate(ctx, keys[:100]); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
}

func testContext(e *env) {
	hash := Store(e, e.ix, e.packs, Record("t", "c1", ""))
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, err := e.ix.Publish(ctx, index.Publish{Org: "acme", Record: hash})
	require.ErrorIs(e, err, context.Canceled)
	_, err = e.ix.Locate(ctx, nil)
	require.ErrorIs(e, err, context.Canceled)
	for _, err := range e.ix.Threads(ctx, "acme", index.Page{}) {
		require.ErrorIs(e, err, context.Canceled)
	}
	require.Empty(e, e.threadIDs("acme", index.Page{}))
}

func testClose(e *env) {
	e.publish("t", "c1", "")
	require.NoError(e, e.ix.Close())
	require.NoError(e, e.ix.Close())
	_, err := e.ix.Thread(e.Context(), "acme", "t")
	require.ErrorIs(e, err, index.ErrClosed)
	_, err = e.ix.Locate(e.Context(), nil)
	require.ErrorIs(e, err, index.ErrClosed)
	require.ErrorIs(e, e.ix.AddLocations(e.Context(), nil), index.ErrClosed)
	e.ix, err = e.open(e.Context())
	require.NoError(e, err)
	e.publish("t", "c2", "c1")
}
