package tree

import (
	"sync/atomic"

	"github.com/snapfs/snapfs/cas"
)

// An object is a decoded directory object. It keeps the bytes, which are
// checked once, and reads entries out of them when asked: that takes a third of
// the memory that a list of entries would, and tens of nanoseconds each.
type object struct {
	data    string
	level   uint8
	offs    []uint32 // where each entry or item begins in data
	entries uint64   // entries in and below it
	below   uint64   // elements of the next lower level; zero at level 0
	totals  Totals

	// What the cut rule says, for a segment; false: not known yet.
	uncut atomic.Bool // no cut lies inside it
	ended atomic.Bool // a cut lies at its end
}

// cost is what the object takes in a cache, in bytes.
func (o *object) cost() int64 { return int64(len(o.data)+4*len(o.offs)) + 256 }

// count returns the number of elements.
func (o *object) count() int { return len(o.offs) }

// entry returns the i-th entry of an object of level 0.
func (o *object) entry(i int) Entry {
	p := parser{s: o.data, pos: int(o.offs[i])}
	return p.entry()
}

// item returns the i-th item of an object above level 0.
func (o *object) item(i int) item {
	p := parser{s: o.data, pos: int(o.offs[i])}
	return p.item(o.level)
}

// name returns the i-th element's name or first name.
func (o *object) name(i int) string {
	pos := int(o.offs[i])
	if o.level == 0 {
		pos++ // the head byte
	}
	n := int(o.data[pos])
	return o.data[pos+1 : pos+1+n]
}

// search returns the number of elements whose name is at most name.
func (o *object) search(name string) int {
	lo, hi := 0, len(o.offs)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if o.name(mid) <= name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// checkRoot tells whether o can be a directory's root object: a list of
// segments exists only if what it lists was too long for one object.
func (o *object) checkRoot() error {
	if o.level > 0 && o.below <= maxWhole {
		return invalid("list of segments", "its %d elements fit in one object", o.below)
	}
	return nil
}

// checkSegment tells whether o is what the item it of an object of the given
// level says. next is the name that follows the segment; the last segment of
// all has none.
func (o *object) checkSegment(it *item, level uint8, next string, last bool) error {
	n := o.count()
	switch {
	case o.level != level-1:
		return invalid("segment", "it is of level %d below one of level %d", o.level, level)
	case uint64(n) != it.count || o.entries != it.entries:
		return invalid("segment", "it has %d elements and %d entries, its list says %d and %d", n, o.entries, it.count, it.entries)
	case o.name(0) != it.first:
		return invalid("segment", "it begins with %q, its list says %q", o.name(0), it.first)
	case o.totals != it.totals:
		return invalid("segment", "its totals are %+v, its list says %+v", o.totals, it.totals)
	case !last && o.name(n-1) >= next:
		return invalid("segment", "it ends with %q, and %q follows", o.name(n-1), next)
	case !last && !o.endsAtCut():
		return invalid("segment", "it ends after %q, where no cut is", o.name(n-1))
	}
	if i := o.cutInside(); i >= 0 {
		return invalid("segment", "it goes on after %q, where a cut is", o.name(i))
	}
	return nil
}

// endsAtCut reports whether a cut lies after the last element.
func (o *object) endsAtCut() bool {
	if !o.ended.Load() {
		n := o.count()
		if !cutAfter(o.level, n, o.name(n-1)) {
			return false
		}
		o.ended.Store(true)
	}
	return true
}

// cutInside returns an element other than the last after which a cut lies, or
// -1 if there is none.
func (o *object) cutInside() int {
	if !o.uncut.Load() {
		for i := minSegment - 1; i < o.count()-1; i++ {
			if cutAfter(o.level, i+1, o.name(i)) {
				return i
			}
		}
		o.uncut.Store(true)
	}
	return -1
}

// child returns the object that the i-th element names: a segment, or a directory.
func (o *object) child(i int) (cas.Hash, bool) {
	if o.level > 0 {
		return o.item(i).hash, true
	}
	e := o.entry(i)
	return e.Hash, e.Kind == Dir
}
