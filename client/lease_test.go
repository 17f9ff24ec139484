package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

func testLeases(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	thread := "a/b ../%2F\U0001F600"
	_, err := s.Writer(ctx, thread)
	require.ErrorIs(t, err, index.ErrNoWriter)
	l, err := s.AcquireWriter(ctx, thread, snapshot.LeaseOptions{Owner: "me", TTL: time.Hour})
	require.NoError(t, err)
	require.Len(t, l.Token, 32)
	require.Equal(t, snapshot.Lease{Thread: thread, Token: l.Token, Fence: l.Fence, Owner: "me", Expires: l.Expires, TTL: time.Hour}, l)
	require.WithinDuration(t, time.Now().Add(time.Hour), l.Expires, time.Minute)
	again, err := s.Holder().AcquireLease(ctx, snapshot.LeaseRequest{Thread: thread, Token: l.Token, TTL: time.Hour})
	require.NoError(t, err, "an answer may have been lost")
	require.Equal(t, l, again)
	shown, err := s.Writer(ctx, thread)
	require.NoError(t, err)
	want := l
	want.Token = ""
	require.Equal(t, want, shown)
	_, err = s.AcquireWriter(ctx, thread, snapshot.LeaseOptions{})
	require.ErrorIs(t, err, index.ErrWriterConflict)
	require.ErrorContains(t, err, `is leased to "me" until `)
	require.Contains(t, snapshot.Hint(err), "--wait 2m")

	ws := write(t, map[string]string{"f": "1"})
	try := func(token string) (snapshot.Checkpoint, error) {
		res, err := s.Save(ctx, snapshot.SaveOptions{Workspace: ws, Thread: thread, Lease: token})
		return res.Checkpoint, err
	}
	_, err = try("")
	require.ErrorIs(t, err, index.ErrWriterConflict)
	require.Contains(t, snapshot.Hint(err), "--wait 2m")
	_, err = try(strings.Repeat("0", 32))
	require.ErrorIs(t, err, index.ErrWriterLost)
	require.Contains(t, snapshot.Hint(err), "lease acquire")
	cp, err := try(l.Token)
	require.NoError(t, err)

	renewed, err := s.RenewWriter(ctx, thread, l.Token)
	require.NoError(t, err)
	require.False(t, renewed.Expires.Before(l.Expires))
	require.Equal(t, l.Fence, renewed.Fence)
	for _, token := range []string{"", "x", "\xff", strings.Repeat("0", 32), strings.Repeat("x", 1<<17)} {
		_, err = s.RenewWriter(ctx, thread, token)
		require.ErrorIs(t, err, index.ErrWriterLost)
		require.Contains(t, snapshot.Hint(err), "lease acquire")
		require.ErrorIs(t, s.ReleaseWriter(ctx, thread, token), index.ErrWriterLost)
		if token != "" {
			_, err = try(token)
			require.ErrorIs(t, err, index.ErrWriterLost)
		}
	}
	for _, id := range []string{"", "/", "\xff", "a\x00"} {
		_, err = s.AcquireWriter(ctx, id, snapshot.LeaseOptions{})
		require.ErrorIs(t, err, index.ErrInvalid, "%q", id)
		_, err = s.Writer(ctx, id)
		require.ErrorIs(t, err, index.ErrNoWriter, "%q", id)
		require.ErrorIs(t, s.ReleaseWriter(ctx, id, l.Token), index.ErrWriterLost, "%q", id)
	}
	_, err = s.AcquireWriter(ctx, "u", snapshot.LeaseOptions{TTL: time.Minute / 100})
	require.ErrorIs(t, err, index.ErrInvalid)
	_, err = s.AcquireWriter(ctx, "u", snapshot.LeaseOptions{Owner: "\xff"})
	require.ErrorIs(t, err, index.ErrInvalid)

	// A fork needs it, too.
	u, err := s.AcquireWriter(ctx, "u", snapshot.LeaseOptions{})
	require.NoError(t, err)
	require.Contains(t, u.Owner, "process ")
	require.Equal(t, snapshot.LeaseTime, u.TTL)
	require.Greater(t, u.Fence, l.Fence)
	_, err = s.Fork(ctx, cp.ID, snapshot.ForkOptions{Thread: "u"})
	require.ErrorIs(t, err, index.ErrWriterConflict)
	require.Contains(t, snapshot.Hint(err), "--lease TOKEN")
	_, err = s.Fork(ctx, cp.ID, snapshot.ForkOptions{Thread: "u", Lease: l.Token})
	require.ErrorIs(t, err, index.ErrWriterLost)
	_, err = s.Fork(ctx, cp.ID, snapshot.ForkOptions{Thread: "u", Lease: u.Token})
	require.NoError(t, err)

	require.NoError(t, s.ReleaseWriter(ctx, thread, l.Token))
	_, err = try(l.Token)
	require.ErrorIs(t, err, index.ErrWriterLost)
	_, err = try("")
	require.NoError(t, err)
}

// testTakeOver: who gets the lease need not wait for the save of who lost
// it, which publishes nothing, whether it had one or not.
func testTakeOver(t *testing.T, s *snapshot.Store) {
	ctx, h := t.Context(), s.Holder()
	var err error
	for _, stale := range []string{"leased", "unleased"} {
		var l snapshot.Lease
		if stale == "leased" {
			l, err = s.AcquireWriter(ctx, "t", snapshot.LeaseOptions{})
			require.NoError(t, err)
		}
		session, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "t", PID: 4711, Lease: l.Token})
		require.NoError(t, err)
		_, err = h.Begin(ctx, snapshot.BeginRequest{Thread: "t", Lease: l.Token})
		require.ErrorIs(t, err, snapshot.ErrBusy, "its own second save")
		if stale == "leased" {
			require.NoError(t, s.ReleaseWriter(ctx, "t", l.Token))
		}
		now, err := s.AcquireWriter(ctx, "t", snapshot.LeaseOptions{})
		require.NoError(t, err)
		_, err = h.Begin(ctx, snapshot.BeginRequest{Thread: "t", Lease: l.Token})
		if stale == "leased" {
			require.ErrorIs(t, err, index.ErrWriterLost)
		} else {
			require.ErrorIs(t, err, index.ErrWriterConflict)
		}
		beside, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "t", Beside: true})
		require.NoError(t, err, "artifacts need no lease")
		require.NoError(t, beside.Close())
		res, err := s.Save(ctx, snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": stale}), Thread: "t", Lease: now.Token})
		require.NoError(t, err)
		require.NoError(t, session.Close(), "it does not free the thread")
		th, err := s.Thread(ctx, "t")
		require.NoError(t, err)
		require.Equal(t, res.Checkpoint.ID, th.Head)
		require.NoError(t, s.ReleaseWriter(ctx, "t", now.Token))
	}
}

// testWait waits for a lease and for a save, and not longer than asked for.
func testWait(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	ws := write(t, map[string]string{"f": "1"})
	l, err := s.AcquireWriter(ctx, "t", snapshot.LeaseOptions{})
	require.NoError(t, err)
	save := func(ctx context.Context, wait time.Duration) error {
		_, err := s.Save(ctx, snapshot.SaveOptions{Workspace: ws, Thread: "t", Wait: wait})
		return err
	}
	require.ErrorIs(t, save(ctx, 25*time.Millisecond), index.ErrWriterConflict)
	short, cancel := context.WithTimeout(ctx, 25*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, save(short, time.Hour), context.DeadlineExceeded)

	waited := make(chan error, 2)
	go func() { waited <- save(ctx, time.Hour) }()
	go func() {
		got, err := s.AcquireWriter(ctx, "t", snapshot.LeaseOptions{Wait: time.Hour})
		if err == nil {
			err = s.ReleaseWriter(ctx, "t", got.Token)
		}
		waited <- err
	}()
	require.NoError(t, s.ReleaseWriter(ctx, "t", l.Token))
	for range 2 {
		err := <-waited
		if err != nil { // a save that began before the lease was taken
			require.ErrorIs(t, err, index.ErrWriterConflict)
		}
	}
	session, err := s.Holder().Begin(ctx, snapshot.BeginRequest{Thread: "t", PID: 4711})
	require.NoError(t, err)
	err = save(ctx, 25*time.Millisecond)
	require.ErrorIs(t, err, snapshot.ErrBusy)
	require.ErrorContains(t, err, "process 4711")
	require.Contains(t, snapshot.Hint(err), "--wait 2m")
	go func() { waited <- save(ctx, time.Hour) }()
	require.NoError(t, session.Close())
	require.NoError(t, <-waited)
}

// TestLeaseOutlivesTheDaemon: it is the store's, and who holds it goes on where the next
// one is.
func TestLeaseOutlivesTheDaemon(t *testing.T) {
	dir := newStore(t)
	first := serve(t, dir, server.Options{})
	s := open(t, dir, snapshot.Options{})
	l, err := s.AcquireWriter(t.Context(), "t", snapshot.LeaseOptions{})
	require.NoError(t, err)
	first.end()
	second := serve(t, dir, server.Options{})
	renewed, err := s.RenewWriter(t.Context(), "t", l.Token)
	require.NoError(t, err)
	require.Equal(t, l.Fence, renewed.Fence)
	second.end()
	// Without one this process holds the store.
	again, err := s.Holder().AcquireLease(t.Context(), snapshot.LeaseRequest{Thread: "t", Token: l.Token, TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, renewed, again)
	_, err = s.Writer(t.Context(), "t")
	require.NoError(t, err)
	require.NoError(t, s.ReleaseWriter(t.Context(), "t", l.Token))
}
