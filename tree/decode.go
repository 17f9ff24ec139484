package tree

import (
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// A parser reads the primitives of the formats off the front of a string. The
// first error sticks: from then on everything read is zero.
type parser struct {
	s   string
	pos int
	err error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid(fmt.Sprintf("encoding at byte %d", p.pos), format, args...)
	}
}

// left returns the number of bytes that were not read yet.
func (p *parser) left() int { return len(p.s) - p.pos }

func (p *parser) byte() byte {
	if p.err != nil || p.left() < 1 {
		p.fail("it ends too early")
		return 0
	}
	b := p.s[p.pos]
	p.pos++
	return b
}

// bytes returns the next n bytes, which share the memory of the whole.
func (p *parser) bytes(n uint64) string {
	if p.err != nil || uint64(p.left()) < n {
		p.fail("it ends too early")
		return ""
	}
	s := p.s[p.pos : p.pos+int(n)]
	p.pos += int(n)
	return s
}

// uvarint reads an unsigned number in its shortest form.
func (p *parser) uvarint() uint64 {
	if p.err != nil {
		return 0
	}
	var v uint64
	for i := 0; p.pos+i < len(p.s); i++ {
		b := p.s[p.pos+i]
		if i == 9 && b > 1 {
			p.fail("a number has more than 64 bits")
			return 0
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 && i > 0 {
				p.fail("a number is longer than need be")
				return 0
			}
			p.pos += i + 1
			return v
		}
	}
	p.fail("it ends too early")
	return 0
}

// number reads an unsigned number of at most max.
func (p *parser) number(max uint64) uint64 {
	v := p.uvarint()
	if v > max {
		p.fail("number %d is larger than %d", v, max)
		return 0
	}
	return v
}

// varint reads a signed number in its shortest form.
func (p *parser) varint() int64 {
	v := p.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// count reads how many things follow. Each takes at least size bytes.
func (p *parser) count(size int) int {
	n := p.uvarint()
	if n > uint64(p.left()/size) {
		p.fail("%d things do not fit in %d bytes", n, p.left())
		return 0
	}
	return int(n)
}

func (p *parser) hash() (h cas.Hash) {
	copy(h[:], p.bytes(uint64(len(h))))
	return h
}

func (p *parser) magic(magic string) {
	if !strings.HasPrefix(p.s, magic) {
		p.fail("it does not begin with %q", magic)
		return
	}
	p.pos += len(magic)
}

// end returns what went wrong; bytes that were not read are wrong, too.
func (p *parser) end() error {
	if p.err == nil && p.left() > 0 {
		p.fail("%d bytes follow its end", p.left())
	}
	return p.err
}

func (p *parser) totals() Totals {
	t := Totals{Files: p.uvarint(), Dirs: p.uvarint(), Bytes: p.uvarint(), XAttrs: p.uvarint(), Redacted: p.uvarint()}
	if err := t.check(); err != nil && p.err == nil {
		p.err = err
	}
	return t
}

// name reads a name without checking it.
func (p *parser) name() string { return p.bytes(uint64(p.byte())) }

// entry reads one entry. Whether it is allowed is for [Entry.check] to say,
// except for what the Entry could not show any more.
func (p *parser) entry() (e Entry) {
	head := p.byte()
	if head&^headKnown != 0 {
		p.fail("unknown bits in the head byte %#x", head)
	}
	e.Kind = Kind(head & headKind)
	e.Name = p.name()
	e.Mode = uint32(p.number(MaxMode))
	e.MtimeSec = p.varint()
	e.MtimeNsec = uint32(p.number(maxNsec))
	if head&headOwned != 0 {
		e.Owned = true
		e.UID = uint32(p.number(noID - 1))
		e.GID = uint32(p.number(noID - 1))
	}
	switch e.Kind {
	case File:
		e.Size = p.uvarint()
		e.Hash = p.hash()
	case Dir:
		e.Hash = p.hash()
	case Symlink:
		e.Target = p.bytes(p.number(MaxTarget))
		e.Size = uint64(len(e.Target))
	default:
		p.fail("%s is not known", e.Kind)
	}
	if head&headXAttrs != 0 {
		if e.XAttrs = p.hash(); e.XAttrs.IsZero() {
			p.fail("the hash of the extended attributes is zero")
		}
	}
	if head&headFlags != 0 {
		if e.Flags = Flags(p.byte()); e.Flags == 0 {
			p.fail("the flags are zero")
		}
	}
	return e
}

func (p *parser) item(level uint8) (it item) {
	it.first = p.name()
	it.count = p.uvarint()
	it.entries = it.count
	if level > 1 {
		it.entries = p.uvarint()
	}
	it.totals = p.totals()
	it.hash = p.hash()
	return it
}

func (it *item) check() error {
	if err := CheckName(it.first); err != nil {
		return err
	}
	what := fmt.Sprintf("item %q", it.first)
	switch {
	case it.count == 0 || it.count > maxSegment:
		return invalid(what, "a segment of %d elements", it.count)
	case it.entries < it.count:
		return invalid(what, "fewer entries than elements")
	case it.entries > it.totals.Files+it.totals.Dirs:
		return invalid(what, "fewer files and directories than entries")
	case it.hash.IsZero():
		return invalid(what, "its hash is zero")
	}
	return nil
}

// The least that an entry, and an item, take in bytes.
const (
	minEntry = 8
	minItem  = 1 + 1 + 1 + 5 + len(cas.Hash{})
)

// decodeObject decodes a directory object of any level. It checks all that can
// be seen without knowing where the object belongs; [object.checkRoot] and
// [object.checkSegment] do the rest.
func decodeObject(data string) (*object, error) {
	p := parser{s: data}
	p.magic(dirMagic)
	o := &object{data: data, level: p.byte()}
	if o.level > maxLevel {
		p.fail("level %d", o.level)
	}
	size := minEntry
	if o.level > 0 {
		size = minItem
	}
	n := p.count(size)
	if n > maxWhole {
		p.fail("a count of %d, at most %d can be", n, maxWhole)
	}
	if o.level > 0 && n == 0 {
		p.fail("an empty list of segments")
	}
	if p.err != nil {
		return nil, p.err
	}
	o.offs = make([]uint32, n)
	if o.level == 0 {
		o.parseEntries(&p)
	} else {
		o.parseItems(&p)
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *object) parseEntries(p *parser) {
	dirs := false
	last := ""
	for i := range o.offs {
		o.offs[i] = uint32(p.pos)
		e := p.entry()
		if p.err == nil {
			p.err = e.check()
		}
		if e.Name <= last {
			p.fail("entry %q comes after %q", e.Name, last)
		}
		if err := o.totals.addEntry(&e); err != nil {
			p.fail("the totals are too large")
		}
		if p.err != nil {
			return
		}
		last = e.Name
		dirs = dirs || e.Kind == Dir
	}
	o.entries = uint64(len(o.offs))
	if dirs {
		if err := o.totals.Add(p.totals()); err != nil {
			p.fail("the totals are too large")
		}
	}
}

func (o *object) parseItems(p *parser) {
	last := ""
	for i := range o.offs {
		o.offs[i] = uint32(p.pos)
		it := p.item(o.level)
		if p.err == nil {
			p.err = it.check()
		}
		if it.first <= last {
			p.fail("item %q comes after %q", it.first, last)
		}
		if it.count < minSegment && i < len(o.offs)-1 {
			p.fail("a segment of %d elements before the last one", it.count)
		}
		if err := o.totals.Add(it.totals); err != nil {
			p.fail("the totals are too large")
		}
		if p.err != nil {
			return
		}
		last = it.first
		o.entries += it.entries // at most the totals' files and directories: no overflow
		o.below += it.count
	}
}
