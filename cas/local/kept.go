package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/cas"
)

// A Kept reads the objects of packs that it has open. It asks no index: it knows from the
// packs' footers where each object lies, and what becomes of the packs' files, deleted or
// rewritten by a collection, is no matter to it. An object takes 24 bytes of its memory.
// Its methods may be called concurrently.
type Kept struct {
	dir string
	records
	now atomic.Pointer[keptPacks]

	changing sync.Mutex
	users    map[cas.PackID]int
}

var _ cas.Source = (*Kept)(nil)

// keptPacks is what a Kept has at one moment; it is never changed.
type keptPacks struct {
	open  map[cas.PackID]*pack
	ids   []cas.PackID
	spots []keptSpot // by prefix
}

// keptSpot is a spot, and in which pack it is.
type keptSpot struct {
	spot
	pack uint32 // index in ids
}

// NewKept makes one without packs for the store in dir.
func NewKept(dir string) *Kept {
	k := &Kept{dir: dir, users: map[cas.PackID]int{}}
	k.now.Store(&keptPacks{})
	k.records = newRecords(func(id cas.PackID) (*pack, error) {
		if p, ok := k.now.Load().open[id]; ok {
			return p, nil
		}
		return nil, fmt.Errorf("pack %s is kept no more: %w", id, cas.ErrNotFound)
	})
	return k
}

// Add keeps packs, all or none: it fails with [iofs.ErrNotExist] when one of them is gone.
// They are counted: as often as a pack was added it has to be removed.
func (k *Kept) Add(ids ...cas.PackID) (err error) {
	k.changing.Lock()
	defer k.changing.Unlock()
	fresh := map[cas.PackID]*pack{}
	defer func() {
		if err != nil {
			for _, p := range fresh {
				p.Close()
			}
		}
	}()
	found := map[cas.PackID][]cas.Located{}
	for _, id := range ids {
		if _, opened := fresh[id]; opened || k.users[id] > 0 {
			continue
		}
		p, err := openRead(k.dir, id)
		if err != nil {
			return fmt.Errorf("pack %s: %w", id, err)
		}
		fresh[id] = p
		found[id], err = readFooter(p.File, id)
		if errors.Is(err, cas.ErrCorrupt) {
			found[id], err = scanFile(k.dir, id)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		k.users[id]++
	}
	k.change(fresh, nil, found)
	return nil
}

// Remove gives packs up that were added, and closes those that nobody needs any more.
func (k *Kept) Remove(ids ...cas.PackID) {
	k.changing.Lock()
	defer k.changing.Unlock()
	gone := map[cas.PackID]bool{}
	for _, id := range ids {
		if k.users[id]--; k.users[id] <= 0 {
			delete(k.users, id)
			gone[id] = true
		}
	}
	k.change(nil, gone, nil)
}

// Close gives all of them up.
func (k *Kept) Close() error {
	k.changing.Lock()
	defer k.changing.Unlock()
	gone := map[cas.PackID]bool{}
	for id := range k.users {
		gone[id] = true
	}
	clear(k.users)
	k.change(nil, gone, nil)
	return nil
}

// change makes what is kept anew, with some packs more and without others, which are
// closed; a read of one of them that is under way finishes first.
func (k *Kept) change(fresh map[cas.PackID]*pack, gone map[cas.PackID]bool, found map[cas.PackID][]cas.Located) {
	if len(fresh)+len(gone) == 0 {
		return
	}
	old := k.now.Load()
	next := &keptPacks{open: map[cas.PackID]*pack{}}
	at := make([]uint32, len(old.ids)) // index in next.ids
	for i, id := range old.ids {
		if !gone[id] {
			at[i] = uint32(len(next.ids))
			next.ids, next.open[id] = append(next.ids, id), old.open[id]
		}
	}
	var added []keptSpot
	for id, p := range fresh {
		n := uint32(len(next.ids))
		next.ids, next.open[id] = append(next.ids, id), p
		for _, o := range found[id] {
			added = append(added, keptSpot{spot: newSpot(o), pack: n})
		}
	}
	byPrefix := func(a, b keptSpot) int { return cmp.Compare(a.prefix, b.prefix) }
	slices.SortFunc(added, byPrefix)
	next.spots = make([]keptSpot, 0, len(old.spots)+len(added))
	for _, s := range old.spots {
		if gone[old.ids[s.pack]] {
			continue
		}
		for len(added) > 0 && byPrefix(added[0], s) < 0 {
			next.spots, added = append(next.spots, added[0]), added[1:]
		}
		s.pack = at[s.pack]
		next.spots = append(next.spots, s)
	}
	next.spots = append(next.spots, added...)
	k.now.Store(next)
	for id := range gone {
		if p := old.open[id]; p != nil {
			p.Close()
		}
	}
}

// Packs is how many packs are kept.
func (k *Kept) Packs() int { return len(k.now.Load().ids) }

// Read implements [cas.Source]. Prefixes of two objects may be the same: a record has its
// whole name.
func (k *Kept) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	now := k.now.Load()
	i, _ := slices.BinarySearchFunc(now.spots, prefixOf(key), func(s keptSpot, prefix uint64) int { return cmp.Compare(s.prefix, prefix) })
	err := fmt.Errorf("%s: it is in no pack that is kept: %w", key, cas.ErrNotFound)
	for ; i < len(now.spots) && now.spots[i].prefix == prefixOf(key); i++ {
		s := now.spots[i]
		var out []byte
		if out, err = k.read(ctx, key, s.location(now.ids[s.pack]), dst); err == nil || errors.Is(err, ErrWouldWait) {
			return out, err
		}
	}
	return nil, err
}
