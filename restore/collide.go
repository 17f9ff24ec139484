package restore

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// ErrCollision: names of the checkpoint are one name for the target's file system.
var ErrCollision = errors.New("names collide on the target's file system")

// A CollisionError lists the groups of paths that the target's file system takes for
// one name. It is an [ErrCollision].
type CollisionError struct {
	Paths [][]string // at most maxCollisions groups
	More  bool       // there are more
}

const maxCollisions = 1000

// Error names the first groups.
func (e *CollisionError) Error() string {
	const few = 20
	var b strings.Builder
	b.WriteString(ErrCollision.Error())
	for _, group := range e.Paths[:min(few, len(e.Paths))] {
		b.WriteString("\n ")
		for _, p := range group {
			b.WriteString(" " + tree.Quote(p))
		}
	}
	if len(e.Paths) > few || e.More {
		b.WriteString("\n  and more")
	}
	return b.String()
}

// Unwrap returns [ErrCollision].
func (e *CollisionError) Unwrap() error { return ErrCollision }

// folded is what names have in common that a file system takes for one: letter by letter,
// or with full Unicode case folding and characters decomposed, as ext4 does. Trailing dots
// are nothing to a vfat.
func folded(name string, full bool) string {
	if full {
		return norm.NFD.String(cases.Fold().String(norm.NFD.String(name)))
	}
	return strings.TrimRight(strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, name), ".")
}

// CheckNames fails with a [*CollisionError] when names would be one name in a directory,
// which may be missing. Nothing is written to find that out.
func CheckNames(dir string, names []string) error {
	folds, full := foldsNear(dir)
	if !folds {
		return nil
	}
	groups := map[string][]string{}
	for _, name := range names {
		key := folded(name, full)
		groups[key] = append(groups[key], name)
	}
	found := &CollisionError{}
	for _, name := range names {
		key := folded(name, full)
		if len(groups[key]) > 1 {
			found.add(groups[key])
		}
		delete(groups, key)
	}
	if len(found.Paths) > 0 {
		return found
	}
	return nil
}

// checkNames fails with a [*CollisionError] when names of the tree are one name when they
// are folded.
func (w *writer) checkNames(full bool, src Source, files *policy.Files, plan *planDir) error {
	found := &CollisionError{}
	if err := w.collisions(found, full, src.Root, "", within{scope: files.Root(), plan: plan}); err != nil {
		return err
	}
	if len(found.Paths) > 0 {
		return found
	}
	return nil
}

// collisions finds the names of a directory, and of those in it, that would be one.
func (w *writer) collisions(found *CollisionError, full bool, hash cas.Hash, path string, in within) error {
	d, err := w.reader.Open(w.ctx, hash)
	if err != nil {
		return w.at(path, err)
	}
	groups := map[string][]string{}
	var order []string
	for e, err := range d.Entries(w.ctx, 0) {
		if err != nil {
			return w.at(path, err)
		}
		decision, sub := in.decide(&e)
		if !decision.Keep && !decision.Descend {
			continue
		}
		key := folded(e.Name, full)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], strings.Clone(path+e.Name))
		if e.Kind == tree.Dir {
			if err := w.collisions(found, full, e.Hash, path+e.Name+"/", sub); err != nil {
				return err
			}
		}
	}
	for _, key := range order {
		if len(groups[key]) > 1 {
			found.add(groups[key])
		}
	}
	return nil
}

func (e *CollisionError) add(paths []string) {
	if e.More = len(e.Paths) == maxCollisions; !e.More {
		e.Paths = append(e.Paths, paths)
	}
}
