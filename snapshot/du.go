package snapshot

import (
	"context"
	"fmt"
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
	d := &weigher{s: s, weights: map[cas.Key]weight{}, fn: fn}
	if p.entry.Kind == tree.Dir {
		dir, err := s.trees.Open(ctx, p.entry.Hash)
		if err != nil {
			return p.wrong(err)
		}
		for e, err := range dir.Entries(ctx, 0) {
			if err == nil {
				err = d.entry(ctx, path.Join(p.path, e.Name), e)
			}
			if err != nil {
				return p.wrong(err)
			}
		}
	}
	if err := d.entry(ctx, p.path, p.entry); err != nil {
		return p.wrong(err)
	}
	return p.wrong(d.flush(ctx))
}

// A weigher tells what entries take. It asks for places of many objects at once, and for
// each once.
type weigher struct {
	s       *Store
	fn      func(Sizes) error
	weights map[cas.Key]weight // of objects that were asked for
	waiting []weighed
	asked   []cas.Key // whose weight is to be asked for
}

// weight is what an object takes, in bytes.
type weight struct{ plain, stored int64 }

// weighed is an entry of which all objects are known.
type weighed struct {
	sizes Sizes
	below map[cas.Key]struct{}
}

// entry counts an entry and what lies below it.
func (d *weigher) entry(ctx context.Context, at string, e tree.Entry) error {
	below := map[cas.Key]struct{}{}
	all := reach{source: d.s.blobs, seen: below, found: nothing}
	out := Sizes{Path: NewPath(at)}
	var err error
	switch e.Kind {
	case tree.File:
		out.Files, out.Bytes = 1, e.Size
		err = all.blob(ctx, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
	case tree.Symlink:
		out.Files = 1
	case tree.Dir:
		var dir *tree.Directory
		if dir, err = d.s.trees.Open(ctx, e.Hash); err == nil {
			totals := dir.Root().Totals
			out.Files, out.Dirs, out.Bytes = totals.Files, totals.Dirs, totals.Bytes
			err = all.tree(ctx, cas.Key{NS: cas.Trees, Hash: e.Hash})
		}
	}
	if err == nil && !e.XAttrs.IsZero() {
		err = all.tree(ctx, cas.Key{NS: cas.Trees, Hash: e.XAttrs})
	}
	if err != nil {
		return err
	}
	d.waiting = append(d.waiting, weighed{out, below})
	for key := range below {
		if _, known := d.weights[key]; !known {
			d.weights[key] = weight{}
			d.asked = append(d.asked, key)
		}
	}
	if len(d.asked) < weighMost {
		return nil
	}
	return d.flush(ctx)
}

// weighMost is how many places are asked for at once.
const weighMost = 4096

// flush asks for what is missing and tells of the entries that wait for it.
func (d *weigher) flush(ctx context.Context) error {
	for keys := range slices.Chunk(d.asked, weighMost) {
		locs, err := d.s.holder.Locate(ctx, keys)
		if err != nil {
			return err
		}
		for i, l := range locs {
			if l.IsZero() {
				return fmt.Errorf("%s: %w", keys[i], cas.ErrNotFound)
			}
			d.weights[keys[i]] = weight{int64(l.Plain), local.RecordSize(l)}
		}
	}
	d.asked = d.asked[:0]
	for _, w := range d.waiting {
		for key := range w.below {
			w.sizes.UniqueBytes += d.weights[key].plain
			w.sizes.StoredBytes += d.weights[key].stored
		}
		if err := d.fn(w.sizes); err != nil {
			return err
		}
	}
	d.waiting = d.waiting[:0]
	return nil
}
