package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/tree"
)

// RestoreOptions of [Store.Restore].
type RestoreOptions struct {
	Dir     string        // missing or empty, or what a killed restore of the same left
	Include []policy.Rule // only what these match; none: everything
	Exclude []policy.Rule // and not what these match
	// Resuming is called when a restore goes on with what a killed one left; nil:
	// nothing.
	Resuming func()
}

// RestoreResult is what a restore made.
type RestoreResult struct {
	Checkpoint Checkpoint
	restore.Result
}

// Restore copies the files of a checkpoint into a directory that is missing or
// empty, or goes on where the same restore was killed: see [restore.Tree],
// [restore.ErrNotEmpty] and [restore.ErrUnfinished]. After a failure the directory
// is as it was.
func (s *Store) Restore(ctx context.Context, ref string, opt RestoreOptions) (RestoreResult, error) {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return RestoreResult{}, err
	}
	files, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Include: opt.Include, Exclude: opt.Exclude})
	if err != nil {
		return RestoreResult{}, err
	}
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return RestoreResult{}, fmt.Errorf("restore into %s: %w", quoted(opt.Dir), err)
	}
	if s.dir != "" {
		store, err := filepath.EvalSymlinks(s.dir)
		if err != nil {
			return RestoreResult{}, fmt.Errorf("store: %w", err)
		}
		if Within(dir, s.dir) || Within(realPath(dir), store) {
			return RestoreResult{}, WithHint(fmt.Errorf("restore into %s, inside the store: %w", quoted(opt.Dir), ErrRefused), "choose a directory outside of %s", quoted(s.dir))
		}
	}
	progress.From(ctx).Expect(int64(rec.Totals.Files), int64(rec.Totals.Bytes))
	res, err := restore.Tree(local.ByChecksum(ctx), s.blobs, s.trees, source(rec), dir, restore.Options{Files: files, Checkpoint: cp.ID, Resuming: opt.Resuming})
	var unfinished *restore.UnfinishedError
	var foreign *restore.ForeignError
	switch {
	case errors.As(err, &unfinished):
		err = unfinishedHint(err, unfinished, opt.Dir)
	case errors.As(err, &foreign):
		err = WithHint(err, "move it away and the unfinished restore goes on, or choose another directory")
	case errors.Is(err, restore.ErrNotEmpty):
		err = WithHint(err, "choose a directory that is missing or empty")
	}
	if err != nil {
		return RestoreResult{}, fmt.Errorf("checkpoint %s: %w", cp.ID, err)
	}
	return RestoreResult{Checkpoint: cp, Result: res}, nil
}

// unfinishedHint says what to type about the unfinished restore in dir.
func unfinishedHint(err error, e *restore.UnfinishedError, dir string) error {
	switch {
	case e.Living:
		return WithHint(err, "wait for its end, and try again")
	case e.Checkpoint == "": // no marker of a restore, or an unreadable one
		return WithHint(err, "remove what is in %s, and start again", quoted(dir))
	case e.Stage:
		return WithHint(err, "the restore of %s that was killed goes on when it is done again; or remove %s", quoted(e.Checkpoint), quoted(dir))
	case e.Patterns:
		return WithHint(err, "snapfs restore %s %s, with the same --include and --exclude, goes on with it; or remove what is in %s", quoted(e.Checkpoint), quoted(dir), quoted(dir))
	}
	return WithHint(err, "snapfs restore %s %s goes on with it; or remove what is in %s", quoted(e.Checkpoint), quoted(dir), quoted(dir))
}

// realPath resolves the links in a path of which the end may be missing.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
}

// source is what a restore needs of a record.
func source(rec index.Record) restore.Source {
	return restore.Source{Root: rec.Root.Tree, Stat: RootEntry(rec), Links: cas.Blob{Hash: rec.Links.Hash, Size: int64(rec.Links.Size)}}
}

// RootEntry is the tree entry of a checkpoint's root directory, without a name.
func RootEntry(rec index.Record) tree.Entry {
	r := rec.Root
	return tree.Entry{
		Kind: tree.Dir, Mode: r.Mode, UID: r.UID, GID: r.GID, Hash: r.Tree,
		MtimeSec: r.MtimeSec, MtimeNsec: r.MtimeNsec, XAttrs: r.XAttrs,
	}
}

// Cat writes the content of one file of a checkpoint.
func (s *Store) Cat(ctx context.Context, ref, path string, out io.Writer) error {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return err
	}
	if path != "" && tree.CheckPath(path) != nil { // no fault of the tree's
		return fmt.Errorf("%s in checkpoint %s: %w", quoted(path), quoted(cp.ID), tree.ErrNotFound)
	}
	e, err := s.trees.Find(ctx, rec.Root.Tree, path)
	if err != nil {
		return fmt.Errorf("%s in checkpoint %s: %w", quoted(path), quoted(cp.ID), err)
	}
	if e.Kind != tree.File {
		return fmt.Errorf("%s in checkpoint %s is a %s, not a file: %w", quoted(path), quoted(cp.ID), e.Kind, ErrRefused)
	}
	if err := cas.CopyBlob(ctx, out, s.blobs, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}); err != nil {
		return fmt.Errorf("%s in checkpoint %s: %w", quoted(path), quoted(cp.ID), err)
	}
	return nil
}
