package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// begun waits until a thread can be saved into, and ends that save.
func begun(t *testing.T, h *client.Holder, thread string) {
	t.Helper()
	var session snapshot.Session
	require.Eventually(t, func() bool {
		var err error
		session, err = h.Begin(t.Context(), snapshot.BeginRequest{Thread: thread})
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrBusy)
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, session.Close())
}

func TestKilledClientEndsItsSession(t *testing.T) {
	dir := newStore(t)
	serve(t, dir, server.Options{})
	h := dial(t, dir)
	child := start(t, "begin", dir, "t")
	_, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.ErrorIs(t, err, snapshot.ErrBusy)
	require.ErrorContains(t, err, "process "+itoa(child.Process.Pid))
	kill(t, child)
	begun(t, h, "t")
}

func TestKilledDaemonEndsItsSessions(t *testing.T) {
	dir := newStore(t)
	child := start(t, "serve", dir)
	h := dial(t, dir)
	session, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	kill(t, child)
	_, err = session.Have(t.Context(), keys(1))
	require.ErrorIs(t, err, snapshot.ErrSessionOver)
	_, err = session.Publish(t.Context(), snapshot.PublishRequest{})
	require.ErrorIs(t, err, snapshot.ErrSessionOver)
	require.NoError(t, session.Close())
	_, err = h.Threads(t.Context(), snapshot.Page{})
	require.ErrorIs(t, err, client.ErrNoDaemon)
	require.NotContains(t, err.Error(), "http://")
}

func TestShutdownEndsSessions(t *testing.T) {
	dir := newStore(t)
	d := serve(t, dir, server.Options{})
	h := dial(t, dir)
	session, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	d.end()
	_, err = session.Have(t.Context(), keys(1))
	require.ErrorIs(t, err, snapshot.ErrSessionOver)
	require.NoError(t, session.Close())
}

// TestSessionOutlivesTheContextOfBegin: only beginning is bounded by it.
func TestSessionOutlivesTheContextOfBegin(t *testing.T) {
	dir := newStore(t)
	serve(t, dir, server.Options{})
	h := dial(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	session, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	cancel()
	_, err = session.Have(t.Context(), keys(1))
	require.NoError(t, err)
	_, err = session.Have(ctx, keys(1))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, session.Close())
	_, err = h.Begin(ctx, snapshot.BeginRequest{Thread: "t"})
	require.ErrorIs(t, err, context.Canceled)
	begun(t, h, "t")
}

func TestManySessionsAtOnce(t *testing.T) {
	dir := newStore(t)
	serve(t, dir, server.Options{})
	h := dial(t, dir)
	var open []snapshot.Session
	for i := range 100 {
		s, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: itoa(i)})
		require.NoError(t, err)
		open = append(open, s)
	}
	for _, s := range open {
		require.NoError(t, s.Close())
	}
}
