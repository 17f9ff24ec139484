package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Publish implements [index.Index].
func (ix *Index) Publish(ctx context.Context, p index.Publish) (index.Checkpoint, error) {
	cp, err := ix.publish(ctx, p)
	if err != nil {
		return index.Checkpoint{}, fmt.Errorf("publish record %s: %w", p.Record, err)
	}
	return cp, nil
}

func (ix *Index) publish(ctx context.Context, p index.Publish) (out index.Checkpoint, err error) {
	if err := ix.enter(ctx); err != nil {
		return out, err
	}
	defer ix.leave()
	if err := index.ValidID("organization", p.Org); err != nil {
		return out, err
	}
	if p.Name != "" {
		if err := index.ValidName(p.Name); err != nil {
			return out, err
		}
	}
	rec, err := ix.load(ctx, p.Record)
	if err != nil {
		return out, err
	}
	if err := p.Received.Validate(); err != nil {
		return out, err
	}
	if p.Received.IsZero() && rec.Parent != p.ExpectedHead {
		return out, fmt.Errorf("%w record: its parent is %q, the expected head %q", index.ErrInvalid, rec.Parent, p.ExpectedHead)
	}
	for _, a := range p.Artifacts {
		if err := a.Validate(); err != nil {
			return out, err
		}
	}
	s := ix.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leases[key{p.Org, rec.Thread}].Admits(rec.Thread, p.Lease, ix.opt.Now()); err != nil {
		return out, err
	}
	if err := s.admit(p, rec); err != nil {
		return out, err
	}
	t := s.touch(p.Org, rec.Thread)
	cp := &index.Checkpoint{Record: rec, RecordHash: p.Record, Seq: s.seq, Name: p.Name, Status: index.Ready, Received: p.Received}
	s.checkpoints[key{p.Org, rec.ID}] = cp
	s.published[s.seq] = published{p.Org, rec.ID, p.Record}
	t.order = append(t.order, cp)
	t.Checkpoints++
	t.NewBytes += rec.NewBytes
	t.Head = rec.ID
	for _, a := range p.Artifacts {
		t.addArtifact(a)
	}
	return clone(cp), nil
}

// load reads and verifies one record, without the lock.
func (ix *Index) load(ctx context.Context, hash cas.Hash) (index.Record, error) {
	at := cas.Key{NS: cas.Records, Hash: hash}
	data, err := ix.opt.Records(ctx, hash)
	if err != nil {
		return index.Record{}, fmt.Errorf("read %s: %w", at, err)
	}
	if cas.Data.Sum(data) != hash {
		return index.Record{}, fmt.Errorf("read %s: %w", at, cas.ErrCorrupt)
	}
	return index.DecodeRecord(data)
}

// admit checks a publish against what is there.
func (s *State) admit(p index.Publish, rec index.Record) error {
	if t := s.threads[key{p.Org, rec.Thread}]; t != nil && t.deleting {
		return fmt.Errorf("thread %q: %w", rec.Thread, index.ErrDeleting)
	}
	if cp := s.checkpoints[key{p.Org, rec.ID}]; cp != nil && s.isDeleting(p.Org, cp) {
		return fmt.Errorf("checkpoint %q: %w", rec.ID, index.ErrDeleting)
	}
	if s.checkpoints[key{p.Org, rec.ID}] != nil {
		return fmt.Errorf("checkpoint %q: %w", rec.ID, index.ErrDuplicateID)
	}
	t := s.threads[key{p.Org, rec.Thread}]
	if t == nil {
		t = &thread{Thread: index.Thread{ID: rec.Thread}}
	}
	if t.Head != p.ExpectedHead {
		return fmt.Errorf("thread %q: %w: it is %q, not %q", rec.Thread, index.ErrStaleHead, t.Head, p.ExpectedHead)
	}
	if p.Empty && t.Artifacts > 0 {
		return fmt.Errorf("thread %q has %d artifacts: %w", rec.Thread, t.Artifacts, index.ErrStaleHead)
	}
	for i, a := range p.Artifacts {
		if _, taken := t.findArtifact(a.ID); taken {
			return fmt.Errorf("artifact %q in thread %q: %w", a.ID, rec.Thread, index.ErrDuplicateID)
		}
		if slices.ContainsFunc(p.Artifacts[:i], func(b index.Artifact) bool { return a.ID == b.ID }) {
			return fmt.Errorf("artifact %q: %w", a.ID, index.ErrDuplicateID)
		}
	}
	return t.nameIsFree(p.Name)
}
