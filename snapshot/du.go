package snapshot

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/tree"
)

// Sizes is what a path of a checkpoint takes, with all below it. All numbers are bytes
// unless they say otherwise.
type Sizes struct {
	Path
	Files       uint64 `json:"files"` // number
	Dirs        uint64 `json:"dirs"`  // number
	Bytes       uint64 `json:"bytes"` // of files by their lengths, once a name
	UniqueBytes int64  `json:"uniqueBytes"`
	StoredBytes int64  `json:"storedBytes"`
}

// Du calls fn for each entry of the directory at a path of a checkpoint, and then for the
// directory itself; or for the file or symlink there. What several entries share counts
// for each of them, and once for the directory. UniqueBytes is the length of the objects
// behind a path, contents and directories, each once; StoredBytes what they take in packs.
func (s *Store) Du(ctx context.Context, ref, at string, fn func(Sizes) error) error {
	p, err := s.find(ctx, ref, at)
	if err != nil {
		return err
	}
	whole := map[cas.Key]struct{}{}
	if p.entry.Kind == tree.Dir {
		d, err := s.trees.Open(ctx, p.entry.Hash)
		if err != nil {
			return p.wrong(err)
		}
		for e, err := range d.Entries(ctx, 0) {
			if err != nil {
				return p.wrong(err)
			}
			below := map[cas.Key]struct{}{}
			sizes, err := s.sizes(ctx, path.Join(p.path, e.Name), e, below)
			if err != nil {
				return p.wrong(err)
			}
			if err := fn(sizes); err != nil {
				return err
			}
			maps.Copy(whole, below)
		}
	}
	sizes, err := s.sizes(ctx, p.path, p.entry, whole)
	if err != nil {
		return p.wrong(err)
	}
	return fn(sizes)
}

// sizes counts an entry and what lies below it. reached has the objects that were reached
// before, and then all.
func (s *Store) sizes(ctx context.Context, at string, e tree.Entry, reached map[cas.Key]struct{}) (Sizes, error) {
	all := reach{source: s.blobs, seen: reached, found: nothing}
	out := Sizes{Path: NewPath(at)}
	var err error
	switch e.Kind {
	case tree.File:
		out.Files, out.Bytes = 1, e.Size
		err = all.blob(ctx, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
	case tree.Dir:
		var d *tree.Directory
		if d, err = s.trees.Open(ctx, e.Hash); err == nil {
			totals := d.Root().Totals
			out.Files, out.Dirs, out.Bytes = totals.Files, totals.Dirs, totals.Bytes
			err = all.tree(ctx, cas.Key{NS: cas.Trees, Hash: e.Hash})
		}
	}
	if err == nil && !e.XAttrs.IsZero() {
		err = all.tree(ctx, cas.Key{NS: cas.Trees, Hash: e.XAttrs})
	}
	if err != nil {
		return Sizes{}, err
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(reached)), 4096) {
		var locs []cas.Location
		if locs, err = s.holder.Locate(ctx, keys); err != nil {
			return Sizes{}, err
		}
		for i, l := range locs {
			if l.IsZero() {
				return Sizes{}, fmt.Errorf("%s: %w", keys[i], cas.ErrNotFound)
			}
			out.UniqueBytes += int64(l.Plain)
			out.StoredBytes += local.RecordSize(l)
		}
	}
	return out, nil
}
