package indextest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

func testPublish(e *env) {
	rec := Record("t", "c1", "")
	rec.Message, rec.Labels = "first", map[string]string{"k": "v"}
	hash := Store(e, e.ix, e.packs, rec)
	cp, err := e.ix.Publish(e.Context(), index.Publish{Org: "acme", Record: hash, Name: "one"})
	require.NoError(e, err)
	require.Equal(e, index.Checkpoint{Record: rec, RecordHash: hash, Seq: cp.Seq, Name: "one", Status: index.Ready}, cp)
	got, err := e.ix.Checkpoint(e.Context(), "acme", "c1")
	require.NoError(e, err)
	require.Equal(e, cp, got)

	second := Record("t", "c2", "c1")
	second.Created -= int64(time.Hour) // clocks go wrong: order is by publish, not by time
	require.NoError(e, e.try("", second))
	th, err := e.ix.Thread(e.Context(), "acme", "t")
	require.NoError(e, err)
	require.False(e, th.Created.IsZero())
	require.False(e, th.Updated.Before(th.Created))
	th.Created, th.Updated = time.Time{}, time.Time{}
	require.Equal(e, index.Thread{ID: "t", Head: "c2", Checkpoints: 2, NewBytes: 20}, th)
	next, err := e.ix.Checkpoint(e.Context(), "acme", "c2")
	require.NoError(e, err)
	require.Greater(e, next.Seq, cp.Seq)
	require.Equal(e, []string{"c2", "c1"}, e.checkpointIDs("t", index.Page{}))
}

func testRefusals(e *env) {
	e.publish("t", "c1", "")
	before := Dump(e, e.ix, orgs...)
	raw := e.packs.Put([]byte("no record"))
	require.NoError(e, e.ix.AddLocations(e.Context(), []index.Located{raw}))
	good := Store(e, e.ix, e.packs, Record("t", "c2", "c1"))
	for _, p := range []index.Publish{
		{Org: "acme", Record: raw.Key.Hash},
		{Org: "acme", Record: good, ExpectedHead: ""}, // its parent is c1
		{Org: "acme", Record: good, ExpectedHead: "c0"},
		{Org: "", Record: good, ExpectedHead: "c1"},
		{Org: "a\x00b", Record: good, ExpectedHead: "c1"},
		{Org: "acme", Record: good, ExpectedHead: "c1", Name: "latest"},
		{Org: "acme", Record: good, ExpectedHead: "c1", Name: "a\nb"},
		{Org: "acme", Record: good, ExpectedHead: "c1", Name: strings.Repeat("é", 256)},
	} {
		_, err := e.ix.Publish(e.Context(), p)
		require.ErrorIs(e, err, index.ErrInvalid, "%+v", p)
	}
	require.Equal(e, before, Dump(e, e.ix, orgs...))
	_, err := e.ix.Publish(e.Context(), index.Publish{Org: "acme", Record: good, ExpectedHead: "c1", Name: strings.Repeat("é", 255)})
	require.NoError(e, err)
}

func testRecordMissing(e *env) {
	_, err := e.ix.Publish(e.Context(), index.Publish{Org: "acme", Record: cas.Data.Sum([]byte("nowhere"))})
	require.ErrorIs(e, err, cas.ErrNotFound)
	lost := Store(e, e.ix, e.packs, Record("t", "c1", ""))
	e.packs.Lose(lost)
	_, err = e.ix.Publish(e.Context(), index.Publish{Org: "acme", Record: lost})
	require.ErrorIs(e, err, cas.ErrNotFound)
	require.Empty(e, e.threadIDs("acme", index.Page{}))
}

func testHeads(e *env) {
	require.ErrorIs(e, e.try("", Record("t", "x", "c0")), index.ErrStaleHead, "the thread is new")
	e.publish("t", "c1", "")
	require.ErrorIs(e, e.try("", Record("t", "x", "")), index.ErrStaleHead)
	e.publish("t", "c2", "c1")
	require.ErrorIs(e, e.try("", Record("t", "x", "c1")), index.ErrStaleHead)
	e.publish("u", "c3", "")
	require.ErrorIs(e, e.try("", Record("t", "x", "c3")), index.ErrStaleHead, "another thread's head")
	_, err := e.ix.Checkpoint(e.Context(), "acme", "x")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	e.publish("t", "x", "c2") // what failed can be tried again
}

func testConcurrent(e *env) {
	const rounds, writers = 4, 16
	head := ""
	for round := range rounds {
		hashes := make([]cas.Hash, writers)
		for i := range hashes {
			hashes[i] = Store(e, e.ix, e.packs, Record("t", fmt.Sprintf("c-%d-%d", round, i), head))
		}
		errs := make([]error, writers)
		ids := make([]string, writers)
		var wg sync.WaitGroup
		for i := range hashes {
			wg.Go(func() {
				cp, err := e.ix.Publish(e.Context(), index.Publish{Org: "acme", Record: hashes[i], ExpectedHead: head})
				ids[i], errs[i] = cp.ID, err
			})
		}
		wg.Wait()
		winner := ""
		for i, err := range errs {
			if err == nil {
				require.Empty(e, winner, "two publishers won")
				winner = ids[i]
				continue
			}
			require.ErrorIs(e, err, index.ErrStaleHead)
		}
		require.NotEmpty(e, winner, "nobody won")
		head = winner
	}
	th, err := e.ix.Thread(e.Context(), "acme", "t")
	require.NoError(e, err)
	require.Equal(e, head, th.Head)
	require.Equal(e, rounds, th.Checkpoints)
}

func testDuplicateIDs(e *env) {
	e.publish("t", "c1", "")
	require.ErrorIs(e, e.try("", Record("t", "c1", "")), index.ErrDuplicateID)
	require.ErrorIs(e, e.try("", Record("u", "c1", "")), index.ErrDuplicateID, "in another thread")
	_, err := e.ix.Thread(e.Context(), "acme", "u")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
}

func testNames(e *env) {
	require.NoError(e, e.try("good", Record("t", "c1", "")))
	require.ErrorIs(e, e.try("good", Record("t", "c2", "c1")), index.ErrDuplicateName)
	require.NoError(e, e.try("good ", Record("t", "c2", "c1")))
	require.NoError(e, e.try("good", Record("u", "c3", "")), "another thread's names are its own")
	for name, id := range map[string]string{"good": "c1", "good ": "c2"} {
		cp, err := e.ix.Named(e.Context(), "acme", "t", name)
		require.NoError(e, err)
		require.Equal(e, id, cp.ID)
		require.Equal(e, name, cp.Name)
	}
	_, err := e.ix.Named(e.Context(), "acme", "t", "goo")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	_, err = e.ix.Named(e.Context(), "acme", "v", "good")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
}

// unusual ids, several of them prefixes of others.
func unusual() []string {
	return []string{
		"a", "a/", "a/b", "//", "..", ".", " ", "a b", "-", "--", "a-", "%2F", "日本", "👩‍👩‍👧", "é", "e\u0301", "\u00ff",
		strings.Repeat("x", index.MaxID), strings.Repeat("x", index.MaxID-1), strings.Repeat("👩", index.MaxID/4),
	}
}

func testUnusualIDs(e *env) {
	threads := append(unusual(), "a\n", "a\x01", "\x7f")
	for i, th := range threads {
		e.publish(th, fmt.Sprintf("n%d", i), "")
	}
	for i, th := range threads {
		e.publish(th, fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", i))
		require.Equal(e, []string{fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", i)}, e.checkpointIDs(th, index.Page{}))
	}
	require.ElementsMatch(e, threads, e.threadIDs("acme", index.Page{}))
	parent := ""
	var want []string
	for _, id := range unusual() {
		require.NoError(e, e.try(cutName(id), Record("checkpoints", id, parent)))
		cp, err := e.ix.Checkpoint(e.Context(), "acme", id)
		require.NoError(e, err)
		require.Equal(e, id, cp.ID)
		parent, want = id, append([]string{id}, want...)
	}
	require.Equal(e, want, e.checkpointIDs("checkpoints", index.Page{}))
}

// cutName makes a legal name of an id; the two longest would be the same.
func cutName(id string) string {
	r := []rune(id)
	return fmt.Sprintf("%d%s", len(id), string(r[:min(len(r), 200)]))
}

func testOrgs(e *env) {
	for _, org := range orgs {
		for _, id := range []string{"c", "x-c"} {
			rec := Record("t"+id, id, "")
			rec.Message = org
			_, err := Publish(e, e.ix, e.packs, org, "n", rec)
			require.NoError(e, err)
		}
	}
	for _, org := range orgs {
		require.Equal(e, []string{"tx-c", "tc"}, e.threadIDs(org, index.Page{}))
		cp, err := e.ix.Checkpoint(e.Context(), org, "c")
		require.NoError(e, err)
		require.Equal(e, org, cp.Message)
		cp, err = e.ix.Named(e.Context(), org, "tc", "n")
		require.NoError(e, err)
		require.Equal(e, org, cp.Message)
		found, err := e.ix.ByPrefix(e.Context(), org, "c", 0)
		require.NoError(e, err)
		require.Len(e, found, 2)
		for _, cp := range found {
			require.Equal(e, org, cp.Message)
		}
	}
	require.Empty(e, e.threadIDs("acm", index.Page{}))
	_, err := e.ix.Checkpoint(e.Context(), "acm", "c")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
}
