package tree

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/snapfs/snapfs/cas"
)

// Contents tells a [Checker] of what is no object of the trees namespace.
type Contents interface {
	// Sound reports whether the contents of all files among the entries are whole.
	// An error ends the check.
	Sound(ctx context.Context, entries []Entry) (bool, error)
	// Fault says what is wrong with the content of one file; nil: nothing is.
	Fault(e Entry) error
}

// A Checker checks trees. Each object is read and decoded once, however many trees
// share it; only where something is wrong are objects read again, to tell the
// paths. Of each object about 200 bytes are remembered. It is not for concurrent
// use.
type Checker struct {
	r        *Reader
	contents Contents
	nodes    map[cas.Hash]*node
	sets     map[cas.Hash]error // extended attributes that were looked at
}

// NewChecker returns a checker of trees that r reads. It reads them through r's
// cache. Without contents those of files are not looked at.
func NewChecker(r *Reader, contents Contents) *Checker {
	return &Checker{r: r, contents: contents, nodes: map[cas.Hash]*node{}, sets: map[cas.Hash]error{}}
}

// Checked is what a check of one tree has found.
type Checked struct {
	Sound  bool   // nothing is wrong with it
	Known  bool   // the root object could be read
	Totals Totals // what it counts, if it is known
}

// Check looks at everything below the directory root: all objects of the trees
// namespace, sets of extended attributes included, are there and agree with each
// other, above all in their totals, and the files' contents are whole. It calls fn
// for each thing that is wrong, in the order of [Walk]. The path is that of the
// entry; of a lost object that of its directory, empty for the root, and what would
// lie below it is not known. An error that fn returns ends the check. A few objects can
// stand for any number of paths, so after 100,000 of them fn is told that there are
// more, and no further one.
func (c *Checker) Check(ctx context.Context, root cas.Hash, fn func(path string, err error) error) (Checked, error) {
	n, err := c.visit(ctx, root)
	if err != nil {
		return Checked{}, err
	}
	if n.err != nil {
		return Checked{}, fn("", n.err)
	}
	res := Checked{Known: true, Totals: n.totals}
	if err := n.checkRoot(root); err != nil {
		return res, fn("", err)
	}
	if !n.suffers("") {
		res.Sound = true
		return res, nil
	}
	told := 0
	err = c.tell(ctx, "", root, func(path string, err error) error {
		if told++; told > maxTold {
			return errTold
		}
		return fn(path, err)
	})
	if errors.Is(err, errTold) {
		err = fn("", fmt.Errorf("more than %d paths suffer, the others are not named: %w", maxTold, cas.ErrCorrupt))
	}
	return res, err
}

// maxTold bounds the findings about one tree.
const maxTold = 100_000

var errTold = errors.New("enough was told")

// A frame is an object whose elements are being visited.
type frame struct {
	hash cas.Hash
	o    *object
	next int // element
}

// visit looks at an object and all below it that was not looked at before. What it
// returns as an error says nothing about the object. A stack of its own takes trees
// that are deeper than a path can be.
func (c *Checker) visit(ctx context.Context, root cas.Hash) (*node, error) {
	var stack []*frame
	push := func(h cas.Hash) error {
		o, err := c.load(ctx, h)
		switch {
		case err == nil:
			stack = append(stack, &frame{hash: h, o: o})
		case !isDamage(err) || ctx.Err() != nil:
			return err
		default:
			c.nodes[h] = &node{err: err}
		}
		return nil
	}
	if c.nodes[root] == nil {
		if err := push(root); err != nil {
			return nil, err
		}
	}
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		if f.next < f.o.count() {
			h, ok := f.o.child(f.next)
			f.next++
			if ok && c.nodes[h] == nil {
				if err := push(h); err != nil {
					return nil, err
				}
			}
			continue
		}
		n, err := c.node(ctx, f.o)
		if err != nil {
			return nil, err
		}
		c.nodes[f.hash] = n
		stack = stack[:len(stack)-1]
	}
	return c.nodes[root], nil
}

// load reads a directory object.
func (c *Checker) load(ctx context.Context, h cas.Hash) (*object, error) {
	v, err := c.r.fetch(ctx, "directory", h, func(data string) (decoded, error) { return decodeObject(data) })
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, corrupt("directory", h, invalid("directory", "it is a set of extended attributes"))
	}
	return o, nil
}

// isDamage tells what is wrong with a store from what keeps it from being read at
// all.
func isDamage(err error) bool {
	var path *iofs.PathError
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) || errors.As(err, &path)
}

// set looks at a set of extended attributes, once.
func (c *Checker) set(ctx context.Context, h cas.Hash) (fault, err error) {
	if fault, ok := c.sets[h]; ok {
		return fault, nil
	}
	v, err := c.r.fetch(ctx, "extended attributes", h, decodeSet)
	if _, ok := v.(xattrSet); err == nil && !ok {
		err = corrupt("extended attributes", h, invalid("extended attributes", "it is a directory"))
	}
	if err != nil && (!isDamage(err) || ctx.Err() != nil) {
		return nil, err
	}
	c.sets[h] = err
	return err, nil
}

// node makes what is remembered of an object, all below which was visited.
func (c *Checker) node(ctx context.Context, o *object) (*node, error) {
	n := newNode(o)
	err := c.look(ctx, o, looker{
		fault: func(string, error) error { n.broken = true; return nil },
		below: func(name string, _ cas.Hash, child *node) error {
			n.broken = n.broken || child.broken
			if name != "" && child.longest > 0 {
				name += "/"
			}
			n.longest = max(n.longest, len(name)+child.longest)
			return nil
		},
	})
	if o.level > 0 {
		n.endLike(c.nodes[o.item(o.count()-1).hash])
	}
	return n, err
}

// tell walks to what is wrong below a directory.
func (c *Checker) tell(ctx context.Context, dir string, h cas.Hash, fn func(string, error) error) error {
	o, err := c.load(ctx, h)
	if err != nil {
		if !isDamage(err) || ctx.Err() != nil {
			return err
		}
		return fn(dir, err) // since it was visited
	}
	in := func(name string) string {
		if name == "" {
			return dir
		}
		return join(dir, name)
	}
	return c.look(ctx, o, looker{
		fault: func(name string, err error) error { return fn(in(name), err) },
		below: func(name string, h cas.Hash, child *node) error {
			path := in(name)
			switch {
			case len(path) > MaxPath:
				return fn(dir, fmt.Errorf("%w: %w", cas.ErrCorrupt, tooDeep(path)))
			case child.suffers(path):
				return c.tell(ctx, path, h, fn)
			}
			return nil
		},
		long: func(name string) error {
			if path := in(name); len(path) > MaxPath {
				return fn(dir, fmt.Errorf("%w: %w", cas.ErrCorrupt, tooDeep(path)))
			}
			return nil
		},
	})
}

// A looker is told what an object's elements are.
type looker struct {
	// fault is what is wrong with an entry, or, without a name, with the object.
	fault func(name string, err error) error
	// below is a directory that could be read, or, without a name, a segment.
	below func(name string, h cas.Hash, child *node) error
	long  func(name string) error // an entry of another kind; may be nil
}

// look goes over an object whose children were visited.
func (c *Checker) look(ctx context.Context, o *object, l looker) error {
	if o.level > 0 {
		return c.lookSegments(o, l)
	}
	entries := make([]Entry, o.count())
	for i := range entries {
		entries[i] = o.entry(i)
	}
	sound := true
	if c.contents != nil {
		var err error
		if sound, err = c.contents.Sound(ctx, entries); err != nil {
			return err
		}
	}
	var sum Totals
	known := true
	for _, e := range entries {
		serr := sum.addEntry(&e)
		if !e.XAttrs.IsZero() {
			fault, err := c.set(ctx, e.XAttrs)
			if err == nil && fault != nil {
				err = l.fault(e.Name, fault)
			}
			if err != nil {
				return err
			}
		}
		if e.Kind != Dir {
			if l.long != nil {
				if err := l.long(e.Name); err != nil {
					return err
				}
			}
			if e.Kind == File && !sound {
				if fault := c.contents.Fault(e); fault != nil {
					if err := l.fault(e.Name, fault); err != nil {
						return err
					}
				}
			}
			known = known && serr == nil
			continue
		}
		child := c.nodes[e.Hash]
		fault := child.err
		if fault == nil {
			fault = child.checkRoot(e.Hash)
		}
		var err error
		if fault != nil {
			known = false
			err = l.fault(e.Name, fault)
		} else if serr = errors.Join(serr, sum.Add(child.totals)); serr != nil {
			known = false
			err = l.fault(e.Name, fmt.Errorf("%w: %w", cas.ErrCorrupt, serr))
		}
		if err == nil && fault == nil {
			err = l.below(e.Name, e.Hash, child)
		}
		if err != nil {
			return err
		}
	}
	if known && sum != o.totals {
		return l.fault("", fmt.Errorf("%w: %w", cas.ErrCorrupt, invalid("directory", "its totals are %+v, below it are %+v", o.totals, sum)))
	}
	return nil
}

// lookSegments is look for a list of segments.
func (c *Checker) lookSegments(o *object, l looker) error {
	for i := range o.count() {
		it := o.item(i)
		child := c.nodes[it.hash]
		fault := child.err
		if fault == nil {
			next, last := "", i+1 == o.count()
			if !last {
				next = o.name(i + 1)
			}
			if fault = child.checkSegment(&it, o.level, next, last); fault != nil {
				fault = corrupt("directory", it.hash, fault)
			}
		}
		var err error
		if fault != nil {
			err = l.fault("", fault)
		}
		if err == nil && child.err == nil {
			err = l.below("", it.hash, child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
