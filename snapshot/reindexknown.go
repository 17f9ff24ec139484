package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/badger"
)

// knownState is what an index says of all that can change.
type knownState struct {
	applied     uint64                      // the last entry of the journal in it
	checkpoints map[string]Checkpoint       // by id
	artifacts   map[string][]index.Artifact // by thread: every thread is here
}

// lastKnown is the state by the index that there is, if that can be trusted; else nil.
func lastKnown(ctx context.Context, h *localHolder) *knownState {
	ix, err := badger.Open(ctx, filepath.Join(h.dir, indexDir), badger.Options{Tables: true, Logger: h.log, FS: h.fsys, BootID: h.bootID})
	if err != nil {
		return nil
	}
	defer ix.Close()
	for problem, err := range ix.Check(ctx) {
		if err != nil || problem != "" {
			return nil
		}
	}
	k, err := readState(ctx, ix)
	if err != nil {
		return nil
	}
	k.applied = ix.Applied()
	return k
}

// readState reads everything that can change.
func readState(ctx context.Context, ix index.Index) (*knownState, error) {
	k := &knownState{checkpoints: map[string]Checkpoint{}, artifacts: map[string][]index.Artifact{}}
	threads, err := collect(ix.Threads(ctx, defaultOrg, index.Page{}), newThread)
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		if k.artifacts[t.ID], err = ix.Artifacts(ctx, defaultOrg, t.ID); err != nil {
			return nil, err
		}
		cps, err := collect(ix.Checkpoints(ctx, defaultOrg, t.ID, index.Page{}), newCheckpoint)
		if err != nil {
			return nil, err
		}
		for _, cp := range cps {
			k.checkpoints[cp.ID] = cp
		}
	}
	return k, nil
}

// restore makes everything as it is known, by changes like any others. What cannot be
// is reported.
func (k *knownState) restore(ctx context.Context, h *localHolder, report func(string) error) error {
	now, err := readState(ctx, h.index)
	if err != nil {
		return err
	}
	changed := 0
	do := func(err error) error {
		if err == nil {
			changed++
		}
		return err
	}
	for _, thread := range slices.Sorted(maps.Keys(now.artifacts)) {
		if _, ok := k.artifacts[thread]; !ok {
			if err := do(h.index.DeleteThread(ctx, defaultOrg, thread)); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now.checkpoints)) {
		cp := now.checkpoints[id]
		was, ok := k.checkpoints[id]
		var err error
		if _, thread := k.artifacts[cp.Thread]; !thread {
			continue
		}
		if !ok {
			_, _, err = h.index.Delete(ctx, defaultOrg, id)
			err = do(err)
		} else if cp.Name != was.Name && was.Name == "" {
			_, err = h.index.Rename(ctx, defaultOrg, id, "")
			err = do(err)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.checkpoints)) {
		was := k.checkpoints[id]
		cp, ok := now.checkpoints[id]
		if !ok {
			if err := report(fmt.Sprintf("checkpoint %s of thread %s is lost: its record is not in the packs", quoted(id), quoted(was.Thread))); err != nil {
				return err
			}
		} else if cp.Name != was.Name && was.Name != "" {
			if _, err := h.index.Rename(ctx, defaultOrg, id, was.Name); do(err) != nil {
				return err
			}
		}
	}
	for _, thread := range slices.Sorted(maps.Keys(k.artifacts)) {
		if err := k.artifactsOf(ctx, h, thread, now.artifacts[thread], do); err != nil {
			return err
		}
	}
	if changed > 0 {
		return report(fmt.Sprintf("%d changes that the journal had lost were known to the old index and are there again", changed))
	}
	return nil
}

// artifactsOf makes a thread's artifacts those that are known.
func (k *knownState) artifactsOf(ctx context.Context, h *localHolder, thread string, now []index.Artifact, do func(error) error) error {
	for _, a := range now {
		if !slices.Contains(k.artifacts[thread], a) {
			if err := do(h.index.RemoveArtifact(ctx, defaultOrg, thread, a.ID)); err != nil && !errors.Is(err, index.ErrArtifactNotFound) {
				return err
			}
		}
	}
	for _, a := range k.artifacts[thread] {
		if !slices.Contains(now, a) {
			if err := do(h.index.AddArtifact(ctx, defaultOrg, thread, a)); err != nil {
				return err
			}
		}
	}
	return nil
}
