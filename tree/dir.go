package tree

import (
	"context"
	"iter"

	"github.com/snapfs/snapfs/cas"
)

// A Directory is an open directory. It keeps its root object in memory and asks its
// [Reader] for the others. It is immutable, needs no closing, and may be used
// concurrently.
type Directory struct {
	r    *Reader
	hash cas.Hash
	top  *object
}

// Root describes the directory. Its totals are what the objects claim; see
// [Verify].
func (d *Directory) Root() Root {
	return Root{Hash: d.hash, Totals: d.top.totals, Entries: d.top.entries}
}

// Len returns the number of direct entries.
func (d *Directory) Len() int { return int(d.top.entries) }

// Whole reports whether all entries are in the object that is open.
func (d *Directory) Whole() bool { return d.top.level == 0 }

// Lookup returns the entry called name. It reads one object of each level at
// most. It fails with [ErrNotFound].
func (d *Directory) Lookup(ctx context.Context, name string) (Entry, error) {
	at := d.begin()
	for {
		n := at.o.search(name)
		if n == 0 || at.o.level == 0 && at.o.name(n-1) != name {
			return Entry{}, ErrNotFound
		}
		at.i = n - 1
		if at.o.level == 0 {
			return at.o.entry(at.i), nil
		}
		var err error
		if at, err = d.r.down(ctx, at); err != nil {
			return Entry{}, err
		}
	}
}

// Entries yields the entries in name order, beginning with the one that has
// from others before it. It reads one segment at a time and none before that
// entry. After an error it ends.
func (d *Directory) Entries(ctx context.Context, from int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		c := newCursor(d)
		if err := c.seek(ctx, uint64(max(from, 0))); err != nil {
			yield(Entry{}, err)
			return
		}
		for !c.done() {
			if c.level() > 0 {
				if err := c.descend(ctx); err != nil {
					yield(Entry{}, err)
					return
				}
				continue
			}
			if !yield(c.entry(), nil) {
				return
			}
			c.advance()
		}
	}
}

// Leaves yields the entries in name order, those of one object at a time. After an error it
// ends.
func (d *Directory) Leaves(ctx context.Context) iter.Seq2[Leaf, error] {
	return func(yield func(Leaf, error) bool) {
		d.ExpectLeaves(ctx)
		c := newCursor(d)
		for !c.done() {
			if c.level() > 0 {
				if err := c.descend(ctx); err != nil {
					yield(Leaf{}, err)
					return
				}
				continue
			}
			o := c.top().o
			leaf := Leaf{Entries: make([]Entry, o.count()), Below: o.totals}
			for i := range leaf.Entries {
				leaf.Entries[i] = o.entry(i)
				var one Totals
				err := one.addEntry(&leaf.Entries[i])
				if err == nil {
					err = leaf.Below.Sub(one)
				}
				if err != nil {
					yield(Leaf{}, corrupt("directory", d.hash, err))
					return
				}
			}
			if !yield(leaf, nil) {
				return
			}
			c.top().i = o.count()
			c.climb()
		}
	}
}

// ExpectLeaves tells the source that all entries will be read soon.
func (d *Directory) ExpectLeaves(ctx context.Context) {
	if d.Whole() {
		return
	}
	segments := make([]cas.Hash, d.top.count())
	for i := range segments {
		segments[i] = d.top.item(i).hash
	}
	d.r.Expect(ctx, segments)
}

// A Leaf is what one object of a directory has.
type Leaf struct {
	Entries []Entry
	Below   Totals // of what lies below the directories among them, all together
}

// AsCut reports whether a directory of some entries is cut into objects as this one is,
// leaf by leaf, if its names are the same, or same is false and they are not.
func (d *Directory) AsCut(entries int, same bool) bool {
	return same || d.Whole() && entries <= maxWhole
}

// A place is an element of an object, with what the objects above say about
// the object.
type place struct {
	o    *object
	i    int
	last bool   // nothing follows o in its directory
	next string // the name that follows o, unless last
}

func (d *Directory) begin() place { return place{o: d.top, last: true} }

// down loads the segment that the item at p stands for and checks that it is
// what the lists above it say.
func (r *Reader) down(ctx context.Context, p place) (place, error) {
	if err := ctx.Err(); err != nil {
		return place{}, err
	}
	it := p.o.item(p.i)
	below := place{last: p.last, next: p.next}
	if p.i+1 < p.o.count() {
		below.last, below.next = false, p.o.name(p.i+1)
	}
	var err error
	if below.o, err = r.load(ctx, it.hash); err != nil {
		return place{}, err
	}
	if err := below.o.checkSegment(&it, p.o.level, below.next, below.last); err != nil {
		return place{}, corrupt("directory", it.hash, err)
	}
	return below, nil
}
