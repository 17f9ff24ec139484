package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
)

func TestPeers(t *testing.T) {
	s := newServer(t, Options{})
	for _, test := range []struct {
		uid    any
		status int
	}{{s.owner, 200}, {uint32(0), 200}, {s.owner + 1, 403}, {nil, 403}} {
		for _, path := range []string{"/v1/threads", "/healthz", "/openapi.json"} {
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, test.uid), "GET", path, nil)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			require.Equal(t, test.status, w.Code, "%v %s", test.uid, path)
			if test.status == 403 {
				require.Equal(t, client.Code("FORBIDDEN"), refused(t, w.Result(), w.Body.String()).Code)
			}
		}
	}
}

// listen serves s on its store's socket until the test ends.
func listen(t *testing.T, s *Server) {
	t.Helper()
	l, err := ListenSocket(s.store.Dir())
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
}

func TestStrangersAreRefusedOnTheSocket(t *testing.T) {
	s := newServer(t, Options{})
	s.peer = func(net.Conn) (uint32, error) { return s.owner + 1, nil }
	listen(t, s)
	_, err := client.Dial(t.Context(), s.store.Dir())
	require.ErrorIs(t, err, snapshot.ErrForbidden)
}

func TestPeerUID(t *testing.T) {
	s := newServer(t, Options{})
	got := make(chan uint32, 8)
	s.peer = func(c net.Conn) (uint32, error) {
		uid, err := socket.PeerUID(c)
		got <- uid
		return uid, err
	}
	listen(t, s)
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	require.Equal(t, uint32(os.Geteuid()), <-got)
	require.NoError(t, h.Close())

	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	_, err = socket.PeerUID(ours)
	require.ErrorContains(t, err, "no peer credentials")
}

func TestShutdown(t *testing.T) {
	s := newServer(t, Options{Grace: time.Millisecond})
	listen(t, s)
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	session, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoFileExists(t, filepath.Join(s.store.Dir(), snapshot.SocketFile))
	_, err = session.Have(t.Context(), nil)
	require.NoError(t, err, "nothing was asked")
	resp, body := ask(t, s, "GET", "/readyz", "")
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, client.Code("CLOSING"), refused(t, resp, body).Code)
	resp, body = ask(t, s, "POST", "/v1/sessions", `{"thread":"t"}`)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, client.Code("CLOSING"), refused(t, resp, body).Code)
	// The thread is free again.
	again, err := s.store.Holder().Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// slowMounter hangs until its request ends.
type slowMounter struct {
	fakeMounter
	began chan struct{}
}

func (m *slowMounter) Mount(ctx context.Context, _ snapshot.MountRequest) error {
	close(m.began)
	<-ctx.Done()
	return ctx.Err()
}

func TestShutdownCutsOffWhatDoesNotEnd(t *testing.T) {
	m := &slowMounter{began: make(chan struct{})}
	s := newServer(t, Options{Mounter: m})
	l, err := ListenSocket(s.store.Dir())
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	mounted := make(chan error, 1)
	go func() { mounted <- h.Mount(t.Context(), snapshot.MountRequest{Mountpoint: "/mnt"}) }()
	<-m.began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, <-served)
	require.ErrorIs(t, <-mounted, client.ErrNoDaemon)
}

func TestListenSocketReplacesAStaleOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, snapshot.SocketFile)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	l, err := ListenSocket(dir)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	_, err = ListenSocket(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestBodyTimeout: a body has to come in time, and the limit is gone once it has.
func TestBodyTimeout(t *testing.T) {
	s := newServer(t, Options{})
	s.bodyTimeout = 20 * time.Millisecond
	listen(t, s)
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	session, err := h.Begin(t.Context(), snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)

	conn, err := net.Dial("unix", filepath.Join(s.store.Dir(), snapshot.SocketFile))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("POST /v1/sessions HTTP/1.1\r\nHost: snapfs\r\nContent-Length: 100\r\n\r\n{"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)

	// The session's own body came longer ago than the limit by now.
	_, err = session.Have(t.Context(), []cas.Key{{NS: cas.Files}})
	require.NoError(t, err)
	require.NoError(t, session.Close())
}

func TestRootServesAnothersStore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const other = 12345
	s := newServer(t, Options{})
	dir := s.store.Dir()
	require.NoError(t, os.Chown(dir, other, other))
	s = New(s.store, Options{})
	require.EqualValues(t, other, s.owner)
	listen(t, s)
	info, err := os.Lstat(filepath.Join(dir, snapshot.SocketFile))
	require.NoError(t, err)
	require.EqualValues(t, other, info.Sys().(*syscall.Stat_t).Uid)
	h, err := client.Dial(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, h.Close())
}
