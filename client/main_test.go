package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// childEnv makes the test binary be one of the children below.
const childEnv = "SNAPFS_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is another process with the store: it says "ready" and waits to be
// killed, or for the end of its input.
func child(what string, args []string) error {
	ctx := context.Background()
	dir := args[0]
	switch what {
	case "hold": // has the store and does not serve it
		s, err := snapshot.Open(ctx, dir, snapshot.Options{Verb: "save"})
		if err != nil {
			return err
		}
		defer s.Close()
	case "begin": // has begun a save through the daemon
		h, err := client.Dial(ctx, dir)
		if err != nil {
			return err
		}
		if _, err := h.Begin(ctx, snapshot.BeginRequest{Thread: args[1], PID: os.Getpid()}); err != nil {
			return err
		}
	case "serve":
		s, err := snapshot.Open(ctx, dir, snapshot.Options{Verb: "serve"})
		if err != nil {
			return err
		}
		l, err := server.ListenSocket(dir)
		if err != nil {
			return err
		}
		go func() { _ = server.New(s, server.Options{}).Serve(l) }()
	case "save": // workspace, thread
		s, err := client.Open(ctx, dir, snapshot.Options{Create: true, Verb: "save"}, nil)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Save(ctx, snapshot.SaveOptions{Workspace: args[1], Thread: args[2]})
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// newStore makes an empty store in a directory of the test.
func newStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	require.NoError(t, snapshot.Create(dir))
	return dir
}

// daemon is one that runs in this process.
type daemon struct {
	t      *testing.T
	store  *snapshot.Store
	server *server.Server
	served chan error
	ended  bool
}

// serve starts a daemon on the store in dir; it ends with the test.
func serve(t *testing.T, dir string, opt server.Options) *daemon {
	t.Helper()
	s, err := snapshot.Open(t.Context(), dir, snapshot.Options{Create: true, Verb: "serve"})
	require.NoError(t, err)
	return serveStore(t, s, opt)
}

// serveStore starts a daemon on an open store, and closes that in the end.
func serveStore(t *testing.T, s *snapshot.Store, opt server.Options) *daemon {
	t.Helper()
	l, err := server.ListenSocket(s.Dir())
	require.NoError(t, err)
	if opt.Grace == 0 {
		opt.Grace = time.Millisecond
	}
	d := &daemon{t: t, store: s, server: server.New(s, opt), served: make(chan error, 1)}
	go func() { d.served <- d.server.Serve(l) }()
	t.Cleanup(d.end)
	return d
}

// end shuts the daemon down and gives the store free, verified.
func (d *daemon) end() {
	if d.ended {
		return
	}
	d.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(d.t, d.server.Shutdown(ctx))
	require.NoError(d.t, <-d.served)
	found, err := d.store.Holder().Check(ctx)
	require.NoError(d.t, err)
	require.Empty(d.t, found)
	require.NoError(d.t, d.store.Close())
}

// dial connects to the daemon.
func dial(t *testing.T, dir string) *client.Holder {
	t.Helper()
	h, err := client.Dial(t.Context(), dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// write makes a workspace of the given files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// save saves files into a thread.
func save(t *testing.T, s *snapshot.Store, thread, id string, files map[string]string) snapshot.Checkpoint {
	t.Helper()
	res, err := s.Save(t.Context(), snapshot.SaveOptions{
		Workspace: write(t, files), Thread: thread, ID: id, Files: policy.FilesOptions{},
	})
	require.NoError(t, err)
	return res.Checkpoint
}
