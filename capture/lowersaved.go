package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// takeSaved takes an entry that only the saved tree has, with all below it.
func (w *worker) takeSaved(d *directory, e *child) {
	if d.path != d.saved.path {
		if err := w.movable(d.scope, e.entry, d.path); err != nil {
			w.cancel(err)
			return
		}
	}
	if e.entry.Kind != tree.Dir {
		w.meter.Add(1, int64(e.entry.Size))
	}
	e.ok = true
}

// belowSaved finds out what lies below the directories that only the saved tree has. An
// object of a directory has the sum of that for all directories in it. So where the new
// directory is cut into objects as the saved one is, it is enough to know what lies below
// those that changed, and the others share the rest in whatever way. Else each is looked at.
func (w *worker) belowSaved(d *directory) error {
	if d.saved == nil {
		return nil
	}
	saved, err := w.lower.Trees.Open(w.ctx, d.saved.hash)
	if err != nil {
		return err
	}
	below := func(e tree.Entry) (tree.Totals, error) {
		dir, err := w.lower.Trees.Open(w.ctx, e.Hash)
		if err != nil {
			return tree.Totals{}, err
		}
		return dir.Root().Totals, nil
	}
	children := map[string]*child{}
	for i := range d.children {
		if e := &d.children[i]; e.ok {
			children[e.entry.Name] = e
		}
	}
	same := len(children) == saved.Len()
	w.lower.mu.Lock()
	hidden := w.lower.shown[d.saved.path].hidden
	w.lower.mu.Unlock()
	for name := range hidden {
		if !same {
			break
		}
		_, err := saved.Lookup(w.ctx, name)
		if errors.Is(err, tree.ErrNotFound) || children[name] == nil {
			same = false
		} else if err != nil {
			return err
		}
	}
	if !saved.AsCut(len(children), same) {
		for _, e := range children {
			if e.saved && e.kind == unix.DT_DIR {
				if e.below, err = below(e.entry); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for leaf, err := range saved.Leaves(w.ctx) {
		if err != nil {
			return err
		}
		var first *child
		rest := leaf.Below
		for _, entry := range leaf.Entries {
			if entry.Kind != tree.Dir {
				continue
			}
			if e := children[entry.Name]; e != nil && e.saved {
				if first == nil {
					first = e
				}
				continue
			}
			known, err := below(entry)
			if err == nil {
				err = rest.Sub(known)
			}
			if err != nil {
				return err
			}
		}
		if first != nil {
			first.below = rest
			w.meter.Add(int64(rest.Files), int64(rest.Bytes))
		}
	}
	return nil
}

// movable goes through what has another path than it was saved at: the rules, which go by
// paths, must let it in there, too.
func (w *worker) movable(scope policy.Scope, e tree.Entry, dir string) error {
	path := dir + e.Name
	decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
	if !decision.Keep {
		return fmt.Errorf("%w: the policy leaves out %s, which was moved", ErrNeedsScan, tree.Quote(path))
	}
	if n := len(path); n > tree.MaxPath {
		w.problem(path, fmt.Errorf("its path has %d bytes, at most %d can be saved", n, tree.MaxPath))
		return nil
	}
	if slices.Contains(w.ignored, e.Name) {
		return fmt.Errorf("%w: the ignore file %s was moved", ErrNeedsScan, tree.Quote(path))
	}
	if e.Kind != tree.Dir {
		return nil
	}
	below, err := w.lower.Trees.Open(w.ctx, e.Hash)
	if err != nil {
		return err
	}
	for e, err := range below.Entries(w.ctx, 0) {
		if err != nil {
			return err
		}
		if err := w.movable(sub, e, path+"/"); err != nil {
			return err
		}
	}
	return nil
}

// savedIgnore reads an ignore file that only the saved tree has.
func (w *worker) savedIgnore(e tree.Entry) (content []byte, is bool, err error) {
	if e.Kind != tree.File {
		return nil, false, nil
	}
	if e.Size > maxIgnoreFile {
		return nil, false, fmt.Errorf("%w: an ignore file is longer than it may be", ErrNeedsScan)
	}
	content, err = w.lower.Blobs.Read(w.ctx, cas.Key{NS: cas.Files, Hash: e.Hash}, nil)
	return content, true, err
}

// carry takes over what was found out about files of the saved tree that still show.
func (c *walker) carry(groups [][]string) ([][]string, error) {
	l := c.lower
	if l == nil {
		return groups, nil
	}
	for _, group := range l.Links {
		var now []string
		for _, path := range group {
			if at, ok := l.where(path); ok {
				now = append(now, at)
			}
		}
		if len(now) > 1 {
			slices.Sort(now)
			groups = append(groups, now)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	if l.moved && !c.opt.Screen.Allowed.Empty() {
		return nil, fmt.Errorf("%w: directories were moved, and what looks like a secret may be none by where it is", ErrNeedsScan)
	}
	for _, s := range l.Secrets {
		if at, ok := l.where(s.Path); ok {
			c.secrets = append(c.secrets, SecretFile{Path: at, Report: s.Report})
		}
	}
	for _, f := range l.Ignore {
		at, ok := l.where(f.Path)
		if !ok {
			continue
		}
		if _, err := l.Trees.Find(c.ctx, l.Root, f.Path); errors.Is(err, tree.ErrNotFound) {
			continue // it was no content itself, and is not in the workspace
		} else if err != nil {
			return nil, err
		}
		if at != f.Path {
			return nil, fmt.Errorf("%w: the ignore file %s was moved", ErrNeedsScan, tree.Quote(f.Path))
		}
		c.ignoreFiles = append(c.ignoreFiles, f)
	}
	return groups, nil
}
