package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// A redactedFiles is what a list of secrets says about files, and a tree that was compared
// with it.
type redactedFiles struct {
	blob   index.Blob
	ranges map[string][]secrets.Range // by path
	saved  map[string]struct{}        // of these, what the tree has as the list says
	root   cas.Hash                   // zero: no tree is known to agree
}

// redacted looks whether the files in which values were overwritten are those of the
// list. A checkpoint that has the list of the one before is looked at where the trees
// differ. known and sound are of the tree.
func (v *verifier) redacted(rec index.Record, known, sound bool, bad func(string, error) error) error {
	if rec.Secrets.IsZero() && rec.Totals.Redacted == 0 {
		return nil
	}
	r := &v.files
	if r.ranges == nil || r.blob != rec.Secrets {
		*r = redactedFiles{}
		ranges, err := v.s.overwritten(v.ctx, rec)
		switch {
		case err != nil && isFinding(err):
			return nil // which was said
		case err != nil:
			return err
		}
		*r = redactedFiles{blob: rec.Secrets, ranges: ranges, saved: map[string]struct{}{}}
	}
	right, whole := true, true // all of it; nothing is lost on the way to a file
	ask := func(path string) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		delete(r.saved, path)
		e, err := v.s.trees.Find(v.ctx, rec.Root.Tree, path)
		switch {
		case errors.Is(err, tree.ErrNotFound): // it was left out
			return nil
		case err != nil && isFinding(err):
			whole = false
			return nil
		case err != nil:
			return err
		}
		if err := checkRedacted(e, r.ranges[path]); err != nil {
			right = false
			return bad(quoted(path), err)
		}
		r.saved[path] = struct{}{}
		return nil
	}
	var some []string // to be asked for
	all := !sound || r.root.IsZero()
	if !all {
		err := v.differing(r.root, rec.Root.Tree, func(path string) {
			if _, ok := r.ranges[path]; ok {
				some = append(some, path)
			}
		})
		switch {
		case errors.Is(err, errLong):
			all = true
		case err != nil:
			return bad("secrets", err)
		}
	}
	if all {
		some = slices.Sorted(maps.Keys(r.ranges))
	}
	for _, path := range some {
		if err := ask(path); err != nil {
			return err
		}
	}
	r.root = cas.Hash{}
	if known && whole && right && uint64(len(r.saved)) != rec.Totals.Redacted {
		right = false
		if err := bad("secrets", fmt.Errorf("values were overwritten in %d files of the tree, and %d of them are in the list: %w", rec.Totals.Redacted, len(r.saved), cas.ErrCorrupt)); err != nil {
			return err
		}
	}
	if sound && whole && right {
		r.root = rec.Root.Tree
	}
	return nil
}

// checkRedacted tells whether values can have been overwritten in a saved file, there.
func checkRedacted(e tree.Entry, ranges []secrets.Range) error {
	last := ranges[len(ranges)-1]
	switch {
	case e.Kind != tree.File:
		return fmt.Errorf("a %s of which values were overwritten: %w", e.Kind, cas.ErrCorrupt)
	case e.Flags&tree.Redacted == 0:
		return fmt.Errorf("values of it were overwritten, and it is not marked so: %w", cas.ErrCorrupt)
	case uint64(last.End()) > e.Size:
		return fmt.Errorf("values of it were overwritten up to byte %d, and it has %d: %w", last.End(), e.Size, cas.ErrCorrupt)
	}
	return nil
}

// differing calls each with the paths in which two sound trees differ. It fails with
// [errLong] when these are too many.
func (v *verifier) differing(from, to cas.Hash, each func(path string)) error {
	changes := 0
	return tree.Diff(v.ctx, v.s.trees, from, to, tree.DiffOptions{Owner: true}, func(c tree.Change) error {
		if changes++; changes > comparedChanges {
			return errLong
		}
		each(c.Path)
		return nil
	})
}
