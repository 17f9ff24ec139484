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

// Delete removes a checkpoint and returns it as it was. Its thread's head moves
// to the newest one left; a thread without checkpoints stays. [Store.GC] frees
// the space.
func (s *Store) Delete(ctx context.Context, ref string) (Checkpoint, error) {
	cp, err := s.Resolve(ctx, ref)
	if err != nil {
		return Checkpoint{}, err
	}
	return cp, s.holder.Delete(ctx, cp.ID)
}

// DeleteThread removes a thread with all of its checkpoints and artifacts.
func (s *Store) DeleteThread(ctx context.Context, id string) error {
	return s.holder.DeleteThread(ctx, id)
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

// Delete implements [Holder].
func (h *localHolder) Delete(ctx context.Context, id string) error {
	cp, _, err := h.index.Delete(ctx, defaultOrg, id)
	if err != nil {
		return err
	}
	h.notify(Event{Kind: Deleted, Thread: cp.Thread, Checkpoint: id, OldName: cp.Name})
	return nil
}

// DeleteThread implements [Holder].
func (h *localHolder) DeleteThread(ctx context.Context, id string) error {
	if err := h.index.DeleteThread(ctx, defaultOrg, id); err != nil {
		return err
	}
	h.notify(Event{Kind: ThreadDeleted, Thread: id})
	return nil
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
