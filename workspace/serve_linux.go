package workspace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
)

// LogFile is the log of the server of lower layers, in a store.
var LogFile = filepath.Join(snapshot.WorkspacesDir, "server.log")

// The requests, one JSON document a line, and so are the replies.
const (
	opAdd     = "add"
	opRelease = "release"
	opList    = "list"
)

type request struct {
	Op     string   `json:"op"`
	ID     string   `json:"id,omitempty"`     // of the workspace
	Record string   `json:"record,omitempty"` // hash of its checkpoint's record, hex
	XAttrs bool     `json:"xattrs,omitempty"`
	Packs  []string `json:"packs,omitempty"`
}

type reply struct {
	Lower      fs.Lower `json:"lower,omitzero"`
	Workspaces []string `json:"workspaces,omitempty"`
	Problem    string   `json:"problem,omitempty"` // see problems
	Message    string   `json:"message,omitempty"`
}

// errNeedPacks: the server does not show the checkpoint, and was not told its packs.
var errNeedPacks = errors.New("the server does not know the checkpoint's packs")

// problems are the errors that keep their meaning across the connection.
var problems = map[string]error{
	"packs":     errNeedPacks,
	"gone":      iofs.ErrNotExist,
	"missing":   cas.ErrNotFound,
	"corrupt":   cas.ErrCorrupt,
	"forbidden": snapshot.ErrForbidden,
	"files":     unix.EMFILE,
}

const (
	// unused is how long a server waits for its first client.
	unused = 10 * time.Second
	// acceptPause is how long the server waits when it can accept no client.
	acceptPause = 100 * time.Millisecond
	// lockTime is how long the lock of a server may be held by those who only look.
	lockTime = time.Second
)

// ErrServed: another process serves the lower layers of the store in this mount namespace.
var ErrServed = errors.New("another process serves the lower layers")

// Serve serves the lower layers of a store's instant workspaces in this process's mount
// namespace, to root, until nobody needs one any more or the context ends. ready is called
// when it can be reached.
func Serve(ctx context.Context, dir string, log *slog.Logger, ready func()) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	namespace, err := snapshot.MountNamespace()
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, snapshot.WorkspacesDir)
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, iofs.ErrExist) {
		return fmt.Errorf("serve lower layers: %w", err)
	}
	lock, err := lockServer(snapshot.ServerLock(dir, namespace))
	if err != nil {
		return fmt.Errorf("serve lower layers: %w", err)
	}
	defer lock.Close()
	open, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("serve lower layers: %w", err)
	}
	listener, err := socket.Listen(open, socketName(namespace))
	if err != nil {
		return errors.Join(fmt.Errorf("serve lower layers: %w", err), open.Close())
	}
	s := &server{log: log, lowers: fs.NewLowers(dir, fs.LowerMountpoint(dir, namespace), log), workspaces: map[string]fs.LowerID{}, over: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	go func() {
		defer cancel()
		select {
		case <-s.lowers.Gone():
			log.Warn("ending: a mount of lower layers was taken away")
		case <-s.over:
			log.Info("ending: nobody needs a lower layer any more")
		case <-ctx.Done():
		}
	}()
	first := time.AfterFunc(unused, func() { s.leave(0) })
	defer first.Stop()
	ready()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			break
		}
		if err != nil { // as when no more files can be open: workspaces need the server all the same
			log.Warn("cannot accept a client", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		go s.talk(conn)
	}
	// Who is told that the server is gone must be able to start another one.
	return s.lowers.Close()
}

// lockServer takes the lock that says that a server lives.
func lockServer(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		if time.Since(begun) > lockTime {
			err = ErrServed
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func socketName(namespace uint64) string { return fmt.Sprintf("%d.sock", namespace) }

// server is what the connections share.
type server struct {
	log    *slog.Logger
	lowers *fs.Lowers
	over   chan struct{} // closed when nobody needs it

	mu         sync.Mutex
	workspaces map[string]fs.LowerID
	clients    int
	ended      bool
}

// enter counts a client, unless the server is about to end.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.clients++
	return true
}

// leave ends the server when the last client has left and there is no workspace.
func (s *server) leave(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients -= n; s.clients == 0 && len(s.workspaces) == 0 && !s.ended {
		s.ended = true
		close(s.over)
	}
}

// talk serves one connection.
func (s *server) talk(conn net.Conn) {
	defer conn.Close()
	if uid, err := socket.PeerUID(conn); err != nil || int(uid) != os.Geteuid() {
		s.log.Warn("refused a client", "uid", uid, "error", err)
		return
	}
	if !s.enter() {
		return
	}
	defer s.leave(1)
	in, out := json.NewDecoder(bufio.NewReader(conn)), json.NewEncoder(conn)
	for {
		var req request
		if in.Decode(&req) != nil {
			return
		}
		rep, err := s.answer(req)
		if err != nil {
			if !errors.Is(err, errNeedPacks) {
				s.log.Warn("request failed", "request", req.Op, "workspace", req.ID, "error", err)
			}
			rep = reply{Message: err.Error(), Problem: "other"}
			for name, is := range problems {
				if errors.Is(err, is) {
					rep.Problem = name
				}
			}
		}
		if out.Encode(rep) != nil {
			return
		}
	}
}

func (s *server) answer(req request) (reply, error) {
	switch req.Op {
	case opAdd:
		lower, err := s.add(req)
		return reply{Lower: lower}, err
	case opRelease:
		s.release(req.ID)
		return reply{}, nil
	case opList:
		s.mu.Lock()
		defer s.mu.Unlock()
		return reply{Workspaces: slices.Sorted(maps.Keys(s.workspaces))}, nil
	}
	return reply{}, fmt.Errorf("unknown request %q", req.Op)
}

// add shows the checkpoint of a workspace.
func (s *server) add(req request) (fs.Lower, error) {
	hash, err := cas.ParseHash(req.Record)
	if err != nil {
		return fs.Lower{}, err
	}
	packs := make([]cas.PackID, len(req.Packs))
	for i, text := range req.Packs {
		if packs[i], err = cas.ParsePackID(text); err != nil {
			return fs.Lower{}, err
		}
	}
	id := fs.LowerID{Record: hash, XAttrs: req.XAttrs}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, again := s.workspaces[req.ID]
	if !s.lowers.Has(id) && len(packs) == 0 {
		return fs.Lower{}, errNeedPacks
	}
	lower, err := s.lowers.Add(id, packs)
	if err != nil {
		return fs.Lower{}, err
	}
	if again {
		s.lowers.Release(before)
	}
	s.workspaces[req.ID] = id
	return lower, nil
}

// release says that a workspace is gone.
func (s *server) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lower, ok := s.workspaces[id]; ok {
		delete(s.workspaces, id)
		s.lowers.Release(lower)
	}
}
