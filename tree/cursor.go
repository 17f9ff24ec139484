package tree

import "context"

// A cursor goes over a directory in name order. It stands on an entry, or on an
// item of some level, whose segment is not loaded before descend is called: a
// cursor that was advanced over the end of a segment stands on the item that
// follows, as high up as there is one.
type cursor struct {
	r     *Reader
	stack []place // the root object first
}

func newCursor(d *Directory) *cursor {
	c := &cursor{r: d.r, stack: []place{d.begin()}}
	c.climb()
	return c
}

func (c *cursor) done() bool { return len(c.stack) == 0 }

func (c *cursor) top() *place { return &c.stack[len(c.stack)-1] }

// level is 0 on an entry, and on an item that of its object.
func (c *cursor) level() uint8 { return c.top().o.level }

// name is the entry's, or the first entry's below the item.
func (c *cursor) name() string { p := c.top(); return p.o.name(p.i) }

// entry returns the entry that a cursor of level 0 stands on.
func (c *cursor) entry() Entry { p := c.top(); return p.o.entry(p.i) }

// item returns the item that a cursor of a higher level stands on.
func (c *cursor) item() item { p := c.top(); return p.o.item(p.i) }

// advance goes to what follows the entry, or the whole segment.
func (c *cursor) advance() {
	c.top().i++
	c.climb()
}

// climb leaves the objects that are at their end.
func (c *cursor) climb() {
	for len(c.stack) > 0 && c.top().i >= c.top().o.count() {
		c.stack = c.stack[:len(c.stack)-1]
		if len(c.stack) > 0 {
			c.top().i++
		}
	}
}

// descend goes from an item to the first element of its segment.
func (c *cursor) descend(ctx context.Context) error {
	below, err := c.r.down(ctx, *c.top())
	if err != nil {
		return err
	}
	c.stack = append(c.stack, below)
	return nil
}

// seek goes n entries on.
func (c *cursor) seek(ctx context.Context, n uint64) error {
	for n > 0 && !c.done() {
		size := uint64(1)
		if c.level() > 0 {
			size = c.item().entries
		}
		if size > n {
			if err := c.descend(ctx); err != nil {
				return err
			}
			continue
		}
		n -= size
		c.advance()
	}
	return nil
}
