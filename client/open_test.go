package client_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// open opens a store as a verb does; it is closed with the test.
func open(t *testing.T, dir string, opt snapshot.Options) *snapshot.Store {
	t.Helper()
	s, err := client.Open(t.Context(), dir, opt, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// start runs a child and waits until it is ready.
func start(t *testing.T, what string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd
}

// kill ends a child as nothing else does, and waits for it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

func TestDialWithoutDaemon(t *testing.T) {
	dir := newStore(t)
	_, err := client.Dial(t.Context(), dir)
	require.ErrorIs(t, err, client.ErrNoDaemon, "no socket")
	_, err = client.Dial(t.Context(), filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, client.ErrNoDaemon, "no store")

	// A daemon that was killed leaves its socket.
	kill(t, start(t, "serve", dir))
	require.FileExists(t, filepath.Join(dir, snapshot.SocketFile))
	_, err = client.Dial(t.Context(), dir)
	require.ErrorIs(t, err, client.ErrNoDaemon, "nobody listens")
	d := serve(t, dir, server.Options{})
	require.NoError(t, dial(t, dir).Close())
	d.end()
	require.NoFileExists(t, filepath.Join(dir, snapshot.SocketFile))
}

func TestDialLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40), "store")
	serve(t, dir, server.Options{})
	save(t, open(t, dir, snapshot.Options{}), "t", "one", map[string]string{"f": "1"})
}

func TestDialContext(t *testing.T) {
	// Somebody who accepts and never answers.
	dir := newStore(t)
	l, err := server.ListenSocket(dir)
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = client.Dial(ctx, dir)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, client.ErrNoDaemon)
}

func TestOpenCreates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	_, err := client.Open(t.Context(), dir, snapshot.Options{}, nil)
	require.ErrorIs(t, err, snapshot.ErrNoStore)
	require.NoDirExists(t, dir)
	s := open(t, dir, snapshot.Options{Create: true})
	save(t, s, "t", "one", map[string]string{"f": "1"})
	// The store in this process can be subscribed to, a daemon's cannot.
	cancel, err := s.Subscribe(func(context.Context, snapshot.Event) {})
	require.NoError(t, err)
	cancel()
}

func TestOpenWaitsForAnotherVerb(t *testing.T) {
	dir := newStore(t)
	holder := start(t, "hold", dir)
	waited := make(chan *snapshot.LockedError, 2)
	done := make(chan error, 1)
	go func() {
		s, err := client.Open(t.Context(), dir, snapshot.Options{}, func(e *snapshot.LockedError) { waited <- e })
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	said := <-waited
	require.Equal(t, "save", said.Verb)
	require.Equal(t, holder.Process.Pid, said.PID)
	kill(t, holder)
	require.NoError(t, <-done)
	require.Empty(t, waited, "said once")
}

func TestOpenWaitEndsWithItsContext(t *testing.T) {
	dir := newStore(t)
	start(t, "hold", dir)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := client.Open(ctx, dir, snapshot.Options{}, func(*snapshot.LockedError) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, snapshot.ErrLocked)
}

func TestOpenWaitsForADaemonThatStarts(t *testing.T) {
	dir := newStore(t)
	// It has the lock and does not listen yet.
	store, err := snapshot.Open(t.Context(), dir, snapshot.Options{Verb: "serve"})
	require.NoError(t, err)
	opened := make(chan error, 1)
	go func() {
		s, err := client.Open(t.Context(), dir, snapshot.Options{}, nil)
		if err == nil {
			st, serr := s.Stats(t.Context())
			if err = serr; err == nil && st.Daemon != os.Getpid() {
				err = io.ErrUnexpectedEOF
			}
			_ = s.Close()
		}
		opened <- err
	}()
	srv := server.New(store, server.Options{})
	l, err := server.ListenSocket(dir)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	require.NoError(t, <-opened)
	require.NoError(t, srv.Shutdown(t.Context()))
	require.NoError(t, <-served)
	require.NoError(t, store.Close())
}

func TestOpenRetriesWhileADaemonEnds(t *testing.T) {
	dir := newStore(t)
	d := serve(t, dir, server.Options{Grace: time.Minute})
	session, err := dial(t, dir).Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.end()
	}()
	// It refuses now, and still serves the save.
	require.Eventually(t, func() bool {
		_, err := client.Dial(t.Context(), dir)
		if err == nil {
			return false
		}
		require.ErrorIs(t, err, client.ErrClosing)
		return true
	}, 10*time.Second, time.Millisecond)
	opened := make(chan error, 1)
	go func() {
		s, err := client.Open(t.Context(), dir, snapshot.Options{}, nil)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	_, err = session.Have(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, session.Close())
	<-ended
	require.NoError(t, <-opened)
}

func TestStoreOutlivesItsDaemon(t *testing.T) {
	dir := newStore(t)
	one := serve(t, dir, server.Options{})
	s := open(t, dir, snapshot.Options{})
	cp := save(t, s, "t", "one", map[string]string{"f": "1"})
	one.end()
	// No daemon: the store is opened in this process.
	got, err := s.Resolve(t.Context(), "t@latest")
	require.NoError(t, err)
	require.Equal(t, cp, got)
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.Daemon)
	save(t, s, "t", "two", map[string]string{"f": "2"})
	target := filepath.Join(t.TempDir(), "out")
	_, err = s.Restore(t.Context(), "one", snapshot.RestoreOptions{Dir: target})
	require.NoError(t, err)
	_, err = s.Resolve(t.Context(), "nothing")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
}

func TestStoreMovesToTheNextDaemon(t *testing.T) {
	dir := newStore(t)
	one := serve(t, dir, server.Options{})
	s := open(t, dir, snapshot.Options{})
	save(t, s, "t", "one", map[string]string{"f": "1"})
	one.end()
	serve(t, dir, server.Options{})
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			_, err := s.Resolve(t.Context(), "t@latest")
			return err
		})
	}
	require.NoError(t, all.Wait())
	save(t, s, "t", "two", map[string]string{"f": "2"})
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), st.Daemon)
}

// TestManyProcesses has processes save at once, while a daemon comes and goes.
func TestManyProcesses(t *testing.T) {
	const savers = 6
	dir := filepath.Join(t.TempDir(), "store")
	exe, err := os.Executable()
	require.NoError(t, err)
	var all errgroup.Group
	for i := range savers {
		workspace := write(t, map[string]string{"f": strconv.Itoa(i), "same": "same"})
		all.Go(func() error {
			cmd := exec.Command(exe, dir, workspace, "t"+strconv.Itoa(i))
			cmd.Env = append(os.Environ(), childEnv+"=save")
			cmd.Stderr = os.Stderr
			return cmd.Run()
		})
	}
	// Daemons take their turn like everybody else.
	for range 3 {
		store, err := snapshot.Open(t.Context(), dir, snapshot.Options{Create: true, Verb: "serve"})
		for ; err != nil; store, err = snapshot.Open(t.Context(), dir, snapshot.Options{Create: true, Verb: "serve"}) {
			require.ErrorIs(t, err, snapshot.ErrLocked)
		}
		l, err := server.ListenSocket(dir)
		require.NoError(t, err)
		srv := server.New(store, server.Options{Grace: 10 * time.Second})
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		require.NoError(t, srv.Shutdown(t.Context()))
		require.NoError(t, <-served)
		require.NoError(t, store.Close())
	}
	require.NoError(t, all.Wait())
	s := open(t, dir, snapshot.Options{})
	threads, err := s.Threads(t.Context(), snapshot.Page{})
	require.NoError(t, err)
	require.Len(t, threads, savers)
	found, err := s.Holder().Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestSocketMode(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := newStore(t)
	serve(t, dir, server.Options{})
	info, err := os.Lstat(filepath.Join(dir, snapshot.SocketFile))
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
}

// A daemon that does not answer, since it is stopped, is waited for, and the user
// is told for whom.
func TestOpenSaysThatTheDaemonIsSilent(t *testing.T) {
	dir := newStore(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), []byte("4711 mount\n"), 0o600))
	silent, err := server.ListenSocket(dir)
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	var said []snapshot.LockedError
	_, err = client.Open(ctx, dir, snapshot.Options{}, func(held *snapshot.LockedError) {
		said = append(said, *held)
		cancel()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []snapshot.LockedError{{PID: 4711, Verb: "mount"}}, said)
}
