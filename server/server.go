// Package server serves a store over HTTP: the routes under /v1 on the Unix
// socket in the store's directory, for the store's owner and root.
//
// A daemon that holds a store (see [snapshot.Open]) gives every other process
// its index through it; package client is the other side. What a request means
// is decided by the [snapshot.Holder] behind it. This package turns requests
// into calls and errors into replies, and bounds both. It opens no path that a
// client names; pack files are named by their id.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
)

// Time limits of a connection.
const (
	headerTimeout = 10 * time.Second // to send a request's header
	bodyTimeout   = 30 * time.Second // to send a request's body
	idleTimeout   = 2 * time.Minute  // between two requests; longer than the client keeps a connection
)

// maxHeader bounds a request's header in bytes: a mountpoint of 4096 bytes, each
// of them percent-encoded, fits.
const maxHeader = 64 << 10

// DefaultGrace is how long open sessions may go on after Shutdown was called.
const DefaultGrace = 2 * time.Second

// A Mounter shows the store at mountpoints. Its methods may be called
// concurrently. The contexts are those of requests: a mount outlives them.
type Mounter interface {
	// Mount returns when the mount can be used. It fails with
	// [snapshot.ErrMounted].
	Mount(ctx context.Context, req snapshot.MountRequest) error
	// Unmount fails with [snapshot.ErrNotMounted].
	Unmount(ctx context.Context, req snapshot.UnmountRequest) error
	// Mounts lists the mounts.
	Mounts() []snapshot.MountInfo
	// Requests counts the kernel's requests by the name of the operation.
	Requests() map[string]uint64
}

// Options of [New]. The zero value works.
type Options struct {
	Mounter Mounter       // nil: mounting is [snapshot.ErrUnsupported]
	Logger  *slog.Logger  // nil discards
	Version string        // of the program, for /openapi.json
	Grace   time.Duration // for open sessions at the end; 0: [DefaultGrace]
}

// A Server answers requests about one store. Its methods may be called
// concurrently.
type Server struct {
	store    *snapshot.Store
	opt      Options
	log      *slog.Logger
	owner    uint32 // user id of the store's owner
	peer     func(net.Conn) (uint32, error)
	handler  http.Handler
	http     *http.Server
	sessions *sessions

	bodyTimeout time.Duration

	closing   chan struct{} // closed when nothing new begins any more
	closeOnce sync.Once
}

// New makes a server of a store that this process holds. Closing the store is
// the caller's, after Shutdown.
func New(store *snapshot.Store, opt Options) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	s := &Server{
		store: store, opt: opt, log: opt.Logger,
		peer: socket.PeerUID, sessions: newSessions(), bodyTimeout: bodyTimeout, closing: make(chan struct{}),
	}
	s.owner = uint32(os.Geteuid())
	if info, err := os.Stat(store.Dir()); err == nil {
		s.owner = info.Sys().(*syscall.Stat_t).Uid
	}
	mux := http.NewServeMux()
	s.routes(humago.New(mux, apiConfig(opt.Version)))
	s.handler = s.outer(mux)
	s.http = &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       s.connContext,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// Handler returns the routes. It refuses every request whose context does not
// say who the peer is, as that of a connection accepted by Serve does.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers the connections of l until Shutdown, and closes l. It returns nil
// after a Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Shutdown ends the server. Nothing new begins; open sessions may go on for the
// grace time and are ended then; requests under way are waited for until ctx
// ends, and are cut off then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeOnce.Do(func() { close(s.closing) })
	grace, cancel := context.WithTimeout(ctx, s.opt.Grace)
	defer cancel()
	s.sessions.drain(grace)
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut down: %w", err), s.http.Close())
	}
	return nil
}

// refusing reports whether Shutdown was called.
func (s *Server) refusing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// apiConfig is the API's description. The package's default one would also put
// links to schemas into every reply and serve a page that loads scripts from
// elsewhere.
func apiConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	setUpHuma()
	config := huma.DefaultConfig("snapfs", version)
	config.CreateHooks = nil
	config.DocsPath, config.SchemasPath = "", ""
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.RejectUnknownQueryParameters = true
	return config
}
