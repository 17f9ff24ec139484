package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// sessions are the saves in progress, by the id that they have in URLs.
type sessions struct {
	mu    sync.Mutex
	open  map[string]*openSession
	ended bool          // none begins any more
	empty chan struct{} // not nil: to be closed when the last one ends
}

// openSession is one save. done is closed when it is over.
type openSession struct {
	snapshot.Session
	id   string
	done chan struct{}
}

func newSessions() *sessions { return &sessions{open: map[string]*openSession{}} }

// add takes a session over.
func (s *sessions) add(session snapshot.Session) (*openSession, error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	o := &openSession{Session: session, id: hex.EncodeToString(id[:]), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errors.Join(client.ErrClosing, session.Close())
	}
	s.open[o.id] = o
	return o, nil
}

// find returns an open session.
func (s *sessions) find(id string) (*openSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[id]
	if o == nil {
		return nil, fmt.Errorf("session %.40q: %w", id, snapshot.ErrSessionOver)
	}
	return o, nil
}

// end ends a session; a second call does nothing.
func (s *sessions) end(o *openSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[o.id] != o {
		return nil
	}
	delete(s.open, o.id)
	close(o.done)
	if len(s.open) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
	return o.Close()
}

// drain waits until no session is open or ctx ends, ends the rest, and lets none
// begin.
func (s *sessions) drain(ctx context.Context) {
	s.mu.Lock()
	if len(s.open) > 0 {
		if s.empty == nil {
			s.empty = make(chan struct{})
		}
		empty := s.empty
		s.mu.Unlock()
		select {
		case <-empty:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	s.ended = true
	var left []*openSession
	for _, o := range s.open {
		left = append(left, o)
	}
	s.mu.Unlock()
	for _, o := range left {
		_ = s.end(o) // ending a session in this process does not fail
	}
}

// The inputs repeat their common fields: huma leaves those of an embedded type
// that is not exported empty.

type sessionInput struct {
	ID string `path:"id" doc:"from the first line of the response that began the session"`
}

// begin starts a save. The reply's first line is sent at once; the response ends
// with the session, and the session with the connection.
func (s *Server) begin(ctx context.Context, in *struct{ Body snapshot.BeginRequest }) (*huma.StreamResponse, error) {
	if s.refusing() {
		return nil, client.ErrClosing
	}
	session, err := s.store.Holder().Begin(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	o, err := s.sessions.add(session)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer func() {
			if err := s.sessions.end(o); err != nil {
				s.log.Error("cannot end a session", "error", err)
			}
		}()
		_, w := humago.Unwrap(hc)
		hc.SetHeader("Content-Type", "application/x-ndjson")
		hc.SetStatus(http.StatusCreated)
		if err := jsonFormat.Marshal(w, client.SessionStart{ID: o.id, Head: o.Head(), BaseHolds: o.BaseHolds()}); err != nil {
			return // the peer has gone
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-hc.Context().Done():
		case <-o.done:
		}
	}}, nil
}

// endSession ends a save. It is over when the reply is sent.
func (s *Server) endSession(_ context.Context, in *sessionInput) (*struct{}, error) {
	o, err := s.sessions.find(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.sessions.end(o)
}

type haveInput struct {
	ID      string `path:"id"`
	NS      string `query:"ns" required:"true" enum:"files,artifacts,trees,conversations,records" doc:"namespace of the hashes"`
	RawBody []byte `contentType:"application/octet-stream" doc:"hashes of 32 bytes"`
}

func (s *Server) have(ctx context.Context, in *haveInput) (*binaryOutput, error) {
	o, err := s.sessions.find(in.ID)
	if err != nil {
		return nil, err
	}
	ns, err := cas.ParseNamespace(in.NS)
	if err != nil {
		return nil, badRequest(err)
	}
	keys, err := client.ParseHashes(ns, in.RawBody)
	if err != nil {
		return nil, badRequest(err)
	}
	have, err := o.Have(ctx, keys)
	if err != nil {
		return nil, err
	}
	return binary(client.AppendMissing(nil, have)), nil
}

type packInput struct {
	ID   string `path:"id"`
	Pack string `path:"pack" doc:"name of the pack, 32 hex digits"`

	hasBody bool
}

// Resolve implements [huma.Resolver].
func (in *packInput) Resolve(hc huma.Context) []error {
	r, _ := humago.Unwrap(hc)
	in.hasBody = r.ContentLength != 0
	return nil
}

// addPack takes over a closed pack. Once begun it is not broken off: a pack half
// taken over would be garbage.
func (s *Server) addPack(ctx context.Context, in *packInput) (*struct{}, error) {
	if in.hasBody {
		return nil, fmt.Errorf("a pack's bytes in the request: %w", snapshot.ErrUnsupported)
	}
	o, err := s.sessions.find(in.ID)
	if err != nil {
		return nil, err
	}
	id, err := cas.ParsePackID(in.Pack)
	if err != nil {
		return nil, badRequest(err)
	}
	return nil, o.AddPack(context.WithoutCancel(ctx), id)
}

type publishInput struct {
	ID   string `path:"id"`
	Body client.Publish
}

// publish makes a record the head of its thread. Once begun it is not broken off.
func (s *Server) publish(ctx context.Context, in *publishInput) (*checkpointOutput, error) {
	o, err := s.sessions.find(in.ID)
	if err != nil {
		return nil, err
	}
	record, err := cas.ParseHash(in.Body.Record)
	if err != nil {
		return nil, badRequest(err)
	}
	cp, err := o.Publish(context.WithoutCancel(ctx), snapshot.PublishRequest{
		Record: record, Name: in.Body.Name, Artifacts: in.Body.Artifacts, Received: in.Body.Received,
	})
	if err != nil {
		return nil, err
	}
	return &checkpointOutput{Body: cp}, nil
}
