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
package restore

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
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
}

// Options of [Tree].
type Options struct {
	Files *policy.Files // which entries to restore; nil: all
}

// A Problem is something that could not be made as it was saved although the
// entry itself was restored.
type Problem struct {
	Path string // relative to the target, which is "." itself
	Err  error
}

// Result counts what was restored.
type Result struct {
	Files      int64 // files and symlinks
	Dirs       int64
	Bytes      int64
	Skipped    int64 // entries that an exclude left out, without what lies below them
	Incomplete []Problem
}

// Tree restores src into dir, which must be missing or empty. It fails with
// [ErrNotEmpty] or [ErrUnfinished] before it touches anything, with
// [cas.ErrNotFound] or [cas.ErrCorrupt] when the store lacks or lost content;
// then the target is as it was.
func Tree(ctx context.Context, store cas.Store, r *tree.Reader, src Source, dir string, opt Options) (Result, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Result{}, err
	}
	if opt.Files == nil {
		if opt.Files, err = policy.CompileFiles(policy.FilesOptions{NoDefaults: true}); err != nil {
			return Result{}, err
		}
	}
	exists, err := inspect(dir)
	if err != nil {
		return Result{}, err
	}
	links, err := readLinks(ctx, store, src.Links)
	if err != nil {
		return Result{}, err
	}
	again, err := check(ctx, store, r, src, links, opt.Files)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// More workers than processors: creating a file waits for the disk.
	w := newWriter(ctx, cancel, store, r, links, again, 2*runtime.GOMAXPROCS(0))
	if exists {
		return w.inPlace(src, dir, opt.Files)
	}
	return w.staged(src, dir, opt.Files)
}

// inspect looks at the target without changing it.
func inspect(dir string) (exists bool, err error) {
	t, err := openTarget(dir)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		if _, err := os.Lstat(dir); err == nil {
			return false, fmt.Errorf("%s is a dangling symlink: %w", tree.Quote(dir), ErrNotEmpty)
		}
		return false, nil
	case errors.Is(err, unix.ENOTDIR):
		return false, fmt.Errorf("%s is not a directory: %w", tree.Quote(dir), ErrNotEmpty)
	case err != nil:
		return false, err
	}
	defer t.close()
	return true, t.checkEmpty(dir, false)
}

// staged restores into a private directory beside the target and renames it.
func (w *writer) staged(src Source, dir string, files *policy.Files) (res Result, err error) {
	made, err := makeParents(filepath.Dir(dir))
	defer func() {
		if err != nil {
			for _, d := range made {
				_ = os.Remove(d) // only if still empty
			}
		}
	}()
	if err != nil {
		return Result{}, err
	}
	stage, err := os.MkdirTemp(filepath.Dir(dir), ".snapfs-restore-*")
	if err != nil {
		return Result{}, fmt.Errorf("restore beside %s: %w", tree.Quote(dir), noSpace(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(stage))
		}
	}()
	root, err := openTarget(stage)
	if err != nil {
		return Result{}, err
	}
	defer root.close()
	if err := root.clearDefaultACL(); err != nil {
		return Result{}, err
	}
	// A default ACL of the parent may have kept us out of our own directory.
	if err := unix.Fchmod(root.fd, 0o700); err != nil {
		return Result{}, fmt.Errorf("restore beside %s: %w", tree.Quote(dir), err)
	}
	// If we are killed, nobody takes what is left for whole, nor saves it.
	if err := root.mark(); err != nil {
		return Result{}, fmt.Errorf("restore beside %s: %w", tree.Quote(dir), err)
	}
	if err := w.fill(root, src, files); err != nil {
		return Result{}, err
	}
	if err := root.sync(); err != nil {
		return Result{}, err
	}
	if err := unix.Unlinkat(root.fd, capture.Marker, 0); err != nil {
		return Result{}, fmt.Errorf("remove the marker in %s: %w", stage, err)
	}
	w.finishRoot(root, src.Stat)
	// Never over something that appeared meanwhile.
	err = unix.Renameat2(unix.AT_FDCWD, stage, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system without the flag
		err = os.Rename(stage, dir)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return Result{}, fmt.Errorf("%s appeared meanwhile: %w", tree.Quote(dir), ErrNotEmpty)
	}
	if err != nil {
		return Result{}, fmt.Errorf("move the restored tree to %s: %w", tree.Quote(dir), err)
	}
	return w.result, nil
}

// inPlace restores into an existing empty directory, which may be a mountpoint
// or somebody's current directory.
func (w *writer) inPlace(src Source, dir string, files *policy.Files) (Result, error) {
	root, err := openTarget(dir)
	if err != nil {
		return Result{}, err
	}
	defer root.close()
	if err := root.mark(); err != nil {
		return Result{}, fmt.Errorf("restore into %s: %w", tree.Quote(dir), err)
	}
	// Whatever a failure leaves behind is known as unfinished.
	undo := func(err error) (Result, error) { return Result{}, errors.Join(err, root.undo()) }
	// Between the first look and the marker somebody else may have come.
	if err := root.checkEmpty(dir, true); err != nil {
		return undo(err)
	}
	if err := root.clearDefaultACL(); err != nil {
		return undo(err)
	}
	if err := w.fill(root, src, files); err != nil {
		return undo(err)
	}
	if err := root.sync(); err != nil {
		return undo(err)
	}
	if err := unix.Unlinkat(root.fd, capture.Marker, 0); err != nil {
		return Result{}, fmt.Errorf("remove the marker in %s: %w", tree.Quote(dir), err)
	}
	w.finishRoot(root, src.Stat)
	return w.result, nil
}

// makeParents creates the missing directories above the target and returns
// them, innermost first.
func makeParents(dir string) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || !errors.Is(err, iofs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o777); err != nil {
			return made, fmt.Errorf("restore: %w", noSpace(err))
		}
		made = append([]string{missing[i]}, made...)
	}
	return made, nil
}

// removeTree removes a directory with all below it, whatever their modes.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, iofs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d iofs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // before WalkDir reads it
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// noSpace marks an error that says that the disk or a quota is full.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", err, cas.ErrNoSpace)
	}
	return err
}
