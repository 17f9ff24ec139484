package tree

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
)

// Verify reads all objects of the trees namespace that the directory root is
// made of, sets of extended attributes included, and checks them against each
// other; above all it counts the totals again, which no other reader can do
// without reading everything. An object that several directories share is
// looked at once. The contents of files are not read. The first thing found
// wrong is returned.
func Verify(ctx context.Context, r *Reader, root cas.Hash) error {
	v := verifier{ctx: ctx, r: r, dirs: map[cas.Hash]Totals{}, xattrs: map[cas.Hash]bool{}}
	_, err := v.dir("", root)
	return err
}

type verifier struct {
	ctx    context.Context
	r      *Reader
	dirs   map[cas.Hash]Totals // verified ones
	xattrs map[cas.Hash]bool
}

// dir verifies a directory and returns what it counted.
func (v *verifier) dir(path string, h cas.Hash) (Totals, error) {
	if t, ok := v.dirs[h]; ok {
		return t, nil
	}
	d, err := v.r.openAt(v.ctx, h, path)
	if err != nil {
		return Totals{}, err
	}
	for c := newCursor(d); !c.done(); {
		if c.level() > 0 {
			if err := c.descend(v.ctx); err != nil {
				return Totals{}, at(path, err)
			}
			continue
		}
		if err := v.leaf(path, c.top().o); err != nil {
			return Totals{}, err
		}
		c.leave()
	}
	// Lists were checked against what they list when the cursor went down.
	v.dirs[h] = d.top.totals
	return d.top.totals, nil
}

// leaf verifies what the entries of one object of level 0 name, and its totals.
func (v *verifier) leaf(dir string, o *object) error {
	var sum Totals
	for i := range o.count() {
		e := o.entry(i)
		path, err := deeper(dir, e.Name)
		if err != nil {
			return err
		}
		if err := sum.addEntry(&e); err != nil {
			return at(path, err)
		}
		if !e.XAttrs.IsZero() && !v.xattrs[e.XAttrs] {
			if _, err := v.r.XAttrs(v.ctx, e.XAttrs); err != nil {
				return at(path, err)
			}
			v.xattrs[e.XAttrs] = true
		}
		if e.Kind == Dir {
			below, err := v.dir(path, e.Hash)
			if err == nil {
				err = sum.Add(below)
			}
			if err != nil {
				return err
			}
		}
	}
	if sum != o.totals {
		return at(dir, fmt.Errorf("%w: %w", cas.ErrCorrupt, invalid("directory", "its totals are %+v, below it are %+v", o.totals, sum)))
	}
	return nil
}
