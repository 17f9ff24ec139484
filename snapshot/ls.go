package snapshot

import (
	"context"
	"fmt"
	"path"

	"github.com/snapfs/snapfs/tree"
)

// Ls calls fn for the entry at a path of a checkpoint, if that is a file or a
// link, or for the entries of the directory there; with recursive for all that
// lies below it. Owners are filled in.
func (s *Store) Ls(ctx context.Context, ref, at string, recursive bool, fn func(path string, e tree.Entry) error) error {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return err
	}
	owned := func(p string, e tree.Entry) error {
		if !e.Owned {
			e.UID, e.GID = rec.Root.UID, rec.Root.GID
		}
		return fn(p, e)
	}
	if at = path.Clean("/" + at)[1:]; at == "" {
		at = "."
	}
	e, err := s.trees.Find(ctx, rec.Root.Tree, at)
	if err != nil {
		return fmt.Errorf("%s in checkpoint %s: %w", quoted(at), quoted(cp.ID), err)
	}
	if e.Kind != tree.Dir {
		return owned(at, e)
	}
	if recursive {
		return tree.Walk(ctx, s.trees, e.Hash, func(p string, e tree.Entry) error { return owned(path.Join(at, p), e) })
	}
	d, err := s.trees.Open(ctx, e.Hash)
	if err != nil {
		return fmt.Errorf("%s in checkpoint %s: %w", quoted(at), quoted(cp.ID), err)
	}
	for e, err := range d.Entries(ctx, 0) {
		if err == nil {
			err = owned(path.Join(at, e.Name), e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
