package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// pinned follows what instant workspaces need: their checkpoints, deleted or not.
func pinned(ctx context.Context, h *localHolder, r *reach) error {
	pins, err := readWorkspaces(h.dir)
	if err != nil {
		return err
	}
	for _, w := range pins {
		if err := follow(ctx, h, r, w.Record); err != nil {
			return lacking(fmt.Errorf("the checkpoint below the instant workspace %s: %w", quoted(w.Dir), err), "snapfs workspace remove "+tree.QuoteShell(w.Mountpoint()))
		}
	}
	return nil
}

// follow follows a checkpoint that the index may not know any more.
func follow(ctx context.Context, h *localHolder, r *reach, record string) error {
	hash, err := cas.ParseHash(record)
	if err != nil {
		return err
	}
	rec, err := h.record(ctx, hash)
	if err != nil {
		return err
	}
	_, err = r.checkpoint(ctx, rec, hash)
	return err
}

// pinned says which instant workspaces keep something of what was deleted. On nil it does
// nothing.
func (p *purge) pinned(ctx context.Context) error {
	if p == nil {
		return nil
	}
	pins, err := readWorkspaces(p.h.dir)
	if err != nil {
		return err
	}
	open := false
	for _, w := range pins {
		open = open || served(p.h.dir, w.Namespace)
		cp, err := p.h.index.Checkpoint(ctx, defaultOrg, w.Checkpoint)
		if err != nil && !errors.Is(err, index.ErrCheckpointNotFound) {
			return err
		}
		if err != nil || cp.Status == index.Deleting || cp.RecordHash.String() != w.Record {
			p.keep("checkpoint %s is below an instant workspace: snapfs workspace remove %s", quoted(w.Checkpoint), tree.QuoteShell(w.Mountpoint()))
		}
	}
	if open {
		p.keep("what serves instant workspaces may have packs open that are replaced: it ends with the last of them")
	}
	return nil
}
