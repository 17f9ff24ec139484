package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// localSession is a save through the holder in this process.
type localSession struct {
	h      *localHolder
	req    BeginRequest
	head   string
	isNew  bool // the thread did not exist
	ending sync.Once

	mu   sync.Mutex
	over bool
}

// Begin implements [Holder]. A thread has one save at a time: the second fails
// at once.
func (h *localHolder) Begin(ctx context.Context, req BeginRequest) (Session, error) {
	if err := index.ValidID("thread id", req.Thread); err != nil {
		return nil, err
	}
	if err := h.early(ctx, req); err != nil {
		return nil, err
	}
	s := &localSession{h: h, req: req}
	h.mu.Lock()
	if other := h.saving[req.Thread]; other != nil {
		h.mu.Unlock()
		return nil, fmt.Errorf("thread %s is being saved by process %d: %w", quoted(req.Thread), other.req.PID, ErrBusy)
	}
	h.saving[req.Thread] = s
	h.mu.Unlock()

	t, err := h.index.Thread(ctx, defaultOrg, req.Thread)
	switch {
	case errors.Is(err, index.ErrThreadNotFound):
		s.isNew = true
	case err != nil:
		return nil, errors.Join(err, s.Close())
	case req.Empty && t.Checkpoints > 0:
		err := fmt.Errorf("thread %s has %d checkpoints: %w", quoted(req.Thread), t.Checkpoints, ErrThreadNotEmpty)
		return nil, errors.Join(WithHint(err, "fork into a thread that does not exist yet"), s.Close())
	}
	s.head = t.Head
	return s, nil
}

// early refuses an id or a name that is taken or not valid. The publish looks
// again.
func (h *localHolder) early(ctx context.Context, req BeginRequest) error {
	if req.ID != "" {
		if err := index.ValidCheckpointID(req.ID); err != nil {
			return err
		}
		_, err := h.index.Checkpoint(ctx, defaultOrg, req.ID)
		if err == nil {
			return fmt.Errorf("checkpoint %s: %w", quoted(req.ID), index.ErrDuplicateID)
		}
		if !errors.Is(err, index.ErrCheckpointNotFound) {
			return err
		}
	}
	if req.Name == "" {
		return nil
	}
	if err := index.ValidName(req.Name); err != nil {
		return err
	}
	cp, err := h.index.Named(ctx, defaultOrg, req.Thread, req.Name)
	if err == nil {
		return fmt.Errorf("checkpoint %s of thread %s is named %s: %w", cp.ID, quoted(req.Thread), quoted(req.Name), index.ErrDuplicateName)
	}
	if errors.Is(err, index.ErrCheckpointNotFound) || errors.Is(err, index.ErrThreadNotFound) {
		return nil
	}
	return err
}

// Head implements [Session].
func (s *localSession) Head() string { return s.head }

func (s *localSession) alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return fmt.Errorf("save into thread %s: %w", quoted(s.req.Thread), ErrSessionOver)
	}
	return nil
}

// Have implements [Session].
func (s *localSession) Have(ctx context.Context, keys []cas.Key) ([]bool, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	locs, err := s.h.index.Locate(ctx, keys)
	have := make([]bool, len(locs))
	for i, l := range locs {
		have[i] = !l.IsZero()
	}
	return have, err
}

// AddPack implements [Session].
func (s *localSession) AddPack(ctx context.Context, id cas.PackID) error {
	if err := s.alive(); err != nil {
		return err
	}
	objects, err := local.Adopt(s.h.dir, id)
	if err != nil {
		return err
	}
	return s.h.index.AddLocations(ctx, objects)
}

// Publish implements [Session]. The mounts show the checkpoint when it returns.
func (s *localSession) Publish(ctx context.Context, req PublishRequest) (Checkpoint, error) {
	if err := s.alive(); err != nil {
		return Checkpoint{}, err
	}
	if err := local.CheckSpace(s.h.dir); err != nil {
		return Checkpoint{}, err
	}
	rec, err := s.h.record(ctx, req.Record)
	if err != nil {
		return Checkpoint{}, err
	}
	if rec.Thread != s.req.Thread {
		return Checkpoint{}, fmt.Errorf("record of thread %s in a save of %s: %w", quoted(rec.Thread), quoted(s.req.Thread), index.ErrInvalid)
	}
	cp, err := s.h.index.Publish(ctx, index.Publish{Org: defaultOrg, Record: req.Record, ExpectedHead: s.head, Name: req.Name})
	if err != nil {
		return Checkpoint{}, err
	}
	s.h.notify(Event{Thread: cp.Thread, Checkpoint: cp.ID, Name: cp.Name, NewThread: s.isNew})
	s.mu.Lock()
	s.head, s.isNew = cp.ID, false
	s.mu.Unlock()
	return newCheckpoint(cp), nil
}

// record reads a checkpoint's record.
func (h *localHolder) record(ctx context.Context, hash cas.Hash) (index.Record, error) {
	key := cas.Key{NS: cas.Records, Hash: hash}
	at, err := h.index.Locate(ctx, []cas.Key{key})
	if err != nil {
		return index.Record{}, err
	}
	if at[0].IsZero() {
		return index.Record{}, fmt.Errorf("record %s: %w", hash, cas.ErrNotFound)
	}
	data, err := h.packs.ReadAt(key, at[0], nil)
	if err != nil {
		return index.Record{}, err
	}
	return index.DecodeRecord(data)
}

// Close implements [Session].
func (s *localSession) Close() error {
	s.ending.Do(func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		if s.h.saving[s.req.Thread] == s {
			delete(s.h.saving, s.req.Thread)
		}
	})
	return nil
}
