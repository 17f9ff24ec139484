package snapshot

import (
	"context"
	"fmt"
	"hash/maphash"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
)

// objectPlaces tells whether objects lie whole where the index says. A pack is
// looked at once, when it is met; packs never change, so that what saves and
// collections do meanwhile is no trouble. It takes some 20 bytes an object.
type objectPlaces struct {
	s       *Store
	look    func(id cas.PackID) (there []cas.Located, damaged []local.Damage, known bool, err error)
	seed    maphash.Seed
	there   map[uint64]struct{}   // objects at their places, hashed
	damaged map[cas.Located]error // and those that cannot be read there
	seen    map[cas.PackID]bool   // true: all that lies in it is known
	// unsound are objects that were asked for and do not lie in their packs.
	unsound map[cas.Located]struct{}
}

func newObjectPlaces(s *Store, look func(cas.PackID) ([]cas.Located, []local.Damage, bool, error)) *objectPlaces {
	return &objectPlaces{s: s, look: look, seed: maphash.MakeSeed(), there: map[uint64]struct{}{}, damaged: map[cas.Located]error{}, seen: map[cas.PackID]bool{}, unsound: map[cas.Located]struct{}{}}
}

// see looks at a pack.
func (p *objectPlaces) see(id cas.PackID) error {
	if _, ok := p.seen[id]; ok {
		return nil
	}
	there, damaged, known, err := p.look(id)
	if err != nil {
		return err
	}
	p.seen[id] = known
	for _, o := range there {
		p.there[maphash.Comparable(p.seed, o)] = struct{}{}
	}
	for _, d := range damaged {
		p.damaged[d.Located] = d.Err
	}
	return nil
}

// find returns, key by key, where the object lies, or what is wrong with it. Its
// own error says that it could not be looked for.
func (p *objectPlaces) find(ctx context.Context, keys []cas.Key) ([]cas.Location, []error, error) {
	faults := make([]error, len(keys))
	if p.s.dir == "" {
		has, err := p.s.blobs.Has(ctx, keys)
		for i, ok := range has {
			if !ok {
				faults[i] = fmt.Errorf("%s: %w", keys[i], cas.ErrNotFound)
			}
		}
		return make([]cas.Location, len(keys)), faults, err
	}
	at, err := p.s.holder.Locate(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	var again []int // of keys
	for i, key := range keys {
		if !p.sound(cas.Located{Key: key, Location: at[i]}) {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return at, faults, nil
	}
	ask := make([]cas.Key, len(again))
	for i, n := range again {
		ask[i] = keys[n]
	}
	now, err := p.s.holder.Locate(local.Fresh(ctx), ask)
	if err != nil {
		return nil, nil, err
	}
	for i, n := range again {
		at[n] = now[i]
		if faults[n], err = p.fault(ctx, cas.Located{Key: keys[n], Location: now[i]}); err != nil {
			return nil, nil, err
		}
	}
	return at, faults, nil
}

// sound reports whether an object is known to lie at a place.
func (p *objectPlaces) sound(o cas.Located) bool {
	_, ok := p.there[maphash.Comparable(p.seed, o)]
	return ok
}

// fault says what is wrong with an object at the place that the index tells now. A
// collection may move it meanwhile, and again: only one whose place stays is missing
// with its pack.
func (p *objectPlaces) fault(ctx context.Context, o cas.Located) (fault, err error) {
	for {
		fault, gone, err := p.faultAt(ctx, o)
		if err != nil || !gone {
			return fault, err
		}
		now, err := p.s.holder.Locate(local.Fresh(ctx), []cas.Key{o.Key})
		if err != nil || now[0] == o.Location {
			return fault, err
		}
		o.Location = now[0]
	}
}

// faultAt is fault for one place. gone says that there is no such pack.
func (p *objectPlaces) faultAt(ctx context.Context, o cas.Located) (fault error, gone bool, err error) {
	if o.Location.IsZero() {
		return fmt.Errorf("%s: %w", o.Key, cas.ErrNotFound), false, nil
	}
	if err := p.see(o.Location.Pack); err != nil {
		return nil, false, err
	}
	if p.sound(o) {
		return nil, false, nil
	}
	if _, serr := local.PackSize(p.s.dir, o.Location.Pack); serr != nil {
		return fmt.Errorf("%s: pack %s is missing: %w", o.Key, o.Location.Pack, cas.ErrNotFound), true, nil
	}
	if fault := p.damaged[o]; fault != nil {
		return fault, false, nil
	}
	if !p.seen[o.Location.Pack] { // a record may hide behind damage
		if _, fault = p.s.blobs.Read(ctx, o.Key, nil); fault == nil {
			p.there[maphash.Comparable(p.seed, o)] = struct{}{}
			return nil, false, nil
		}
		if ctx.Err() != nil || !isFinding(fault) {
			return nil, false, fault
		}
	} else {
		fault = fmt.Errorf("%s: no record of it at %d in pack %s: %w", o.Key, o.Location.Offset, o.Location.Pack, cas.ErrCorrupt)
	}
	p.unsound[o] = struct{}{}
	return fault, false, nil
}
