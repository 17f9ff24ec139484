package indextest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/index"
)

// token makes a token of a letter.
func token(letter string) string { return strings.Repeat(letter, 32) }

// acquire asks for a lease of a minute in the first organization.
func (e *env) acquire(thread, token string) (index.Lease, error) {
	return e.ix.AcquireLease(e.Context(), index.AcquireLease{Org: orgs[0], Thread: thread, Token: token, Owner: "writer " + token[:1], TTL: time.Minute})
}

// leased publishes with a token.
func (e *env) leased(thread, id, parent, token string) error {
	_, err := e.ix.Publish(e.Context(), index.Publish{Org: orgs[0], Record: Store(e, e.ix, e.packs, Record(thread, id, parent)), ExpectedHead: parent, Lease: token})
	return err
}

func testLeases(e *env) {
	ctx := e.Context()
	_, err := e.ix.Lease(ctx, orgs[0], "t")
	require.ErrorIs(e, err, index.ErrNoWriter)
	first, err := e.acquire("t", token("a"))
	require.NoError(e, err)
	require.Positive(e, first.Fence)
	require.Equal(e, index.Lease{Thread: "t", Fence: first.Fence, Owner: "writer a", Expires: e.packs.Now().Add(time.Minute), TTL: time.Minute}, first)
	again, err := e.acquire("t", token("a"))
	require.NoError(e, err, "an answer may have been lost")
	require.Equal(e, first, again)
	_, err = e.acquire("t", token("b"))
	require.ErrorIs(e, err, index.ErrWriterConflict)
	require.ErrorContains(e, err, `thread "t" is leased to "writer a" until 2023-11-14T22:14:20Z`)
	require.Empty(e, e.threadIDs(orgs[0], index.Page{}), "a lease makes no thread")

	other, err := e.ix.AcquireLease(ctx, index.AcquireLease{Org: orgs[1], Thread: "t", Token: token("b"), TTL: time.Minute})
	require.NoError(e, err, "another organization's")
	require.Greater(e, other.Fence, first.Fence)

	e.packs.Advance(40 * time.Second)
	renewed, err := e.ix.RenewLease(ctx, orgs[0], "t", token("a"))
	require.NoError(e, err)
	want := first
	want.Expires = e.packs.Now().Add(time.Minute)
	require.Equal(e, want, renewed)
	_, err = e.ix.RenewLease(ctx, orgs[0], "t", token("b"))
	require.ErrorIs(e, err, index.ErrWriterLost)
	require.ErrorIs(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("b")), index.ErrWriterLost)
	require.ErrorIs(e, e.ix.ReleaseLease(ctx, orgs[0], "t", ""), index.ErrWriterLost)
	e.reopen()
	now, err := e.ix.Lease(ctx, orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, want, now, "also after it was opened again")

	require.NoError(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("a")))
	require.ErrorIs(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("a")), index.ErrWriterLost)
	_, err = e.ix.RenewLease(ctx, orgs[0], "t", token("a"))
	require.ErrorIs(e, err, index.ErrWriterLost)
	e.reopen()
	_, err = e.ix.Lease(ctx, orgs[0], "t")
	require.ErrorIs(e, err, index.ErrNoWriter)
	second, err := e.acquire("t", token("a"))
	require.NoError(e, err)
	require.Greater(e, second.Fence, other.Fence)
	_, err = e.ix.Lease(ctx, orgs[1], "t")
	require.NoError(e, err)

	for _, bad := range []index.AcquireLease{
		{Org: "", Thread: "x", Token: token("a"), TTL: time.Minute},
		{Org: "acme", Thread: "", Token: token("a"), TTL: time.Minute},
		{Org: "acme", Thread: "x\x00", Token: token("a"), TTL: time.Minute},
		{Org: "acme", Thread: "x", Token: "short", TTL: time.Minute},
		{Org: "acme", Thread: "x", Token: token("é"), TTL: time.Minute},
		{Org: "acme", Thread: "x", Token: strings.Repeat("x", index.MaxToken+1), TTL: time.Minute},
		{Org: "acme", Thread: "x", Token: token("a"), TTL: index.MinLease - 1},
		{Org: "acme", Thread: "x", Token: token("a"), TTL: index.MaxLease + 1},
		{Org: "acme", Thread: "x", Token: token("a"), TTL: time.Minute, Owner: strings.Repeat("x", index.MaxOwner+1)},
		{Org: "acme", Thread: "x", Token: token("a"), TTL: time.Minute, Owner: "\xff"},
	} {
		_, err := e.ix.AcquireLease(ctx, bad)
		require.ErrorIs(e, err, index.ErrInvalid, "%+v", bad)
	}
	_, err = e.ix.Lease(ctx, orgs[0], "x")
	require.ErrorIs(e, err, index.ErrNoWriter)
	longest := index.AcquireLease{Org: "acme", Thread: strings.Repeat("x", index.MaxID), Token: strings.Repeat("x", index.MaxToken), TTL: index.MaxLease, Owner: strings.Repeat("x", index.MaxOwner)}
	l, err := e.ix.AcquireLease(ctx, longest)
	require.NoError(e, err)
	require.Equal(e, longest.Owner, l.Owner)
}

func testLeasesExpire(e *env) {
	ctx := e.Context()
	first, err := e.acquire("t", token("a"))
	require.NoError(e, err)
	e.packs.Advance(time.Minute - 1)
	_, err = e.acquire("t", token("b"))
	require.ErrorIs(e, err, index.ErrWriterConflict)
	e.packs.Advance(1)
	_, err = e.ix.RenewLease(ctx, orgs[0], "t", token("a"))
	require.ErrorIs(e, err, index.ErrWriterLost)
	require.ErrorContains(e, err, "the lease ended at 2023-11-14T22:14:20Z")
	require.ErrorIs(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("a")), index.ErrWriterLost)
	require.ErrorIs(e, e.ix.CheckLease(ctx, orgs[0], "t", token("a")), index.ErrWriterLost)
	require.NoError(e, e.ix.CheckLease(ctx, orgs[0], "t", ""))
	_, err = e.ix.Lease(ctx, orgs[0], "t")
	require.ErrorIs(e, err, index.ErrNoWriter)
	require.ErrorIs(e, e.leased("t", "c1", "", token("a")), index.ErrWriterLost)
	require.NoError(e, e.leased("t", "c1", "", ""), "nobody has it")

	taken, err := e.acquire("t", token("b"))
	require.NoError(e, err)
	require.Greater(e, taken.Fence, first.Fence)
	require.ErrorIs(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("a")), index.ErrWriterLost)
	now, err := e.ix.Lease(ctx, orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, taken, now, "who lost it cannot end the next one's")
}

func testLeasedPublish(e *env) {
	ctx := e.Context()
	_, err := e.acquire("t", token("a"))
	require.NoError(e, err)
	before := Dump(e, e.ix, orgs...)
	require.ErrorIs(e, e.leased("t", "c1", "", ""), index.ErrWriterConflict)
	require.ErrorIs(e, e.leased("t", "c1", "", token("b")), index.ErrWriterLost)
	require.ErrorIs(e, e.ix.CheckLease(ctx, orgs[0], "t", ""), index.ErrWriterConflict)
	require.ErrorIs(e, e.ix.CheckLease(ctx, orgs[0], "t", token("b")), index.ErrWriterLost)
	require.NoError(e, e.ix.CheckLease(ctx, orgs[0], "t", token("a")))
	require.Equal(e, before, Dump(e, e.ix, orgs...))
	require.NoError(e, e.leased("u", "c0", "", ""), "another thread")
	require.ErrorIs(e, e.leased("u", "c9", "c0", token("a")), index.ErrWriterLost, "the lease of another thread")
	require.NoError(e, e.leased("t", "c1", "", token("a")))
	require.ErrorIs(e, e.leased("t", "c2", "", token("a")), index.ErrStaleHead)
	require.ErrorIs(e, e.leased("t", "c2", "", token("b")), index.ErrWriterLost, "before anything else")

	// What a lease is not about.
	_, err = e.ix.Rename(ctx, orgs[0], "c1", "named")
	require.NoError(e, err)
	require.NoError(e, e.ix.AddArtifact(ctx, orgs[0], "t", artifact("x")))
	require.NoError(e, e.ix.RemoveArtifact(ctx, orgs[0], "t", "x"))
	_, _, err = e.ix.Delete(ctx, orgs[0], "c1")
	require.NoError(e, err)

	require.NoError(e, e.ix.ReleaseLease(ctx, orgs[0], "t", token("a")))
	require.ErrorIs(e, e.leased("t", "c3", "", token("a")), index.ErrWriterLost)
	require.NoError(e, e.leased("t", "c3", "", ""))
}

func testLeasesOfDeleted(e *env) {
	ctx := e.Context()
	var last uint64
	for round := range 3 {
		l, err := e.acquire("t", token("a"))
		require.NoError(e, err)
		require.Greater(e, l.Fence, last)
		last = l.Fence
		require.NoError(e, e.leased("t", fmt.Sprint("c", round), "", token("a")))
		require.NoError(e, e.ix.DeleteThread(ctx, orgs[0], "t"))
		require.ErrorIs(e, e.leased("t", "x", "", token("a")), index.ErrWriterLost, "it must not make the thread anew")
		_, err = e.ix.Lease(ctx, orgs[0], "t")
		require.ErrorIs(e, err, index.ErrNoWriter)
		e.reopen()
	}
}

// leaseModel is what a few threads may be: it knows nothing of an engine.
type leaseModel struct {
	holder map[string]string // token, by thread
	until  map[string]time.Time
	head   map[string]string
	fence  uint64
}

func (m *leaseModel) live(thread string, now time.Time) string {
	if m.holder[thread] == "" || !now.Before(m.until[thread]) {
		return ""
	}
	return m.holder[thread]
}

// owned is the error that a token gets.
func (m *leaseModel) owned(thread, tok string, now time.Time) error {
	if m.live(thread, now) == tok {
		return nil
	}
	return index.ErrWriterLost
}

// testLeaseModel has several writers do anything in any order.
func testLeaseModel(e *env) {
	var runs int
	rapid.Check(e.T, func(rt *rapid.T) {
		runs++
		ctx, org := e.Context(), orgs[0]
		m := leaseModel{holder: map[string]string{}, until: map[string]time.Time{}, head: map[string]string{}}
		threads := []string{fmt.Sprint("t", runs), fmt.Sprint("u", runs)}
		want := func(want, got error, what string) {
			if want == nil {
				require.NoError(rt, got, what)
				return
			}
			require.ErrorIs(rt, got, want, what)
		}
		steps := rapid.IntRange(1, 25).Draw(rt, "steps")
		for step := range steps {
			th := rapid.SampledFrom(threads).Draw(rt, "thread")
			tok := token(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "writer"))
			now := e.packs.Now()
			what := fmt.Sprintf("step %d, %s", step, th)
			switch rapid.SampledFrom([]string{"acquire", "acquire", "renew", "release", "expire", "publish", "publish", "publish", "delete", "look"}).Draw(rt, "do") {
			case "acquire":
				l, err := e.acquire(th, tok)
				switch live := m.live(th, now); live {
				case "":
					require.NoError(rt, err, what)
					require.Greater(rt, l.Fence, m.fence, what)
					m.fence, m.holder[th], m.until[th] = l.Fence, tok, now.Add(time.Minute)
				case tok:
					require.NoError(rt, err, what)
					require.LessOrEqual(rt, l.Fence, m.fence, what)
				default:
					want(index.ErrWriterConflict, err, what)
				}
			case "renew":
				_, err := e.ix.RenewLease(ctx, org, th, tok)
				want(m.owned(th, tok, now), err, what)
				if err == nil {
					m.until[th] = now.Add(time.Minute)
				}
			case "release":
				err := e.ix.ReleaseLease(ctx, org, th, tok)
				want(m.owned(th, tok, now), err, what)
				if err == nil {
					delete(m.holder, th)
				}
			case "expire":
				e.packs.Advance(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second)
			case "publish":
				expected := m.owned(th, tok, now)
				if rapid.Bool().Draw(rt, "without") {
					tok, expected = "", nil
					if m.live(th, now) != "" {
						expected = index.ErrWriterConflict
					}
				}
				id := fmt.Sprintf("c-%d-%d", runs, step)
				err := e.leased(th, id, m.head[th], tok)
				want(expected, err, what)
				if err == nil {
					m.head[th] = id
				}
			case "delete":
				err := e.ix.DeleteThread(ctx, org, th)
				if err == nil {
					delete(m.holder, th)
				}
				require.Equal(rt, m.head[th] != "", err == nil, what)
				delete(m.head, th)
			case "look":
				l, err := e.ix.Lease(ctx, org, th)
				if tok := m.live(th, now); tok != "" {
					require.NoError(rt, err, what)
					require.Equal(rt, "writer "+tok[:1], l.Owner, what)
					require.Equal(rt, m.until[th], l.Expires, what)
				} else {
					want(index.ErrNoWriter, err, what)
				}
			}
		}
		for _, th := range threads {
			head := ""
			if t, err := e.ix.Thread(ctx, org, th); err == nil {
				head = t.Head
			}
			require.Equal(rt, m.head[th], head)
		}
	})
	NoFindings(e, e.ix)
}

// testLeaseRace has writers compete for one thread: each lease is one writer's.
func testLeaseRace(e *env) {
	const writers, rounds = 8, 5
	var mu sync.Mutex
	fences := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			tok := token(string(rune('a' + w)))
			for range rounds {
				l, err := e.acquire("t", tok)
				if err != nil {
					continue
				}
				mu.Lock()
				fences[l.Fence] += tok[:1]
				mu.Unlock()
				if err := e.ix.ReleaseLease(e.Context(), orgs[0], "t", tok); err != nil {
					e.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.NotEmpty(e, fences)
	for _, who := range slices.Collect(maps.Values(fences)) {
		require.Len(e, who, 1, "a fence of two writers")
	}
}
