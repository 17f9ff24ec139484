package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// DiffOptions of [Store.Diff] and [Comparison.Changes].
type DiffOptions struct {
	Owner bool // owners count too
	// NoRenames tells what was renamed as deleted at one path and added at another.
	NoRenames bool
	// TooMany is called when there is too much to look for all renames: see
	// [tree.MaxRenames]; nil: nobody asks.
	TooMany func()
	// Paths limits the comparison to these and to what lies below them. Each must
	// be in one of the two versions. None: everything. What was renamed is deleted or
	// added where only one of its paths is among them.
	Paths []string
}

// Diff compares the files of two checkpoints: see [Comparison.Changes].
func (s *Store) Diff(ctx context.Context, refA, refB string, opt DiffOptions, fn func(tree.Change) error) error {
	c, err := s.Compare(ctx, refA, refB)
	if err != nil {
		return err
	}
	return c.Changes(ctx, opt, fn)
}

// A Comparison is of two versions of a workspace.
type Comparison struct {
	store    *Store
	old, new version
	trees    *tree.Reader // of both
	live     *live        // the second one; nil: it is a checkpoint
}

// A version is one side of a comparison.
type version struct {
	name string        // for messages
	root tree.Entry    // the metadata of the root directory, and the hash of its tree
	rec  *index.Record // nil: of no checkpoint
	// content writes the content of the file at a path.
	content func(ctx context.Context, path string, e *tree.Entry, w io.Writer) error
}

// Compare begins to compare two checkpoints.
func (s *Store) Compare(ctx context.Context, refA, refB string) (*Comparison, error) {
	_, a, err := s.record(ctx, refA)
	if err != nil {
		return nil, err
	}
	_, b, err := s.record(ctx, refB)
	if err != nil {
		return nil, err
	}
	return &Comparison{store: s, old: s.saved(a), new: s.saved(b), trees: s.trees}, nil
}

// saved is the side of a checkpoint.
func (s *Store) saved(rec index.Record) version {
	return version{name: rec.ID, root: RootEntry(rec), rec: &rec, content: func(ctx context.Context, _ string, e *tree.Entry, w io.Writer) error {
		return cas.CopyBlob(ctx, w, s.blobs, cas.Files, blob(e))
	}}
}

// fails says of an error what was compared.
func (c *Comparison) fails(err error) error {
	return fmt.Errorf("compare %s and %s: %w", quoted(c.old.name), quoted(c.new.name), err)
}

// Changes calls fn for each difference, in the order of a walk: see [tree.Diff]. Equal
// subtrees are not looked into, so its cost follows the difference and not the size. An
// error of fn ends it.
func (c *Comparison) Changes(ctx context.Context, opt DiffOptions, fn func(tree.Change) error) error {
	a, b := &c.old.root, &c.new.root
	topt := tree.DiffOptions{Owner: opt.Owner, Renames: !opt.NoRenames, TooMany: opt.TooMany}
	var err error
	if topt.Paths, err = c.limits(ctx, opt.Paths); err != nil {
		return c.fails(err)
	}
	// The roots' own metadata is not in their trees. As for every directory, a
	// time that changed together with the names in it needs no line of its own.
	if c.live != nil {
		fn = c.live.counting(ctx, c, opt, fn)
	}
	if len(topt.Paths) == 0 && (rootChanged(a, b, opt) || (a.Hash == b.Hash && !sameTime(a, b))) {
		old, new := *a, *b
		if err := fn(tree.Change{Op: tree.Metadata, Path: ".", Old: &old, New: &new}); err != nil {
			return err
		}
	}
	if err := tree.Diff(ctx, c.trees, a.Hash, b.Hash, topt, fn); err != nil {
		return c.fails(err)
	}
	return nil
}

// limits returns the paths to which a comparison is limited; none: it is not.
func (c *Comparison) limits(ctx context.Context, paths []string) ([]string, error) {
	wanted := make([]string, len(paths))
	for i, p := range paths {
		wanted[i] = path.Clean("/" + p)[1:]
		if wanted[i] == "" {
			return nil, nil
		}
		_, errA := c.trees.Find(ctx, c.old.root.Hash, wanted[i])
		_, errB := c.trees.Find(ctx, c.new.root.Hash, wanted[i])
		switch {
		case errA == nil || errB == nil:
		case errors.Is(errA, tree.ErrNotFound) && errors.Is(errB, tree.ErrNotFound):
			return nil, fmt.Errorf("%s is in neither of them: %w", quoted(p), tree.ErrNotFound)
		default:
			return nil, fmt.Errorf("%s: %w", quoted(p), errors.Join(errA, errB))
		}
	}
	return wanted, nil
}

// rootChanged compares the metadata of two root directories but for times.
func rootChanged(a, b *tree.Entry, opt DiffOptions) bool {
	return a.Mode != b.Mode || a.XAttrs != b.XAttrs || (opt.Owner && (a.UID != b.UID || a.GID != b.GID))
}

func sameTime(a, b *tree.Entry) bool {
	return a.MtimeSec == b.MtimeSec && a.MtimeNsec == b.MtimeNsec
}
