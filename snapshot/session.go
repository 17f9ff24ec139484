package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// localSession is a save through the holder in this process.
type localSession struct {
	h      *localHolder
	req    BeginRequest
	began  uint64 // how many sessions had begun, this one included
	head   string
	isNew  bool // the thread did not exist
	holds  bool // the request's base
	ending sync.Once

	mu        sync.Mutex
	over      bool
	packSizes map[cas.PackID]int64 // of those that were looked at; 0: not there
}

// Begin implements [Holder]. A thread has one save at a time: the second fails
// at once. Only one that has another lease, or none, is passed by: it can publish nothing
// any more.
func (h *localHolder) Begin(ctx context.Context, req BeginRequest) (Session, error) {
	if err := index.ValidID("thread id", req.Thread); err != nil {
		return nil, err
	}
	if !req.Beside {
		if err := h.index.CheckLease(ctx, defaultOrg, req.Thread, req.Lease); err != nil {
			return nil, err
		}
	}
	if err := h.early(ctx, req); err != nil {
		return nil, err
	}
	if err := h.checkLimit(0); err != nil {
		return nil, err
	}
	s := &localSession{h: h, req: req, packSizes: map[cas.PackID]int64{}}
	h.mu.Lock()
	if other := h.saving[req.Thread]; other != nil && !req.Beside && other.req.Lease == req.Lease {
		h.mu.Unlock()
		return nil, fmt.Errorf("thread %s is being saved by process %d: %w", quoted(req.Thread), other.req.PID, ErrBusy)
	}
	h.sessions++
	s.began = h.sessions
	h.live[s] = struct{}{}
	if !req.Beside {
		h.saving[req.Thread] = s
	}
	h.mu.Unlock()

	t, err := h.index.Thread(ctx, defaultOrg, req.Thread)
	s.isNew = errors.Is(err, index.ErrThreadNotFound)
	switch {
	case errors.Is(err, index.ErrDeleting):
		err := stillDeleting(fmt.Errorf("thread %s: %w", quoted(req.Thread), index.ErrDeleting))
		return nil, errors.Join(err, s.Close())
	case err != nil && !s.isNew:
		return nil, errors.Join(err, s.Close())
	case req.Empty && (t.Checkpoints > 0 || t.Artifacts > 0):
		err := fmt.Errorf("thread %s has %d checkpoints and %d artifacts: %w", quoted(req.Thread), t.Checkpoints, t.Artifacts, ErrThreadNotEmpty)
		return nil, errors.Join(WithHint(err, "fork into a thread that does not exist yet"), s.Close())
	case req.Parent != "" && req.Parent != t.Head:
		err := fmt.Errorf("thread %s: its head is %s, not %s: %w", quoted(req.Thread), quoted(t.Head), quoted(req.Parent), index.ErrStaleHead)
		if t.Head == "" {
			err = fmt.Errorf("thread %s has no checkpoints, and so no head %s: %w", quoted(req.Thread), quoted(req.Parent), index.ErrStaleHead)
		}
		return nil, errors.Join(err, s.Close())
	}
	s.head = t.Head
	if s.holds, err = h.baseHolds(ctx, req.Base); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// baseHolds looks at what a session that has begun wants to rely on: no collection
// takes from it what was reachable since.
func (h *localHolder) baseHolds(ctx context.Context, base Base) (bool, error) {
	if base.Checkpoint == "" {
		return false, nil
	}
	there, err := h.keeps(ctx, base)
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return there && len(h.distrusted) == 0, nil
}

// keeps reports whether a checkpoint is there, for users or for an instant workspace.
func (h *localHolder) keeps(ctx context.Context, base Base) (bool, error) {
	cp, err := h.index.Checkpoint(ctx, defaultOrg, base.Checkpoint)
	if err == nil && cp.Status != index.Deleting {
		return cp.RecordHash.String() == base.Record, nil
	}
	if err != nil && !errors.Is(err, index.ErrCheckpointNotFound) {
		return false, err
	}
	pins, err := readWorkspaces(h.dir)
	return slices.ContainsFunc(pins, func(w InstantWorkspace) bool { return w.Record == base.Record }), err
}

// early refuses an id or a name that is taken or not valid. The publish looks
// again.
func (h *localHolder) early(ctx context.Context, req BeginRequest) error {
	if req.ID != "" {
		if err := index.ValidCheckpointID(req.ID); err != nil {
			return err
		}
		cp, err := h.index.Checkpoint(ctx, defaultOrg, req.ID)
		if err == nil && cp.Status == index.Deleting {
			return stillDeleting(fmt.Errorf("checkpoint %s: %w", quoted(req.ID), index.ErrDeleting))
		}
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

// stillDeleting says what to do about something that is being deleted.
func stillDeleting(err error) error {
	return WithHint(err, "try again in a moment; if its deletion has failed, snapfs delete ends it")
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

// BaseHolds implements [Session].
func (s *localSession) BaseHolds() bool { return s.holds }

// Have implements [Session].
func (s *localSession) Have(ctx context.Context, keys []cas.Key) ([]bool, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	locs, err := s.h.index.Locate(ctx, keys)
	if err != nil {
		return nil, err
	}
	have := make([]bool, len(locs))
	for i, condemned := range s.h.isCondemned(keys, s.began) {
		have[i] = !locs[i].IsZero() && !condemned && s.lies(locs[i]) && !s.h.isDistrusted(keys[i], locs[i])
	}
	return have, nil
}

// lies reports whether an object's pack is there and long enough to hold it: a
// save must not rely on what a disk has lost.
func (s *localSession) lies(at cas.Location) bool {
	if s.h.packs == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return lies(s.h.dir, at, s.packSizes)
}

// AddPack implements [Session].
func (s *localSession) AddPack(ctx context.Context, id cas.PackID) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.h.adopt(ctx, id)
}

// Publish implements [Session]. The mounts show the checkpoint when it returns.
func (s *localSession) Publish(ctx context.Context, req PublishRequest) (Checkpoint, error) {
	if err := s.alive(); err != nil {
		return Checkpoint{}, err
	}
	if err := s.h.checkSpace(); err != nil {
		return Checkpoint{}, err
	}
	rec, err := s.h.record(ctx, req.Record)
	if err != nil {
		return Checkpoint{}, err
	}
	if rec.Thread != s.req.Thread {
		return Checkpoint{}, fmt.Errorf("record of thread %s in a save of %s: %w", quoted(rec.Thread), quoted(s.req.Thread), index.ErrInvalid)
	}
	artifacts, err := indexArtifacts(req.Artifacts)
	if err != nil {
		return Checkpoint{}, err
	}
	var from index.Received
	if req.Received != nil {
		from = index.Received{Store: req.Received.Store, Seq: req.Received.Sequence}
	}
	cp, err := s.h.index.Publish(ctx, index.Publish{
		Org: defaultOrg, Record: req.Record, Received: from, ExpectedHead: s.head, Name: req.Name, Artifacts: artifacts, Lease: s.req.Lease, Empty: s.req.Empty,
	})
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
	data, err := h.objects.Read(ctx, key, nil)
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
		if s.h.packs != nil {
			// A process that was killed left what it wrote; the rest is locked.
			if err := local.Sweep(s.h.fsys, s.h.dir); err != nil {
				s.h.log.Warn("cannot sweep unfinished files", "error", err)
			}
		}
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		delete(s.h.live, s)
		if s.h.saving[s.req.Thread] == s {
			delete(s.h.saving, s.req.Thread)
		}
	})
	return nil
}
