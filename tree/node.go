package tree

import (
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// A node is what a [Checker] remembers of an object: what those need to know that
// name it.
type node struct {
	err    error // it cannot be read or decoded: nothing else is known
	broken bool  // something is wrong with it, or with what is below it

	level   uint8
	count   int // elements
	entries uint64
	below   uint64
	totals  Totals
	first   string // name of the first entry in or below it
	last    string // and of the last element, going down
	inside  string // an element after which it should have been cut; empty: there is none
	ended   bool   // it ends at a cut, and so does each last segment below it
	longest int    // length of the longest path below it, in bytes
}

// newNode describes an object by itself.
func newNode(o *object) *node {
	n := &node{level: o.level, count: o.count(), entries: o.entries, below: o.below, totals: o.totals}
	if n.count == 0 {
		return n
	}
	n.first, n.last = strings.Clone(o.name(0)), strings.Clone(o.name(n.count-1))
	if i := o.cutInside(); i >= 0 {
		n.inside = strings.Clone(o.name(i))
	}
	n.ended = o.endsAtCut()
	if o.level == 0 {
		for i := range n.count {
			n.longest = max(n.longest, len(o.name(i)))
		}
	}
	return n
}

// endLike takes over what the last segment of a list says of the list's end.
func (n *node) endLike(last *node) {
	if last.err != nil {
		return // what it would say is not known
	}
	n.last = last.last
	n.ended = n.ended && last.ended
}

// suffers reports whether something is wrong at or below an object that belongs to
// the directory at a path.
func (n *node) suffers(path string) bool {
	length := n.longest
	if path != "" && length > 0 {
		length += len(path) + 1
	}
	return n.broken || length > MaxPath
}

// checkRoot is [object.checkRoot] for what is remembered.
func (n *node) checkRoot(h cas.Hash) error {
	o := object{level: n.level, below: n.below}
	if err := o.checkRoot(); err != nil {
		return corrupt("directory", h, err)
	}
	return nil
}

// checkSegment is [object.checkSegment] for what is remembered. It also sees to
// the ends of the segments below, for which the list that lies between knows no
// next name.
func (n *node) checkSegment(it *item, level uint8, next string, last bool) error {
	switch {
	case n.level != level-1:
		return invalid("segment", "it is of level %d below one of level %d", n.level, level)
	case uint64(n.count) != it.count || n.entries != it.entries:
		return invalid("segment", "it has %d elements and %d entries, its list says %d and %d", n.count, n.entries, it.count, it.entries)
	case n.first != it.first:
		return invalid("segment", "it begins with %q, its list says %q", n.first, it.first)
	case n.totals != it.totals:
		return invalid("segment", "its totals are %+v, its list says %+v", n.totals, it.totals)
	case !last && n.last >= next:
		return invalid("segment", "it ends with %q, and %q follows", n.last, next)
	case !last && !n.ended:
		return invalid("segment", "it ends after %q, where no cut is", n.last)
	case n.inside != "":
		return invalid("segment", "it goes on after %q, where a cut is", n.inside)
	}
	return nil
}
