package snapshot

import (
	"context"
	"fmt"
	"path"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// An entryAt is an entry of a checkpoint.
type entryAt struct {
	checkpoint Checkpoint
	record     index.Record
	path       string // clean; "." is the root
	entry      tree.Entry
}

// find finds the entry at a path of a checkpoint. "" and paths that would lead out of it
// mean its root, of which the entry has kind and hash only.
func (s *Store) find(ctx context.Context, ref, at string) (entryAt, error) {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return entryAt{}, err
	}
	p := entryAt{checkpoint: cp, record: rec, path: path.Clean("/" + at)[1:]}
	if p.path == "" {
		p.path = "."
	}
	p.entry, err = s.trees.Find(ctx, rec.Root.Tree, p.path)
	return p, p.wrong(err)
}

// wrong says where something went wrong; nil stays nil.
func (p entryAt) wrong(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in checkpoint %s: %w", quoted(p.path), quoted(p.checkpoint.ID), err)
}

// Ls calls fn for the entry at a path of a checkpoint, if that is a file or a
// link, or for the entries of the directory there; with recursive for all that
// lies below it. Owners are filled in.
func (s *Store) Ls(ctx context.Context, ref, at string, recursive bool, fn func(path string, e tree.Entry) error) error {
	p, err := s.find(ctx, ref, at)
	if err != nil {
		return err
	}
	owned := func(name string, e tree.Entry) error {
		if !e.Owned {
			e.UID, e.GID = p.record.Root.UID, p.record.Root.GID
		}
		return fn(name, e)
	}
	if p.entry.Kind != tree.Dir {
		return owned(p.path, p.entry)
	}
	if recursive {
		return tree.Walk(ctx, s.trees, p.entry.Hash, func(name string, e tree.Entry) error { return owned(path.Join(p.path, name), e) })
	}
	d, err := s.trees.Open(ctx, p.entry.Hash)
	if err != nil {
		return p.wrong(err)
	}
	for e, err := range d.Entries(ctx, 0) {
		if err == nil {
			err = owned(path.Join(p.path, e.Name), e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
