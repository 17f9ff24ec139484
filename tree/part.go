package tree

import (
	"context"

	"github.com/snapfs/snapfs/cas"
)

// A Part is one object of a directory: its entries, or, if there are too many for one
// object, the segments that have them, in order.
type Part struct {
	Entries  []Entry
	Segments []cas.Hash
}

// Part returns what one object of a directory holds. Whoever follows parts and
// remembers them reads what trees share once; that they fit where they are named is not
// checked, see [Checker].
func (r *Reader) Part(ctx context.Context, h cas.Hash) (Part, error) {
	o, err := r.load(ctx, h)
	if err != nil {
		return Part{}, err
	}
	if o.level > 0 {
		p := Part{Segments: make([]cas.Hash, o.count())}
		for i := range p.Segments {
			p.Segments[i] = o.item(i).hash
		}
		return p, nil
	}
	p := Part{Entries: make([]Entry, o.count())}
	for i := range p.Entries {
		p.Entries[i] = o.entry(i)
	}
	return p, nil
}
