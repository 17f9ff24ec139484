package tree

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// An Op says what happened to a path. It is the letter that people see.
type Op byte

// The operations.
const (
	Added    Op = 'A'
	Deleted  Op = 'D'
	Modified Op = 'M' // a file's content or flags, or a symlink's target
	Metadata Op = 'm' // mode, time, extended attributes or owner, and not the content
	Type     Op = 'T' // it is of another kind now
	Renamed  Op = 'R' // it was at another path, with the same content
)

// String returns the letter.
func (o Op) String() string { return string(rune(o)) }

// A Change is one difference between two trees.
type Change struct {
	Op   Op
	Path string // slash path below the roots
	From string // where it was, of what was renamed
	Old  *Entry // nil when added
	New  *Entry // nil when deleted
}

// DiffOptions choose what counts as a difference.
type DiffOptions struct {
	Owner bool // a changed owner is one of metadata
	// Renames finds what was renamed among what was added and deleted: see [Diff].
	Renames bool
	// TooMany is called when there is too much of that to look for all renames; nil:
	// nobody asks.
	TooMany func()
	// Paths limits the comparison to these slash paths below the roots and to what
	// lies below them; none: everything. Nothing else is read.
	Paths []string
}

// Diff calls fn for every difference between the directories a and b, in the
// order of [Walk]. Every path is reported once. What two directories share, and
// what two large directories share in whole segments, is not read.
//
// An added or deleted directory is followed by each path below it. When a path
// was a directory on one side only, the change of kind is followed by what was
// below it, deleted or added. A directory whose only difference is its time is
// left out when a direct entry of it was added, deleted or changed its kind,
// since that explains the time. The metadata of the roots themselves lies
// outside their trees and is not compared.
//
// With renames, a file that is not empty, or a directory that is not, which was deleted
// at one path and has been added with the same content at another is one change at the
// new path, whatever else of its metadata differs. Nothing is listed below such a
// directory, in which everything is the same. Each path is part of one change only:
// larger directories come first, then what kept its name, then the first paths. At most
// [MaxRenames] entries are looked at for it.
//
// An error that fn returns ends the comparison and is returned as it is. A path
// longer than [MaxPath] fails.
func Diff(ctx context.Context, r *Reader, a, b cas.Hash, opt DiffOptions, fn func(Change) error) error {
	d := differ{ctx: ctx, r: r, opt: opt, only: opt.Paths, emit: fn}
	if opt.Renames && a != b {
		if err := d.findRenames(a, b, MaxRenames); err != nil {
			return err
		}
	}
	return d.dirs("", a, b)
}

// A differ holds what does not change during one Diff.
type differ struct {
	ctx  context.Context
	r    *Reader
	opt  DiffOptions
	only scope
	emit func(Change) error

	search *search // it only gathers what was added and deleted
	moved  moves
}

// A scope is the paths that a comparison is limited to; none: everything.
type scope []string

// has reports whether a path is one of them or lies below one.
func (s scope) has(path string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(p string) bool { return Under(path, p) })
}

// leads reports whether something at or below a path is one of them.
func (s scope) leads(path string) bool {
	return s.has(path) || slices.ContainsFunc(s, func(p string) bool { return Under(p, path) })
}

// Under reports whether a slash path is dir or lies below it.
func Under(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// dirs compares what is below two directories at one path.
func (d *differ) dirs(dir string, a, b cas.Hash) error {
	return d.merge(dir, a, b, func(old, new *Entry) error {
		e := old
		if old == nil {
			e = new
		} else if new != nil && *old == *new {
			return nil
		}
		path, err := deeper(dir, e.Name)
		if err != nil || !d.only.leads(path) {
			return err
		}
		return d.pair(path, old, new)
	})
}

// pair compares the entries of one name.
func (d *differ) pair(path string, old, new *Entry) error {
	switch {
	case old == nil:
		return d.whole(Added, path, new)
	case new == nil:
		return d.whole(Deleted, path, old)
	case old.Kind != new.Kind:
		if err := d.report(Type, path, old, new); err != nil {
			return err
		}
		if old.Kind == Dir {
			return d.below(Deleted, path, old.Hash)
		}
		if new.Kind == Dir {
			return d.below(Added, path, new.Hash)
		}
		return nil
	case old.Kind == Dir:
		changed := false
		var err error
		if d.search == nil && d.only.has(path) {
			changed, err = d.dirChanged(path, old, new)
		}
		if err != nil {
			return err
		}
		if changed {
			if err := d.report(Metadata, path, old, new); err != nil {
				return err
			}
		}
		if d.search != nil {
			return d.search.later(path, old.Hash, new.Hash)
		}
		return d.dirs(path, old.Hash, new.Hash)
	case old.Size != new.Size || old.Hash != new.Hash || old.Target != new.Target:
		return d.report(Modified, path, old, new)
	case d.metadata(old, new) || old.Flags != new.Flags || !sameTime(old, new):
		return d.report(Metadata, path, old, new)
	}
	return nil
}

// metadata reports whether the metadata differs in more than the time.
func (d *differ) metadata(old, new *Entry) bool {
	return old.Mode != new.Mode || old.XAttrs != new.XAttrs ||
		d.opt.Owner && (old.Owned != new.Owned || old.UID != new.UID || old.GID != new.GID)
}

func sameTime(old, new *Entry) bool {
	return old.MtimeSec == new.MtimeSec && old.MtimeNsec == new.MtimeNsec
}

// errExplained ends the search of dirChanged.
var errExplained = errors.New("the directory's time is explained")

// dirChanged reports whether a directory's own metadata is to be reported. It
// looks at the direct entries first if it must: they come after the directory.
func (d *differ) dirChanged(path string, old, new *Entry) (bool, error) {
	if d.metadata(old, new) {
		return true, nil
	}
	if sameTime(old, new) {
		return false, nil
	}
	err := d.merge(path, old.Hash, new.Hash, func(old, new *Entry) error {
		if old == nil || new == nil || old.Kind != new.Kind {
			return errExplained
		}
		return nil
	})
	if errors.Is(err, errExplained) {
		return false, nil
	}
	return err == nil, err
}

// whole reports an entry that stands on one side only and all below it.
func (d *differ) whole(op Op, path string, e *Entry) error {
	if d.only.has(path) {
		if d.search != nil {
			return d.search.add(op, path, e)
		}
		if done, err := d.move(op, path, e); done || err != nil {
			return err
		}
	}
	var err error
	if op == Added {
		err = d.report(op, path, nil, e)
	} else {
		err = d.report(op, path, e, nil)
	}
	if err != nil || e.Kind != Dir {
		return err
	}
	return d.below(op, path, e.Hash)
}

// below reports all that lies below a directory that stands on one side only.
func (d *differ) below(op Op, dir string, h cas.Hash) error {
	open, err := d.r.openAt(d.ctx, h, dir)
	if err != nil {
		return err
	}
	for e, err := range open.Entries(d.ctx, 0) {
		if err != nil {
			return at(dir, err)
		}
		path, err := deeper(dir, e.Name)
		if err != nil {
			return err
		}
		if !d.only.leads(path) {
			continue
		}
		if err := d.whole(op, path, &e); err != nil {
			return err
		}
	}
	return nil
}

// report hands out copies: merge uses its entries again.
func (d *differ) report(op Op, path string, old, new *Entry) error {
	if d.search != nil || !d.only.has(path) {
		return nil
	}
	c := Change{Op: op, Path: path}
	if old != nil {
		e := *old
		c.Old = &e
	}
	if new != nil {
		e := *new
		c.New = &e
	}
	return d.emit(c)
}
