package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// DiffOptions of [Store.Diff].
type DiffOptions struct {
	Owner bool // owners count too
	// Paths limits the comparison to these and to what lies below them. Each must
	// be in one of the two checkpoints. None: everything.
	Paths []string
}

// Diff compares the files of two checkpoints and calls fn for each difference,
// in the order of a walk. Equal subtrees are not looked into, so its cost
// follows the difference and not the size.
func (s *Store) Diff(ctx context.Context, refA, refB string, opt DiffOptions, fn func(tree.Change) error) error {
	_, a, err := s.record(ctx, refA)
	if err != nil {
		return err
	}
	_, b, err := s.record(ctx, refB)
	if err != nil {
		return err
	}
	if fn, err = s.limited(ctx, a, b, opt.Paths, fn); err != nil {
		return fmt.Errorf("compare %s and %s: %w", a.ID, b.ID, err)
	}
	// The roots' own metadata is not in their trees. As for every directory, a
	// time that changed together with the names in it needs no line of its own.
	ra, rb := RootEntry(a), RootEntry(b)
	if rootChanged(ra, rb, opt) || (a.Root.Tree == b.Root.Tree && !sameTime(a, b)) {
		if err := fn(tree.Change{Op: tree.Metadata, Path: ".", Old: &ra, New: &rb}); err != nil {
			return err
		}
	}
	if err := tree.Diff(ctx, s.trees, a.Root.Tree, b.Root.Tree, tree.DiffOptions{Owner: opt.Owner}, fn); err != nil {
		return fmt.Errorf("compare %s and %s: %w", a.ID, b.ID, err)
	}
	return nil
}

// limited passes on to fn only what lies at or below one of the paths.
func (s *Store) limited(ctx context.Context, a, b index.Record, paths []string, fn func(tree.Change) error) (func(tree.Change) error, error) {
	if len(paths) == 0 {
		return fn, nil
	}
	wanted := make([]string, len(paths))
	for i, p := range paths {
		wanted[i] = path.Clean("/" + p)[1:]
		if wanted[i] == "" {
			return fn, nil
		}
		_, errA := s.trees.Find(ctx, a.Root.Tree, wanted[i])
		_, errB := s.trees.Find(ctx, b.Root.Tree, wanted[i])
		switch {
		case errA == nil || errB == nil:
		case errors.Is(errA, tree.ErrNotFound) && errors.Is(errB, tree.ErrNotFound):
			return nil, fmt.Errorf("%s is in neither of them: %w", quoted(p), tree.ErrNotFound)
		default:
			return nil, fmt.Errorf("%s: %w", quoted(p), errors.Join(errA, errB))
		}
	}
	return func(c tree.Change) error {
		for _, w := range wanted {
			if rest, ok := strings.CutPrefix(c.Path, w); ok && (rest == "" || rest[0] == '/') {
				return fn(c)
			}
		}
		return nil
	}, nil
}

// rootChanged compares the metadata of two root directories but for times.
func rootChanged(a, b tree.Entry, opt DiffOptions) bool {
	return a.Mode != b.Mode || a.XAttrs != b.XAttrs || (opt.Owner && (a.UID != b.UID || a.GID != b.GID))
}

func sameTime(a, b index.Record) bool {
	return a.Root.MtimeSec == b.Root.MtimeSec && a.Root.MtimeNsec == b.Root.MtimeNsec
}
