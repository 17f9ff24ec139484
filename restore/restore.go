// Package restore turns a tree of content-addressed objects into a live
// directory.
//
// The content of a checkpoint is untrusted: every entry is made relative to an
// open directory, by a single name that was checked when it was decoded,
// exclusively and without following links, so that nothing is ever written
// outside the target whatever the tree or a process beside us tries.
//
// A restore is whole or not there. Into a missing directory it works in a
// private one beside it and renames it at the end; into an existing empty one it
// works in place behind a marker file. All that will be needed is looked for
// before the first write, and every byte is verified on its way.
//
// One that was killed leaves its marker, which says what was being restored. The
// same restore goes on from there: what is complete is not written again.
package restore

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

var (
	// ErrNotEmpty: the target exists and is not an empty directory.
	ErrNotEmpty = errors.New("the target is not an empty directory")
	// ErrUnfinished: an earlier restore into the target did not end.
	ErrUnfinished = errors.New("an unfinished restore left this directory incomplete")
)

// Source is what is restored.
type Source struct {
	Root  cas.Hash   // root directory object
	Stat  tree.Entry // the root directory's own metadata
	Links cas.Blob   // hard link groups; zero: none
	// Redacted returns, by path, where values were overwritten in the files with the flag
	// [tree.Redacted]: by ascending offset, none overlapping another. It is called when a
	// live file is compared with such a one. Nil, and a path that is not there: nowhere.
	Redacted func() (map[string][]secrets.Range, error)
}

// Options of [Tree].
type Options struct {
	Files       *policy.Files // which entries to restore; nil: all
	Mode        Mode          // what may be in the target, and what becomes of it
	Coverage    *Coverage     // of a mirror: what the checkpoint speaks about; nil: all
	Force       bool          // also what deletes more than it writes, or what the policy protects; and over another unfinished restore
	Strict      bool          // fail when Files excludes anything that the checkpoint has
	Owner       *Owner        // to whom everything is to belong; nil: the caller
	NoHardlinks bool          // files of several names become several files
	// PreserveOwner gives everything to its saved owner.
	PreserveOwner bool
	DryRun        bool           // change nothing
	Plan          func([]Change) // gets all that is to be done, by path, before it is; nil: nobody asks
	Checkpoint    string         // what the source is called, for the marker
	Resuming      func()         // called when the restore goes on with what a killed one left; nil: nothing
	step          func()         // of tests: called before each change of the file system
}

func (o Options) resuming() {
	if o.Resuming != nil {
		o.Resuming()
	}
}

// A Problem is something that could not be made as it was saved although the
// entry itself was restored.
type Problem struct {
	Path string // relative to the target, which is "." itself
	Err  error
}

// Result counts what was restored.
type Result struct {
	Files int64 // files and symlinks that were written
	Dirs  int64
	Bytes int64
	// What became of entries, of the target's as well as the checkpoint's.
	Created, Replaced, Deleted, Kept int64
	Skipped                          int64 // that an exclude left out, without what lies below them
	Incomplete                       []Problem
	// Redacted are the files that have zero bytes in place of secrets now and did not have
	// them before, in order, the first 10,000 of RedactedFiles.
	Redacted      []string
	RedactedFiles int64
}

// of is the count for an operation.
func (r *Result) of(op Op) *int64 {
	switch op {
	case Create:
		return &r.Created
	case Replace:
		return &r.Replaced
	case Delete:
		return &r.Deleted
	case Keep:
		return &r.Kept
	}
	return &r.Skipped
}

// Tree restores src into dir. By default that must be missing or empty, or hold what a
// killed restore of the same source with the same options left there: that is gone on
// with. It fails with [ErrNotEmpty] or [ErrUnfinished] before it touches anything, with
// [cas.ErrNotFound] or [cas.ErrCorrupt] when the store lacks or lost content; then the
// target is as it was, but for one that was resumed: it is as it was before the first
// restore. [Overlay] and [Mirror] also take a live directory: see merge.
func Tree(ctx context.Context, store cas.Store, r *tree.Reader, src Source, dir string, opt Options) (res Result, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return Result{}, err
	}
	if opt.Files == nil {
		if opt.Files, err = policy.CompileFiles(policy.FilesOptions{NoDefaults: true}); err != nil {
			return Result{}, err
		}
	}
	m := newMarker(src, opt)
	root, l, live, err := inspect(dir, m, opt)
	if err != nil {
		return Result{}, err
	}
	if root != nil {
		defer root.close()
		defer l.release()
	}
	if live && l != nil { // an earlier one may have changed something
		defer func() {
			var partial *PartialError
			if err != nil && !errors.As(err, &partial) {
				err = &PartialError{Dir: tree.Quote(dir), Err: err}
			}
		}()
	}
	links := &linkGroups{}
	if !opt.NoHardlinks {
		if links, err = readLinks(ctx, store, src.Links); err != nil {
			return Result{}, err
		}
	}
	if l == nil && opt.Files.All() {
		if err := checkRoom(ctx, r, src, links, dir, live); err != nil {
			return Result{}, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// More workers than processors: creating a file waits for the disk.
	w := newWriter(ctx, cancel, store, r, links, 2*runtime.GOMAXPROCS(0))
	w.onStep, w.owners = opt.step, newOwners(src, opt)
	if src.Redacted != nil {
		w.redacted = sync.OnceValues(src.Redacted)
	}
	all := within{scope: opt.Files.Root()}
	p, err := w.planned(root, live, l != nil, src, dir, opt)
	if err != nil {
		return p.result(), err
	}
	if live {
		all.plan = p.todo
	}
	if !live || all.plan != nil {
		if w.again, err = check(ctx, store, r, src, links, all); err != nil {
			return Result{}, err
		}
	}
	switch {
	case opt.DryRun:
		return p.result(), nil
	case live:
		return w.merge(root, l, m, src, dir, p)
	}
	if root != nil {
		res, err = w.inPlace(root, l, m, src, dir, opt)
	} else {
		res, err = w.staged(m, src, dir, opt)
	}
	res.Created = res.Files + res.Dirs
	if err == nil {
		res.name(&w.zeroed)
	}
	return res, err
}

// planned makes the plan of a restore that needs one, shows it to who asked, and fails
// when it must not be carried out. Other restores have none.
func (w *writer) planned(root *target, live, resumed bool, src Source, dir string, opt Options) (*planner, error) {
	if !live && !opt.DryRun && !opt.Strict && opt.Plan == nil {
		return nil, nil
	}
	if !live {
		root = nil // it is empty
	}
	p, err := w.plan(root, src, resumed, opt)
	if err != nil {
		return nil, err
	}
	if opt.Plan != nil {
		opt.Plan(p.list)
	}
	if err := p.refusal(); err != nil {
		return p, err
	}
	if opt.DryRun && (!live || p.todo != nil) {
		if folds, full := foldsNear(dir); folds {
			return p, w.checkNames(full, src, opt.Files, p.todo)
		}
	}
	return p, nil
}

// CheckEmpty fails with [ErrNotEmpty] or [ErrUnfinished] unless a directory is missing or
// empty, as [Tree] does before it makes anything. It reports whether it is missing.
func CheckEmpty(dir string) (missing bool, err error) {
	t, l, _, err := inspect(dir, marker{}, Options{})
	if err != nil {
		return false, err
	}
	l.release()
	if t == nil {
		return true, nil
	}
	t.close()
	return false, nil
}

// inspect looks at the target without changing it. It returns nil for one that is
// missing, and live for one with content into which the restore may go all the same. Of
// one in which a restore was killed that this one goes on with, or replaces, it returns
// the marker.
func inspect(dir string, m marker, opt Options) (t *target, l *lock, live bool, err error) {
	t, err = openTarget(dir)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		if _, err := os.Lstat(dir); err == nil {
			return nil, nil, false, fmt.Errorf("%s is a dangling symlink: %w", tree.Quote(dir), ErrNotEmpty)
		}
		return nil, nil, false, nil
	case errors.Is(err, unix.ENOTDIR):
		return nil, nil, false, fmt.Errorf("%s is not a directory: %w", tree.Quote(dir), ErrNotEmpty)
	case err != nil:
		return nil, nil, false, err
	}
	defer func() {
		if err != nil {
			l.release()
			t.close()
		}
	}()
	l, err = t.locked(tree.Quote(dir))
	switch {
	case err != nil:
	case l == nil:
		err = t.checkEmpty(dir, false)
		if errors.Is(err, ErrNotEmpty) && opt.Mode != New {
			live, err = true, nil
		}
	case l.Stage != "":
		err = l.refuse(tree.Quote(dir))
	case l.Merge != "":
		t.stage = l.Aside
		if live = opt.Mode != New && (opt.Force || l.Restore == m.Restore && l.Merge == opt.Mode.String()); !live {
			err = l.refuse(tree.Quote(dir))
		}
	case l.Restore != m.Restore:
		err = l.refuse(tree.Quote(dir))
	}
	if err == nil && live && !opt.DryRun && errors.Is(unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		err = &UnfinishedError{Dir: tree.Quote(dir), Living: true} // it has not begun to write
	}
	return t, l, live, err
}

// inPlace restores into an existing empty directory, which may be a mountpoint or
// somebody's current directory, or goes on with what a killed restore left in it; then
// l is that one's marker.
func (w *writer) inPlace(root *target, l *lock, m marker, src Source, dir string, opt Options) (Result, error) {
	shown := tree.Quote(dir)
	undo := func(err error) (Result, error) { return Result{}, errors.Join(err, root.undo()) }
	if l == nil {
		m.ACL = root.defaultACL()
		w.step()
		made, err := root.mark(m, shown)
		if err != nil {
			return Result{}, fmt.Errorf("restore into %s: %w", shown, err)
		}
		defer made.release()
		// Whatever a failure leaves behind is known as unfinished.
		root.acl = m.ACL
		// Between the first look and the marker somebody else may have come.
		if err := root.checkEmpty(dir, true); err != nil {
			return undo(err)
		}
	} else {
		if err := w.survey(root, l, src, opt.Files, shown); err != nil {
			return Result{}, err // the directory stays as it is
		}
		root.acl = l.ACL
		opt.resuming()
	}
	if folds, full := root.folds(); folds {
		if err := w.checkNames(full, src, opt.Files, nil); err != nil {
			return undo(err)
		}
	}
	if err := root.clearDefaultACL(); err != nil {
		return undo(err)
	}
	if err := w.fill(root, src, within{scope: opt.Files.Root()}); err != nil {
		return undo(err)
	}
	if err := root.sync(); err != nil {
		return undo(err)
	}
	err := w.finishRoot(root, src.Stat, 0o700, func() error { return root.unmark(shown) })
	if err != nil {
		return Result{}, err
	}
	return w.result, nil
}

// MakeParents creates the directory dir and those above it, as far as they are missing,
// and returns what it made, innermost first, also when it fails.
func MakeParents(dir string) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || !errors.Is(err, iofs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o777); err != nil {
			return made, fmt.Errorf("restore: %w", cas.NoSpace(err))
		}
		made = append([]string{missing[i]}, made...)
	}
	return made, nil
}
