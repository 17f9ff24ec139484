package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// RestoreOptions of [Store.Restore]. Only Dir is needed.
type RestoreOptions struct {
	Dir     string        // missing or empty, or what a killed restore of the same left
	Mode    restore.Mode  // Overlay and Mirror also take a directory with content
	Include []policy.Rule // only what these match; none: everything
	Exclude []policy.Rule // and not what these match
	Strict  bool          // fail if Exclude leaves anything out
	Force   bool          // also what is refused otherwise, as deleting more than is written
	DryRun  bool          // change nothing
	// Plan gets what is to be done with each entry, by path, before it is done, or
	// refused; nil: nobody asks.
	Plan          func([]restore.Change)
	Owner         *restore.Owner // to whom everything is to belong; nil: the caller
	PreserveOwner bool           // everything gets its saved owner
	NoHardlinks   bool           // files of several names become several files
	Artifacts     string         // a missing or empty directory for the checkpoint's artifacts; "": not wanted
	Conversation  string         // a missing file for its conversation; "": not wanted
	// Resuming is called when a restore goes on with what a killed one left; nil:
	// nothing.
	Resuming func()
}

// RestoreResult is what a restore made.
type RestoreResult struct {
	Checkpoint Checkpoint
	restore.Result
}

// Restore copies the files of a checkpoint into a directory: see [restore.Tree],
// [restore.ErrNotEmpty] and [restore.ErrUnfinished]. After a failure the directory is as
// it was, but for a [restore.PartialError]. Artifacts and conversation are there when
// the files are, or not at all. The result of a restore that is refused for what it
// would do holds the counts of its plan.
func (s *Store) Restore(ctx context.Context, ref string, opt RestoreOptions) (RestoreResult, error) {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return RestoreResult{}, err
	}
	files, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Include: opt.Include, Exclude: opt.Exclude})
	if err != nil {
		return RestoreResult{}, err
	}
	dir, err := s.outside(opt.Dir)
	if err == nil {
		_, err = s.instant(realPath(dir))
	}
	if err != nil {
		return RestoreResult{}, err
	}
	ropt := restore.Options{
		Files: files, Mode: opt.Mode, Strict: opt.Strict, Force: opt.Force, DryRun: opt.DryRun, Plan: opt.Plan,
		Owner: opt.Owner, PreserveOwner: opt.PreserveOwner, NoHardlinks: opt.NoHardlinks,
		Checkpoint: cp.ID, Resuming: opt.Resuming,
	}
	if opt.Mode != restore.New {
		if !opt.Force {
			real := realPath(dir)
			why, err := hazard(s.dir, real)
			if err != nil {
				return RestoreResult{}, err
			}
			if home, err := os.UserHomeDir(); why == "" && err == nil && Within(realPath(home), real) {
				why = "is around a home directory"
			}
			if why != "" {
				return RestoreResult{}, WithHint(fmt.Errorf("restore into %s, which %s: %w", quoted(opt.Dir), why, ErrRefused), "restore into a directory of its own, or add --force")
			}
		}
		if ropt.Coverage, err = s.coverage(ctx, rec); err != nil {
			return RestoreResult{}, fmt.Errorf("checkpoint %s: %w", cp.ID, err)
		}
	}
	src := source(rec)
	if rec.Totals.Redacted > 0 {
		src.Redacted = func() (map[string][]secrets.Range, error) { return s.overwritten(ctx, rec) }
	}
	done := RestoreResult{Checkpoint: cp}
	err = s.withBeside(ctx, cp, dir, opt, func() error {
		progress.From(ctx).Expect(int64(rec.Totals.Files), int64(rec.Totals.Bytes))
		done.Result, err = restore.Tree(local.ByChecksum(ctx), s.blobs, s.trees, src, dir, ropt)
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", cp.ID, restoreHint(err, cp, opt))
		}
		return nil
	})
	return done, err
}

// RestoreBeside delivers the artifacts and the conversation of a checkpoint, as the options
// say, when files has made its files in the directory; if that fails, neither is there.
func (s *Store) RestoreBeside(ctx context.Context, ref string, opt RestoreOptions, files func() error) error {
	cp, err := s.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	dir, err := s.outside(opt.Dir)
	if err != nil {
		return err
	}
	return s.withBeside(ctx, cp, dir, opt, files)
}

// withBeside writes what was asked for besides the files, has files make these, and moves
// the rest to its places.
func (s *Store) withBeside(ctx context.Context, cp Checkpoint, dir string, opt RestoreOptions, files func() error) error {
	beside, err := s.prepareBeside(ctx, cp, dir, opt)
	if err != nil {
		return err
	}
	defer beside.discard()
	if err := files(); err != nil {
		return err
	}
	if err := beside.publish(); err != nil {
		return fmt.Errorf("the files of checkpoint %s are in %s, but not all that was asked for beside them: %w", cp.ID, quoted(opt.Dir), err)
	}
	return nil
}

// outside returns a path to write to, made absolute, and refuses one in the store.
func (s *Store) outside(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("restore into %s: %w", quoted(path), err)
	}
	if s.dir == "" {
		return abs, nil
	}
	store, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	if Within(abs, s.dir) || Within(realPath(abs), store) {
		return "", WithHint(fmt.Errorf("restore into %s, inside the store: %w", quoted(path), ErrRefused), "choose a place outside of %s", quoted(s.dir))
	}
	return abs, nil
}

// restoreHint adds to an error of a restore what to do about it.
func restoreHint(err error, cp Checkpoint, opt RestoreOptions) error {
	var unfinished *restore.UnfinishedError
	var foreign *restore.ForeignError
	var partial *restore.PartialError
	switch {
	case errors.As(err, &partial):
		return WithHint(err, "the same restore goes on with it when it is done again; until then what it has deleted is in %s", quoted(filepath.Join(opt.Dir, restore.AsidePattern)))
	case errors.As(err, &unfinished):
		return unfinishedHint(err, unfinished, opt.Dir)
	case errors.As(err, &foreign):
		return WithHint(err, "move it away and the unfinished restore goes on, or choose another directory")
	case errors.Is(err, restore.ErrNotEmpty):
		return WithHint(err, "choose a directory that is missing or empty; --overlay writes over what is there, --mirror also deletes what the checkpoint does not have")
	case errors.Is(err, restore.ErrDeletesMore):
		return WithHint(fmt.Errorf("%w: %w", err, ErrRefused), "--dry-run lists all of it, --force does it")
	case errors.Is(err, restore.ErrInTheWay) && opt.Force:
		return WithHint(fmt.Errorf("%w: %w", err, ErrRefused), "make it one that can be changed (unmounted, no longer immutable, yours), or leave it out with --exclude")
	case errors.Is(err, restore.ErrInTheWay):
		return WithHint(fmt.Errorf("%w: %w", err, ErrRefused), "move it away, leave it out with --exclude, or delete it with --force, if it is not mounted, immutable or somebody else's")
	case errors.Is(err, restore.ErrExcluded):
		return WithHint(fmt.Errorf("%w: %w", err, ErrForbidden), "without --strict they are skipped and counted")
	case errors.Is(err, restore.ErrCollision):
		return WithHint(err, "choose a directory on a file system that tells them apart, or leave some out with --exclude")
	}
	return err
}

// unfinishedHint says what to type about the unfinished restore in dir.
func unfinishedHint(err error, e *restore.UnfinishedError, dir string) error {
	switch {
	case e.Living:
		return WithHint(err, "wait for its end, and try again")
	case e.Checkpoint == "": // no marker of a restore, or an unreadable one
		return WithHint(err, "remove what is in %s, and start again", quoted(dir))
	case e.Merge != "":
		return WithHint(err, "snapfs restore --%s %s %s, with the same flags, goes on with it; another restore with --overlay or --mirror replaces it with --force", e.Merge, quoted(e.Checkpoint), quoted(dir))
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
