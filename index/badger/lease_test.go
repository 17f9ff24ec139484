package badger

import (
	"os"
	"testing"
	"time"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

const leaseToken = "0123456789abcdef0123456789abcdef"

// acquire takes the lease of a thread for a minute.
func (s *store) acquire(thread, owner string) index.Lease {
	s.Helper()
	l, err := s.ix.AcquireLease(s.Context(), index.AcquireLease{Org: "acme", Thread: thread, Token: leaseToken, Owner: owner, TTL: time.Minute})
	require.NoError(s, err)
	return l
}

// TestLeaseSurvives: a lease is there after whatever becomes of the index; a renewal as
// long as the index is not made anew from the journal. No fence comes twice.
func TestLeaseSurvives(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(s *store)
		boot    string
		rebuild bool
	}{
		{"closed", func(s *store) { require.NoError(s, s.ix.Close()) }, "boot-1", false},
		{"killed", func(s *store) { s.crash() }, "boot-1", false},
		{"machine crashed", func(s *store) { s.crash() }, "boot-2", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			first := s.acquire("t", "o")
			s.packs.Advance(30 * time.Second)
			renewed, err := s.ix.RenewLease(t.Context(), "acme", "t", leaseToken)
			require.NoError(t, err)
			c.end(s)
			s.ix = s.open(c.boot)
			require.Equal(t, c.rebuild, s.ix.Rebuilt() != "")
			want := renewed
			if c.rebuild {
				want = first
			}
			got, err := s.ix.Lease(t.Context(), "acme", "t")
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, s.ix.CheckLease(t.Context(), "acme", "t", leaseToken))
			require.NoError(t, s.ix.ReleaseLease(t.Context(), "acme", "t", leaseToken))
			require.NoError(t, s.ix.Close())
			if c.rebuild {
				require.NoError(t, os.RemoveAll(s.path("index")))
			}
			s.ix = s.open("boot-3")
			_, err = s.ix.Lease(t.Context(), "acme", "t")
			require.ErrorIs(t, err, index.ErrNoWriter)
			require.Greater(t, s.acquire("t", "o").Fence, first.Fence)
			s.dump()
		})
	}
}

// TestLeaseTail: what a killed process had committed and not applied.
func TestLeaseTail(t *testing.T) {
	s := newStore(t)
	old := s.acquire("t", "old")
	e, err := s.ix.journal.Append(journal.ReleaseLease{Org: "acme", Thread: "t", Fence: old.Fence})
	require.NoError(t, err)
	last, err := s.ix.journal.Append(journal.AcquireLease{
		Org: "acme", Thread: "t", Token: index.HashToken("another token of sixteen"), Owner: "new", Expires: s.packs.Now().Add(time.Hour).UnixNano(), TTL: int64(time.Hour),
	})
	require.NoError(t, err)
	// Of the lease before: it ends nothing.
	_, err = s.ix.journal.Append(journal.ReleaseLease{Org: "acme", Thread: "t", Fence: e.Seq - 1})
	require.NoError(t, err)
	killed := s.dir
	for _, boot := range []string{"boot-1", "boot-2"} {
		s.dir = killed
		s.crash()
		s.ix = s.open(boot)
		require.Equal(t, boot == "boot-2", s.ix.Rebuilt() != "")
		l, err := s.ix.Lease(t.Context(), "acme", "t")
		require.NoError(t, err)
		require.Equal(t, index.Lease{Thread: "t", Fence: last.Seq, Owner: "new", Expires: s.packs.Now().Add(time.Hour), TTL: time.Hour}, l)
		require.ErrorIs(t, s.ix.CheckLease(t.Context(), "acme", "t", leaseToken), index.ErrWriterLost)
		s.dump()
	}
}

// TestRenewKeepsLeases: those that hold stay as they are, with their renewals, and
// nothing is left of the others.
func TestRenewKeepsLeases(t *testing.T) {
	s := newStore(t)
	s.acquire("secret-thread", "secret-released")
	require.NoError(t, s.ix.ReleaseLease(t.Context(), "acme", "secret-thread", leaseToken))
	s.acquire("secret-expired", "secret-expired")
	s.acquire("t", "kept")
	s.packs.Advance(50 * time.Second)
	want, err := s.ix.RenewLease(t.Context(), "acme", "t", leaseToken)
	require.NoError(t, err)
	s.packs.Advance(50 * time.Second)
	require.NotEmpty(t, s.hold("secret-"))
	for range 2 {
		require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
		require.Empty(t, s.hold("secret-"))
		require.NotEmpty(t, s.hold("kept"))
		got, err := s.ix.Lease(t.Context(), "acme", "t")
		require.NoError(t, err)
		require.Equal(t, want, got)
		s.dump()
	}
	require.Empty(t, s.hold(leaseToken), "the token itself is kept nowhere")
	require.Greater(t, s.acquire("secret-expired", "o").Fence, want.Fence)
}

// TestCheckLeases: an index whose leases contradict it says so.
func TestCheckLeases(t *testing.T) {
	for _, c := range []struct {
		harm func(l *index.HeldLease)
		want string
	}{
		{func(l *index.HeldLease) { l.Fence = 2 }, "the same fence 2"},
		{func(l *index.HeldLease) { l.Fence = 3 }, `the lease of thread "t" is of entry 3, 2 are applied`},
		{func(l *index.HeldLease) { l.Fence = 0 }, "is damaged"},
		{func(l *index.HeldLease) { l.Token = [32]byte{} }, "is damaged"},
	} {
		s := newStore(t)
		s.acquire("t", "o")
		s.acquire("u", "o")
		s.dump()
		require.NoError(t, s.ix.db.Update(func(txn *bdb.Txn) error {
			l, err := getLease(txn, "acme", "t")
			require.NoError(t, err)
			c.harm(&l)
			return txn.Set(leaseKey("acme", "t"), encodeLease(l))
		}))
		var found []string
		for finding, err := range s.ix.Check(t.Context()) {
			require.NoError(t, err)
			found = append(found, finding)
		}
		require.Len(t, found, 1)
		require.Contains(t, found[0], c.want)
	}
}
