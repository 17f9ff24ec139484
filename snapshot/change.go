package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/index"
)

// Rename gives a checkpoint a name; "" takes it away. It does not move the head.
func (s *Store) Rename(ctx context.Context, ref, name string) (Checkpoint, error) {
	if name != "" {
		if err := index.ValidName(name); err != nil {
			return Checkpoint{}, fmt.Errorf("rename: %w", err)
		}
	}
	cp, err := s.Resolve(ctx, ref)
	if err != nil {
		return Checkpoint{}, err
	}
	return s.holder.Rename(ctx, cp.ID, name)
}

// GC frees what nothing refers to.
func (s *Store) GC(ctx context.Context, req GCRequest) (GCResult, error) {
	return s.holder.GC(ctx, req)
}

// RequestPurge has the next collection leave no byte of what is deleted by then, as if
// [GCRequest.Purge] were set. It is durable when it returns.
func (s *Store) RequestPurge() error { return requestPurge(s.fsys, s.dir) }

// Rename implements [Holder].
func (h *localHolder) Rename(ctx context.Context, id, name string) (Checkpoint, error) {
	before, err := h.index.Checkpoint(ctx, defaultOrg, id)
	if err != nil {
		return Checkpoint{}, err
	}
	cp, err := h.index.Rename(ctx, defaultOrg, id, name)
	if err != nil {
		return Checkpoint{}, err
	}
	h.notify(Event{Kind: Renamed, Thread: cp.Thread, Checkpoint: id, Name: name, OldName: before.Name})
	return newCheckpoint(cp), nil
}

// Artifacts implements [Holder].
func (h *localHolder) Artifacts(ctx context.Context, thread string) ([]Artifact, error) {
	list, err := h.index.Artifacts(ctx, defaultOrg, thread)
	return newArtifacts(list), err
}

// RemoveArtifact implements [Holder].
func (h *localHolder) RemoveArtifact(ctx context.Context, thread, id string) error {
	return h.index.RemoveArtifact(ctx, defaultOrg, thread, id)
}
