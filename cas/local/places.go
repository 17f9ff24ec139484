package local

import (
	"cmp"
	"encoding/binary"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// places remembers where the objects of the packs lie that were read from last,
// from the packs' footers: to ask the index takes longer than to read a small
// object. What it says is a guess: the record itself has its name, and the index
// is right where the two differ.
type places struct {
	max int // bytes of memory

	mu    sync.Mutex
	packs []*contents         // the last used first
	used  int                 // bytes of packs
	asked map[cas.PackID]int8 // how often a pack was read from that is not here
	told  map[cas.Key]cas.Location
}

const (
	// worthwhile is how often a pack is read from before its footer is.
	worthwhile = 16
	// lookedAt is how many packs are looked through before the index is asked.
	lookedAt = 8
	// askedPacks bounds the memory of the packs that are not here.
	askedPacks = 4096
	// toldObjects bounds the memory of single places.
	toldObjects = 8192
)

// contents are the places of a pack's objects, in the order of their prefix.
type contents struct {
	pack  cas.PackID
	spots []spot
}

// A spot is where an object lies. Of its name it has eight bytes only.
type spot struct {
	prefix uint64
	offset uint32
	stored uint32 // twice, and one more if it is not raw
}

const spotSize = 16

// in returns the place of an object in a pack.
func (s spot) in(pack cas.PackID) cas.Location {
	return cas.Location{Pack: pack, Offset: s.offset, Stored: s.stored / 2, Encoding: cas.Encoding(s.stored % 2)}
}

// spotsOf returns the places of a pack's objects, in the order of their prefix.
func spotsOf(objects []cas.Located) []spot {
	spots := make([]spot, len(objects))
	for i, o := range objects {
		spots[i] = spot{prefix: prefixOf(o.Key), offset: o.Location.Offset, stored: 2*o.Location.Stored + uint32(min(o.Location.Encoding, 1))}
	}
	slices.SortFunc(spots, func(a, b spot) int { return cmp.Compare(a.prefix, b.prefix) })
	return spots
}

func prefixOf(k cas.Key) uint64 { return binary.BigEndian.Uint64(k.Hash[:]) + uint64(k.NS) }

// find guesses where an object lies.
func (p *places) find(k cas.Key) (cas.Location, bool) {
	prefix := prefixOf(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.told[k]; ok {
		return at, true
	}
	for i, c := range p.packs[:min(len(p.packs), lookedAt)] {
		j, ok := slices.BinarySearchFunc(c.spots, prefix, func(s spot, prefix uint64) int { return cmp.Compare(s.prefix, prefix) })
		if !ok {
			continue
		}
		p.raise(i)
		return c.spots[j].in(c.pack), true
	}
	return cas.Location{}, false
}

// tell notes what the index has said of objects that will be read soon.
func (p *places) tell(keys []cas.Key, at []cas.Location) {
	if p.max == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told == nil || len(p.told)+len(keys) > toldObjects {
		p.told = map[cas.Key]cas.Location{}
	}
	for i, k := range keys[:min(len(keys), toldObjects)] {
		if !at[i].IsZero() {
			p.told[k] = at[i]
		}
	}
}

// raise makes the i-th pack the first; mu is held.
func (p *places) raise(i int) {
	c := p.packs[i]
	copy(p.packs[1:i+1], p.packs[:i])
	p.packs[0] = c
}

// note tells that an object was read from a pack whose place the index had to
// say. It reports whether the pack is worth to be learned.
func (p *places) note(pack cas.PackID) bool {
	if p.max == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.index(pack); i >= 0 {
		p.raise(i) // it was too far behind
		return false
	}
	if p.asked == nil || len(p.asked) == askedPacks {
		p.asked = map[cas.PackID]int8{}
	}
	if p.asked[pack] < worthwhile {
		p.asked[pack]++
		return p.asked[pack] == worthwhile
	}
	return false // it is being learned, or cannot be
}

func (p *places) index(pack cas.PackID) int {
	return slices.IndexFunc(p.packs, func(c *contents) bool { return c.pack == pack })
}

// learn reads a pack's footer. It is no matter if that fails.
func (p *places) learn(f *os.File, pack cas.PackID) {
	objects, err := readFooter(f, pack)
	if err != nil {
		return
	}
	c := &contents{pack: pack, spots: spotsOf(objects)}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, pack)
	p.packs = slices.Insert(p.packs, 0, c)
	p.used += spotSize * len(c.spots)
	for p.used > p.max && len(p.packs) > 0 {
		p.drop(len(p.packs) - 1)
	}
}

// drop forgets the i-th pack; mu is held.
func (p *places) drop(i int) {
	p.used -= spotSize * len(p.packs[i].spots)
	p.packs = slices.Delete(p.packs, i, i+1)
}

// forget drops a pack that is gone.
func (p *places) forget(pack cas.PackID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.told)
	if i := p.index(pack); i >= 0 {
		p.drop(i)
	}
}
