package tree

import (
	"fmt"

	"github.com/snapfs/snapfs/cas"
)

// A Builder makes one directory out of its entries. The zero value is ready;
// after [Builder.Finish] it is ready again for the next directory. It is not
// for concurrent use.
type Builder struct {
	buf     []byte // all entries that are in no object yet, encoded
	last    string // name of the last entry
	settled []item // segments of which there are objects
	closed  []segment
	open    segment
	entries uint64 // all of them
	totals  Totals // of all entries
}

// A segment is a stretch of Builder.buf.
type segment struct {
	start, end int
	count      int
	first      string
	totals     Totals // of the entries and below them
	below      Totals // of what lies below the directories among them
	dirs       bool   // there are directories among them
}

// Add appends an entry. Names must rise strictly in bytewise order. below
// tells what lies below a directory ([Root.Totals] of its own builder or
// reader) and is zero for all other kinds. Add fails, and leaves the builder as
// it was, when the entry is not allowed or comes out of order; the error wraps
// [ErrInvalid].
func (b *Builder) Add(e Entry, below Totals) error {
	if err := e.check(); err != nil {
		return err
	}
	what := func() string { return fmt.Sprintf("entry %q", e.Name) }
	if b.last != "" && e.Name <= b.last {
		return invalid(what(), "it comes after %q", b.last)
	}
	if e.Kind != Dir && below != (Totals{}) {
		return invalid(what(), "a %s has nothing below it", e.Kind)
	}
	if err := below.check(); err != nil {
		return fmt.Errorf("%s: %w", what(), err)
	}
	one := below
	if err := one.addEntry(&e); err != nil {
		return fmt.Errorf("%s: %w", what(), err)
	}
	if err := b.totals.Add(one); err != nil {
		return fmt.Errorf("%s: %w", what(), err)
	}

	seg := &b.open
	if seg.count == 0 {
		seg.first = e.Name
	}
	b.buf = appendEntry(b.buf, &e)
	b.last = e.Name
	b.entries++
	seg.end = len(b.buf)
	seg.count++
	// Parts of the sum above can not be too large.
	_ = seg.totals.Add(one)
	_ = seg.below.Add(below)
	seg.dirs = seg.dirs || e.Kind == Dir
	if cutAfter(0, seg.count, e.Name) {
		b.closed = append(b.closed, *seg)
		b.open = segment{start: seg.end, end: seg.end}
	}
	return nil
}

// settleAt is how many bytes of entries a large directory keeps.
const settleAt = 1 << 20

// Settled returns objects of a large directory that are sure already, once there are many,
// and frees what they took. [Builder.Finish] does not return them again. Who never asks
// keeps all of a directory in memory.
func (b *Builder) Settled() []cas.Object {
	if len(b.buf) < settleAt || b.entries <= maxWhole {
		return nil
	}
	return b.settle()
}

// settle makes the objects of all segments that are closed. The directory has more entries
// than fit into one object.
func (b *Builder) settle() (objs []cas.Object) {
	for _, seg := range b.closed {
		obj := b.leaf(seg)
		objs = append(objs, obj)
		b.settled = append(b.settled, item{
			first: seg.first, count: uint64(seg.count), entries: uint64(seg.count),
			totals: seg.totals, hash: obj.Key.Hash,
		})
	}
	b.closed = b.closed[:0]
	b.buf = b.buf[:copy(b.buf, b.buf[b.open.start:])]
	b.open.end -= b.open.start
	b.open.start = 0
	return objs
}

// Finish returns the directory and its objects, those of the deepest level
// first, the root last. They are of the trees namespace and may be stored in
// any order; some or all of them may be in the store already.
func (b *Builder) Finish() (Root, []cas.Object, error) {
	if b.open.count > 0 {
		b.closed = append(b.closed, b.open)
		b.open = segment{start: b.open.end, end: b.open.end}
	}
	root := Root{Totals: b.totals, Entries: b.entries}
	var objs []cas.Object
	if b.entries <= maxWhole {
		objs = append(objs, b.leaf(whole(b.closed)))
	} else {
		objs = b.settle()
		objs = appendLists(objs, b.settled)
	}
	root.Hash = objs[len(objs)-1].Key.Hash
	*b = Builder{buf: b.buf[:0], closed: b.closed[:0], settled: b.settled[:0]}
	return root, objs, nil
}

// whole joins the segments of a directory that is not cut.
func whole(segs []segment) segment {
	var sum segment
	for _, seg := range segs {
		sum.end = seg.end
		sum.count += seg.count
		_ = sum.below.Add(seg.below)
		sum.dirs = sum.dirs || seg.dirs
	}
	return sum
}

// leaf makes the object of one segment.
func (b *Builder) leaf(seg segment) cas.Object {
	data := make([]byte, 0, maxHead+seg.end-seg.start)
	data = appendHead(data, 0, seg.count)
	data = append(data, b.buf[seg.start:seg.end]...)
	if seg.dirs {
		data = appendTotals(data, seg.below)
	}
	return cas.NewObject(cas.Trees, cas.Data, data)
}

// appendLists makes the objects above level 0.
func appendLists(objs []cas.Object, items []item) []cas.Object {
	level := uint8(1)
	for ; len(items) > maxWhole; level++ {
		var upper []item
		for start, i := 0, 0; i < len(items); i++ {
			if n := i + 1 - start; cutAfter(level, n, items[i].first) || i == len(items)-1 {
				obj, it := list(level, items[start:i+1])
				objs = append(objs, obj)
				upper = append(upper, it)
				start = i + 1
			}
		}
		items = upper
	}
	obj, _ := list(level, items)
	return append(objs, obj)
}

// list makes one object above level 0, and the item that stands for it in the
// next level.
func list(level uint8, items []item) (cas.Object, item) {
	sum := item{first: items[0].first, count: uint64(len(items))}
	data := appendHead(nil, level, len(items))
	for i := range items {
		data = appendItem(data, level, &items[i])
		sum.entries += items[i].entries
		_ = sum.totals.Add(items[i].totals) // all of them together are not too large
	}
	obj := cas.NewObject(cas.Trees, cas.Data, data)
	sum.hash = obj.Key.Hash
	return obj, sum
}
