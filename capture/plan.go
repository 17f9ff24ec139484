package capture

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// Planned is an entry that a capture would put into the tree.
type Planned struct {
	Path string // relative to the workspace, any bytes
	Kind tree.Kind
	Size uint64 // of a file's content, or of a link's text, in bytes
}

// Plan goes through the directory dir as [Tree] does, and tells what would get into
// the tree, sorted by path. No file's content is read but for the first bytes of what
// may be a database, unless what is in it decides: with declared secrets, or where what
// looks like one is left out. Nothing is stored: the hashes of the result mean nothing.
// What shows only when files are read, as one that does not hold still, it cannot know.
func Plan(ctx context.Context, dir string, opt Options) (Result, []Planned, error) {
	plan := &plan{}
	opt.Known = nil
	got, err := treeOf(ctx, dir, discard{}, opt, plan)
	if err != nil {
		return Result{}, nil, err
	}
	slices.SortFunc(plan.entries, func(a, b Planned) int { return strings.Compare(a.Path, b.Path) })
	return got, plan.entries, nil
}

// plan gathers what would be stored. It is guarded by the walker's mutex.
type plan struct{ entries []Planned }

// planned is the hash of a file that is not read.
var planned = cas.Hash{0: 1}

// planFile takes a file as it was looked at, if it could be read.
func (w *worker) planFile(f *foundFile) {
	err := unix.Faccessat(f.dir.fd.fd, f.e.entry.Name, unix.R_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
	screen := w.opt.Screen
	if err == nil && (screen.Declared != nil || screen.Mode == policy.SecretsExclude) {
		err = w.planContent(f)
	}
	if err != nil && f.secrets.left == noReason {
		w.problem(f.dir.pathOf(f.e), vanished(err))
	}
	f.hash = planned
	w.settleFile(f, err == nil)
}

// planContent looks for secrets in a file.
func (w *worker) planContent(f *foundFile) error {
	fd, err := f.dir.fd.open(f.e.entry.Name, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	content, read := w.screening(f, &fileReader{fd: fd, left: f.st.Size, path: f.dir.pathOf(f.e), file: f, walker: w.walker})
	_, err = io.Copy(io.Discard, content)
	read(err)
	return err
}

// planDatabase takes the files of a database, or none of them.
func (w *worker) planDatabase(d *directory, u *unit) {
	parts := []*child{u.db, u.wal, u.journal}
	var files []*foundFile
	var problem error
	for _, e := range parts {
		if e == nil {
			continue
		}
		f := &foundFile{dir: d, e: e, whole: true}
		var err error
		if f.st, err = d.fd.look(e.entry.Name); err == nil {
			err = w.fits(f.st.Size)
		}
		if err != nil && problem == nil {
			problem = fmt.Errorf("%s: %w", tree.Quote(e.entry.Name), vanished(err))
		}
		files = append(files, f)
	}
	left := noReason // a database is left out as a whole
	for _, f := range files {
		if problem != nil || w.opt.Screen.Declared == nil && w.opt.Screen.Mode != policy.SecretsExclude {
			break
		}
		if err := w.planContent(f); err != nil && f.secrets.left == noReason {
			problem = fmt.Errorf("%s: %w", tree.Quote(f.e.entry.Name), vanished(err))
		}
		left = max(left, f.secrets.left)
	}
	for _, f := range files {
		switch {
		case left != noReason:
			f.secrets.left = left
			w.settleFile(f, false)
			continue
		case problem == nil:
			w.planFile(f)
			continue
		}
		w.problem(d.pathOf(f.e), problem)
		w.settleFile(f, false)
	}
}

// plans notes the entries of a directory that get into the tree.
func (c *walker) plans(d *directory) {
	if c.plan == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range d.children {
		if e := &d.children[i]; e.ok {
			c.plan.entries = append(c.plan.entries, Planned{Path: d.pathOf(e), Kind: e.entry.Kind, Size: e.entry.Size})
		}
	}
}

// discard is a writer that stores nothing.
type discard struct{}

func (discard) Put(context.Context, ...cas.Object) error { return nil }
func (discard) Flush(context.Context) error              { return nil }
func (discard) Stats() cas.WriterStats                   { return cas.WriterStats{} }
func (discard) Close() error                             { return nil }
