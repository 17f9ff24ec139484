package tree

import "github.com/snapfs/snapfs/cas"

// merge goes over two directories at one path side by side, in name order, and
// calls fn for each name with the entries of both sides, nil for the side that
// lacks it. The entries are fn's only until it returns. Segments that both have
// are passed over without being read when both cursors stand at their start,
// which is so again soon after a difference, since segments end where their
// names say.
func (d *differ) merge(dir string, a, b cas.Hash, fn func(old, new *Entry) error) error {
	if a == b {
		return nil
	}
	left, err := d.r.openAt(d.ctx, a, dir)
	if err != nil {
		return err
	}
	right, err := d.r.openAt(d.ctx, b, dir)
	if err != nil {
		return err
	}
	if d.search != nil {
		d.r.Expect(d.ctx, differing(left.top, right.top))
	}
	ca, cb := newCursor(left), newCursor(right)
	var old, new Entry // outside of the loop: fn lets them escape
	for !ca.done() || !cb.done() {
		onlyA := cb.done() || !ca.done() && ca.name() < cb.name()
		onlyB := !onlyA && (ca.done() || cb.name() < ca.name())
		if !onlyA && !onlyB && sameSegment(ca, cb) {
			ca.advance()
			cb.advance()
			continue
		}
		// The higher cursor goes down first: the other may stand at the start
		// of a segment that lies below it.
		if c := higher(ca, cb, onlyA, onlyB); c.level() > 0 {
			if err := c.descend(d.ctx); err != nil {
				return at(dir, err)
			}
			continue
		}
		switch {
		case onlyA:
			old = ca.entry()
			ca.advance()
			err = fn(&old, nil)
		case onlyB:
			new = cb.entry()
			cb.advance()
			err = fn(nil, &new)
		default:
			old, new = ca.entry(), cb.entry()
			ca.advance()
			cb.advance()
			err = fn(&old, &new)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// differing returns the segments that only one of two objects above level 0 names.
func differing(a, b *object) []cas.Hash {
	if a.level == 0 || b.level == 0 {
		return nil
	}
	in := map[cas.Hash]bool{} // whether both have it
	for i := range a.count() {
		in[a.item(i).hash] = false
	}
	var list []cas.Hash
	for i := range b.count() {
		h := b.item(i).hash
		if _, ok := in[h]; ok {
			in[h] = true
		} else {
			list = append(list, h)
		}
	}
	for h, both := range in {
		if !both {
			list = append(list, h)
		}
	}
	return list
}

// sameSegment reports whether both cursors stand on the same item.
func sameSegment(a, b *cursor) bool {
	return a.level() > 0 && a.level() == b.level() && a.item() == b.item()
}

func higher(a, b *cursor, onlyA, onlyB bool) *cursor {
	if onlyA || !onlyB && a.level() >= b.level() {
		return a
	}
	return b
}
