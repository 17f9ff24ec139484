package snapshot

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// TestStaleWriterPublishesNothing: its lease ends while it saves, by time or by somebody
// else's, and the store is as before.
func TestStaleWriterPublishesNothing(t *testing.T) {
	for name, taken := range map[string]bool{"expired": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
			dir := filepath.Join(t.TempDir(), "store")
			s, err := Open(t.Context(), dir, Options{Create: true, Now: func() time.Time { return now }})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			ws := filepath.Join(t.TempDir(), "ws")
			write(t, ws, map[string]string{"f": "1"})
			l, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
			require.NoError(t, err)
			require.True(t, l.Expires.Equal(now.Add(LeaseTime)))
			session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "t", Lease: l.Token})
			require.NoError(t, err)
			w, end, err := s.newWriter(t.Context(), session, local.Auto)
			require.NoError(t, err)
			defer end()
			rec := recordOf(t, s, ws)
			now = now.Add(LeaseTime)
			var fence uint64
			if taken {
				other, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{Owner: "other"})
				require.NoError(t, err)
				fence = other.Fence
				require.Greater(t, fence, l.Fence)
			}
			_, err = publish(t.Context(), session, w, rec, PublishRequest{})
			require.ErrorIs(t, err, index.ErrWriterLost)
			require.Contains(t, Hint(err), "snapfs lease acquire t")
			require.NoError(t, session.Close())
			_, err = s.Thread(t.Context(), "t")
			require.ErrorIs(t, err, index.ErrThreadNotFound)
			_, err = s.RenewWriter(t.Context(), "t", l.Token)
			require.ErrorIs(t, err, index.ErrWriterLost)
			got, err := s.Writer(t.Context(), "t")
			if taken {
				require.NoError(t, err)
				require.Equal(t, fence, got.Fence)
			} else {
				require.ErrorIs(t, err, index.ErrNoWriter)
			}
			require.Empty(t, faults(t, s))
		})
	}
}

// recordOf is the record of a checkpoint of thread t whose content is in the store.
func recordOf(t *testing.T, s *Store, ws string) index.Record {
	t.Helper()
	cp := save(t, s, ws, "model")
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	rec.ID, rec.Thread, rec.Parent = "stale", "t", ""
	return rec
}

// TestHoldWriter: it renews every 45 s and keeps the lease for as long as its context.
func TestHoldWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := OpenMemory()
		defer s.Close()
		l, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.HoldWriter(ctx, l) }()
		for range 1000 {
			time.Sleep(45 * time.Second)
			synctest.Wait()
			got, err := s.Writer(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, time.Now().Add(LeaseTime).UTC(), got.Expires)
			require.Equal(t, l.Fence, got.Fence)
		}
		cancel()
		require.NoError(t, <-ended)
		time.Sleep(LeaseTime)
		_, err = s.Writer(t.Context(), "t")
		require.ErrorIs(t, err, index.ErrNoWriter, "nobody renews it any more")

		// Lost, it says so at the next renewal.
		l, err = s.AcquireWriter(t.Context(), "t", LeaseOptions{TTL: 8 * time.Second})
		require.NoError(t, err)
		go func() { ended <- s.HoldWriter(t.Context(), l) }()
		time.Sleep(time.Second)
		require.NoError(t, s.ReleaseWriter(t.Context(), "t", l.Token))
		begun := time.Now()
		require.ErrorIs(t, <-ended, index.ErrWriterLost)
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
}

// troubled is a holder that renews no lease for a while.
type troubled struct {
	Holder
	until time.Time
	tries int
}

var errTrouble = errors.New("trouble")

func (h *troubled) RenewLease(ctx context.Context, thread, token string) (Lease, error) {
	if time.Now().Before(h.until) {
		h.tries++
		return Lease{}, errTrouble
	}
	return h.Holder.RenewLease(ctx, thread, token)
}

// TestHoldWriterInTrouble: a renewal that fails is tried again while the lease may last,
// and no longer.
func TestHoldWriterInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := OpenMemory()
		defer s.Close()
		l, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
		require.NoError(t, err)
		h := &troubled{Holder: s.holder, until: time.Now().Add(100 * time.Second)}
		s.holder = h
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.HoldWriter(ctx, l) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Greater(t, h.tries, 5)
		_, err = s.Writer(t.Context(), "t")
		require.NoError(t, err)
		cancel()
		require.NoError(t, <-ended)

		h.until = time.Now().Add(time.Hour)
		begun := time.Now()
		require.ErrorIs(t, s.HoldWriter(t.Context(), l), errTrouble)
		require.GreaterOrEqual(t, time.Since(begun), LeaseTime)
		require.Less(t, time.Since(begun), LeaseTime+10*time.Second)
	})
}

// tardy is a holder whose answer comes when nobody waits for it any more.
type tardy struct {
	Holder
	cancel func()
}

func (h tardy) AcquireLease(ctx context.Context, req LeaseRequest) (Lease, error) {
	_, err := h.Holder.AcquireLease(ctx, req)
	h.cancel()
	return Lease{}, errors.Join(err, ctx.Err())
}

// TestAcquireInterrupted: a lease that nobody knows the token of does not stay.
func TestAcquireInterrupted(t *testing.T) {
	s := OpenMemory()
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s.holder = tardy{s.holder, cancel}
	_, err := s.AcquireWriter(ctx, "t", LeaseOptions{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Writer(t.Context(), "t")
	require.ErrorIs(t, err, index.ErrNoWriter)
}

// TestAwait: it tries seldom, at once when the time is over, and only while others have
// the thread.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, busy := range []error{ErrBusy, index.ErrWriterConflict} {
			tries, begun := 0, time.Now()
			try := func() error { tries++; return busy }
			require.ErrorIs(t, Await(t.Context(), 0, try), busy)
			require.Equal(t, 1, tries)
			require.Zero(t, time.Since(begun))

			tries = 0
			require.ErrorIs(t, Await(t.Context(), time.Minute, try), busy)
			require.Equal(t, time.Minute, time.Since(begun))
			require.Less(t, tries, 75)

			tries = 0
			require.NoError(t, Await(t.Context(), time.Hour, func() error {
				if tries++; tries < 5 {
					return busy
				}
				return nil
			}))
			require.Equal(t, 5, tries)
		}
		tries := 0
		require.ErrorIs(t, Await(t.Context(), time.Hour, func() error { tries++; return index.ErrWriterLost }), index.ErrWriterLost)
		require.Equal(t, 1, tries)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Await(ctx, time.Hour, func() error { return ErrBusy }), context.DeadlineExceeded)
	})
}

// TestLeaseThroughReindex: an index that is made anew has the leases that hold, and
// gives no fence again.
func TestLeaseThroughReindex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openStore(t, dir)
	ended, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
	require.NoError(t, err)
	require.NoError(t, s.ReleaseWriter(t.Context(), "t", ended.Token))
	held, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = Reindex(t.Context(), dir, Options{}, func(problem string) error { return errors.New(problem) })
	require.NoError(t, err)
	s = openStore(t, dir)
	got, err := s.Writer(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, held.Fence, got.Fence)
	require.True(t, held.Expires.Equal(got.Expires))
	require.NoError(t, s.ReleaseWriter(t.Context(), "t", held.Token))
	next, err := s.AcquireWriter(t.Context(), "t", LeaseOptions{})
	require.NoError(t, err)
	require.Greater(t, next.Fence, held.Fence)
}
