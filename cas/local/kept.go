package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
)

// A Kept reads the objects of packs that it has open: whatever becomes of their
// files, what lies in them stays readable. It asks no index. Of each object it has
// 20 bytes in memory. Its methods may be called concurrently.
type Kept struct {
	dir  string
	bufs buffers
	now  atomic.Pointer[keptPacks]

	changing sync.Mutex // held by who makes another now
	users    map[cas.PackID]int
}

// keptPacks are the packs of a [Kept] at one time. They never change.
type keptPacks struct {
	packs []keptPack // nil files: numbers that are free
	table keptTable
}

type keptPack struct {
	id   cas.PackID
	file *pack
}

// keptTable says where the objects of several packs lie, in the order of their prefix.
type keptTable struct {
	spots []spot
	in    []uint32 // numbers of the packs that the spots are in
}

// NewKept makes a Kept of the packs in dir; it has none at first.
func NewKept(dir string) *Kept {
	k := &Kept{dir: dir, bufs: newBuffers(), users: map[cas.PackID]int{}}
	k.now.Store(&keptPacks{})
	return k
}

// Add opens packs and learns what lies in them. Packs are counted: each Add needs a
// [Kept.Remove]. On an error none is added; it is [iofs.ErrNotExist] when one is gone.
func (k *Kept) Add(ids ...cas.PackID) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	var fresh []cas.PackID
	for _, id := range ids {
		if k.users[id] == 0 && !slices.Contains(fresh, id) {
			fresh = append(fresh, id)
		}
	}
	if err := k.open(fresh); err != nil {
		return err
	}
	for _, id := range ids {
		k.users[id]++
	}
	return nil
}

// open adds packs that are not here; changing is held.
func (k *Kept) open(ids []cas.PackID) error {
	if len(ids) == 0 {
		return nil
	}
	files, tables := make([]*pack, len(ids)), make([]keptTable, len(ids))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, id := range ids {
		group.Go(func() (err error) {
			if files[i], err = openRead(k.dir, id); err != nil {
				return fmt.Errorf("open pack: %w", err)
			}
			objects, err := footer(files[i].File, id)
			tables[i].spots = spotsOf(objects)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
		return err
	}
	next := &keptPacks{packs: slices.Clone(k.now.Load().packs)}
	free := 0
	for i, id := range ids {
		for free < len(next.packs) && next.packs[free].file != nil {
			free++
		}
		if free == len(next.packs) {
			next.packs = append(next.packs, keptPack{})
		}
		next.packs[free] = keptPack{id: id, file: files[i]}
		tables[i].in = slices.Repeat([]uint32{uint32(free)}, len(tables[i].spots))
	}
	// Two at a time, so that many small packs do not go through the whole each.
	for len(tables) > 1 {
		var half []keptTable
		for pair := range slices.Chunk(tables, 2) {
			half = append(half, merge(pair...))
		}
		tables = half
	}
	next.table = merge(k.now.Load().table, tables[0])
	k.now.Store(next)
	return nil
}

// merge makes one table of one or two.
func merge(tables ...keptTable) keptTable {
	if len(tables) == 1 || len(tables[1].spots) == 0 {
		return tables[0]
	}
	a, b := tables[0], tables[1]
	if len(a.spots) == 0 {
		return b
	}
	n := len(a.spots) + len(b.spots)
	all := keptTable{spots: make([]spot, 0, n), in: make([]uint32, 0, n)}
	for len(a.spots) > 0 && len(b.spots) > 0 {
		from := &a
		if b.spots[0].prefix < a.spots[0].prefix {
			from = &b
		}
		all.spots, all.in = append(all.spots, from.spots[0]), append(all.in, from.in[0])
		from.spots, from.in = from.spots[1:], from.in[1:]
	}
	all.spots = append(append(all.spots, a.spots...), b.spots...)
	all.in = append(append(all.in, a.in...), b.in...)
	return all
}

// Remove gives packs back. Those that nobody needs any more are closed; a read of
// them that is under way ends first.
func (k *Kept) Remove(ids ...cas.PackID) {
	k.changing.Lock()
	defer k.changing.Unlock()
	unused := map[cas.PackID]bool{}
	for _, id := range ids {
		if k.users[id]--; k.users[id] <= 0 {
			delete(k.users, id)
			unused[id] = true
		}
	}
	if len(unused) > 0 {
		k.close(func(id cas.PackID) bool { return unused[id] })
	}
}

// close closes the packs that are given up; changing is held.
func (k *Kept) close(given func(cas.PackID) bool) {
	old := k.now.Load()
	next := &keptPacks{packs: slices.Clone(old.packs)}
	var closing []*pack
	for i, p := range next.packs {
		if p.file != nil && given(p.id) {
			closing = append(closing, p.file)
			next.packs[i] = keptPack{}
		}
	}
	left := 0
	for _, n := range old.table.in {
		if next.packs[n].file != nil {
			left++
		}
	}
	next.table = keptTable{spots: make([]spot, 0, left), in: make([]uint32, 0, left)}
	for i, n := range old.table.in {
		if next.packs[n].file != nil {
			next.table.spots, next.table.in = append(next.table.spots, old.table.spots[i]), append(next.table.in, n)
		}
	}
	k.now.Store(next)
	for _, f := range closing {
		_ = f.Close()
	}
}

// Close closes all packs. A second call does nothing.
func (k *Kept) Close() error {
	k.changing.Lock()
	defer k.changing.Unlock()
	clear(k.users)
	k.close(func(cas.PackID) bool { return true })
	return nil
}

// Read appends an object to dst, as [cas.Store] says. Of the object's name the table
// has a part only; the record has all of it, so each that may be meant is looked at.
func (k *Kept) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	for {
		now := k.now.Load()
		out, err := k.readIn(ctx, now, key, dst)
		if err == nil || !errors.Is(err, os.ErrClosed) {
			return out, err
		}
		// A pack was given up since; the object may lie in another one.
		if k.now.Load() == now {
			return nil, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
		}
	}
}

func (k *Kept) readIn(ctx context.Context, now *keptPacks, key cas.Key, dst []byte) ([]byte, error) {
	prefix := prefixOf(key)
	table := now.table
	var failed error
	i, _ := slices.BinarySearchFunc(table.spots, prefix, func(s spot, prefix uint64) int { return cmp.Compare(s.prefix, prefix) })
	for ; i < len(table.spots) && table.spots[i].prefix == prefix; i++ {
		p := now.packs[table.in[i]]
		out, err := k.bufs.read(ctx, p.file, key, table.spots[i].in(p.id), dst)
		if err == nil || errors.Is(err, ErrWouldWait) {
			return out, err
		}
		failed = err
	}
	if failed == nil {
		failed = fmt.Errorf("%s: %w", key, cas.ErrNotFound)
	}
	return nil, failed
}
