package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// DiffOptions of [Store.Diff].
type DiffOptions struct {
	Owner bool // owners count too
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

// rootChanged compares the metadata of two root directories but for times.
func rootChanged(a, b tree.Entry, opt DiffOptions) bool {
	return a.Mode != b.Mode || a.XAttrs != b.XAttrs || (opt.Owner && (a.UID != b.UID || a.GID != b.GID))
}

func sameTime(a, b index.Record) bool {
	return a.Root.MtimeSec == b.Root.MtimeSec && a.Root.MtimeNsec == b.Root.MtimeNsec
}
