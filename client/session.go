package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// closeWait bounds how long Close waits for the daemon to take note.
const closeWait = 10 * time.Second

// maxStart bounds the first line of a session in bytes: an id and a head in JSON.
const maxStart = 16 << 10

// session is a save through the daemon. The response that began it stays open;
// the daemon ends the session when the connection breaks, however this process
// ends, and the session is over here when the daemon ends.
type session struct {
	h      *Holder
	thread string
	start  SessionStart
	over   chan struct{}      // closed when the response has ended
	cancel context.CancelFunc // breaks the connection
	ending sync.Once
	err    error // of Close

	mu   sync.Mutex
	head string
}

// Begin implements [snapshot.Holder].
func (h *Holder) Begin(ctx context.Context, req snapshot.BeginRequest) (snapshot.Session, error) {
	// Looked at here as well: JSON cannot carry every wrong one to the daemon.
	if err := validBegin(req); err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	// ctx is for beginning only; the session lives until it is closed.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	resp, err := h.send(live, request{method: http.MethodPost, path: "/v1/sessions", body: body, status: http.StatusCreated})
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	s := &session{h: h, thread: req.Thread, over: make(chan struct{}), cancel: cancel}
	lines := bufio.NewReader(io.LimitReader(resp.Body, maxStart))
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.start)
	}
	s.head = s.start.Head
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		resp.Body.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("begin a save into thread %q: %w: %w", req.Thread, ErrNoDaemon, err)
	}
	go func() {
		defer close(s.over)
		defer cancel()
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // whatever ended it, it is over
	}()
	return s, nil
}

func validBegin(req snapshot.BeginRequest) error {
	if err := index.ValidID("thread id", req.Thread); err != nil {
		return err
	}
	if req.ID != "" {
		if err := index.ValidCheckpointID(req.ID); err != nil {
			return err
		}
	}
	if req.Name != "" {
		if err := index.ValidName(req.Name); err != nil {
			return err
		}
	}
	if req.Lease != "" && !req.Beside {
		return lost(req.Thread, req.Lease)
	}
	return nil
}

// Head implements [snapshot.Session].
func (s *session) Head() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// BaseHolds implements [snapshot.Session].
func (s *session) BaseHolds() bool { return s.start.BaseHolds }

// call sends a request of this session.
func (s *session) call(ctx context.Context, r request) ([]byte, error) {
	select {
	case <-s.over:
		return nil, s.ended(snapshot.ErrSessionOver)
	default:
	}
	data, err := s.h.data(ctx, r)
	if errors.Is(err, ErrNoDaemon) {
		err = s.ended(fmt.Errorf("%w: %w", snapshot.ErrSessionOver, err))
	}
	return data, err
}

// ended says that the daemon is gone, or has ended the session.
func (s *session) ended(err error) error {
	return snapshot.WithHint(fmt.Errorf("save into thread %q: %w", s.thread, err), "nothing was published: save again; what was stored by then need not be stored anew")
}

func (s *session) path(segments ...string) string {
	return pathOf(append([]string{"v1", "sessions", s.start.ID}, segments...)...)
}

// Have implements [snapshot.Session]. A request is about one namespace.
func (s *session) Have(ctx context.Context, keys []cas.Key) ([]bool, error) {
	have := make([]bool, len(keys))
	byNS := map[cas.Namespace][]int{} // positions in keys
	for i, k := range keys {
		byNS[k.NS] = append(byNS[k.NS], i)
	}
	for ns, positions := range byNS {
		for batch := range slices.Chunk(positions, MaxKeys) {
			ask := make([]cas.Key, len(batch))
			for i, pos := range batch {
				ask[i] = keys[pos]
			}
			data, err := s.call(ctx, request{
				method: http.MethodPost, path: s.path("have"), query: url.Values{"ns": {ns.String()}}, media: Binary,
				body: AppendHashes(make([]byte, 0, len(ask)*HashSize), ask),
			})
			if err != nil {
				return nil, err
			}
			got, err := ParseMissing(data, len(ask))
			if err != nil {
				return nil, err
			}
			for i, pos := range batch {
				have[pos] = got[i]
			}
		}
	}
	return have, nil
}

// AddPack implements [snapshot.Session].
func (s *session) AddPack(ctx context.Context, id cas.PackID) error {
	_, err := s.call(ctx, request{method: http.MethodPost, path: s.path("packs", id.String()), status: http.StatusNoContent})
	return err
}

// Publish implements [snapshot.Session].
func (s *session) Publish(ctx context.Context, req snapshot.PublishRequest) (snapshot.Checkpoint, error) {
	var cp snapshot.Checkpoint
	if req.Name != "" {
		if err := index.ValidName(req.Name); err != nil {
			return cp, err
		}
	}
	body, err := json.Marshal(Publish{Record: req.Record.String(), Name: req.Name, Artifacts: req.Artifacts, Received: req.Received})
	if err != nil {
		return cp, err
	}
	data, err := s.call(ctx, request{method: http.MethodPost, path: s.path("publish"), body: body, status: http.StatusCreated})
	if errors.Is(err, ErrNoDaemon) {
		// The connection broke: the daemon may have ended before or after it
		// published.
		return cp, snapshot.WithHint(err, "snapfs list shows whether the checkpoint was published before the daemon ended")
	}
	if err != nil {
		return cp, err
	}
	if err := json.Unmarshal(data, &cp); err != nil {
		return cp, fmt.Errorf("reply of the daemon to a publish: %w", err)
	}
	s.mu.Lock()
	s.head = cp.ID
	s.mu.Unlock()
	return cp, nil
}

// AddArtifact implements [snapshot.Session].
func (s *session) AddArtifact(ctx context.Context, a snapshot.Artifact) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, request{method: http.MethodPost, path: s.path("artifacts"), body: body, status: http.StatusNoContent})
	return err
}

// Close implements [snapshot.Session]. The daemon has ended the session when it
// returns, so that the next save into the thread finds it free.
func (s *session) Close() error {
	s.ending.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		_, err := s.call(ctx, request{method: http.MethodDelete, path: s.path(), status: http.StatusNoContent})
		if !errors.Is(err, snapshot.ErrSessionOver) {
			s.err = err
		}
		s.cancel()
		<-s.over
	})
	return s.err
}
