package snapshot

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	iofs "io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// packTries is how often packs are looked for when a collection rewrites them meanwhile.
const packTries = 5

// PacksOf returns the packs that together hold all that the files of a checkpoint
// need, of whose record hash is the name: the record, hard links, extended attributes,
// directories and contents. Each object was found in one of them. It fails with
// [cas.ErrNotFound], which names the object, when one is missing, and with
// [ErrUnsupported] for a store that has no packs. A collection may rewrite the packs at
// any time after.
func (s *Store) PacksOf(ctx context.Context, rec index.Record, record cas.Hash) ([]cas.PackID, error) {
	blobs, ok := s.blobs.(*local.Store)
	if !ok || s.dir == "" {
		return nil, fmt.Errorf("packs of a checkpoint: a store in memory has none: %w", ErrUnsupported)
	}
	for try := 1; ; try++ {
		f := &packFinder{s: s, blobs: blobs, seed: maphash.MakeSeed(), seen: map[cas.PackID]bool{}}
		packs, err := f.find(ctx, rec, record)
		if !errors.Is(err, iofs.ErrNotExist) && !errors.Is(err, errElsewhere) {
			return packs, err
		}
		if try == packTries {
			return nil, fmt.Errorf("%w: %w", err, cas.ErrNotFound)
		}
		ctx = local.Fresh(ctx)
	}
}

// errElsewhere: an object does not lie where its place was said to be.
var errElsewhere = errors.New("the object is not in the pack that the index names")

// A packFinder knows what lies in the packs whose footers it has read.
type packFinder struct {
	s     *Store
	blobs *local.Store
	seed  maphash.Seed
	seen  map[cas.PackID]bool // packs whose footers were read

	objects []cas.Located
	slots   []uint64 // by the hash of the key: 32 bits of that, and the place in objects plus one; 0: free
	reached []atomic.Uint32
}

// How an object was reached: the bits in packFinder.reached. A name may be taken for
// that of a list in one place, and for that of content in another.
const (
	asContent = 1 << iota
	asList
)

// A packStep is an object to be reached.
type packStep struct {
	key  cas.Key
	size int64 // of the blob that it is, or whose chunk list it is, in bytes; 0: in the trees namespace
}

// leadsOn reports whether the object names others.
func (p packStep) leadsOn() bool { return p.size == 0 || p.size > cas.ChunkedSize }

func (f *packFinder) find(ctx context.Context, rec index.Record, record cas.Hash) ([]cas.PackID, error) {
	todo := []packStep{{key: cas.Key{NS: cas.Records, Hash: record}, size: 1}, {key: cas.Key{NS: cas.Trees, Hash: rec.Root.Tree}}}
	if !rec.Root.XAttrs.IsZero() {
		todo = append(todo, packStep{key: cas.Key{NS: cas.Trees, Hash: rec.Root.XAttrs}})
	}
	if !rec.Links.IsZero() {
		todo = append(todo, packStep{key: cas.Key{NS: cas.Trees, Hash: rec.Links.Hash}, size: int64(rec.Links.Size)})
	}
	for len(todo) > 0 {
		next, unknown, err := f.level(ctx, todo)
		if err == nil {
			err = f.locate(ctx, unknown)
		}
		if err != nil {
			return nil, err
		}
		todo = append(next, unknown...)
	}
	var packs []cas.PackID
	for i := range f.objects {
		if id := f.objects[i].Location.Pack; f.reached[i].Load() != 0 && (len(packs) == 0 || packs[len(packs)-1] != id) {
			packs = append(packs, id) // the objects of a pack are in a row
		}
	}
	return packs, nil
}

// level reaches objects, on all processors. It returns those that they name, as far as
// they lead on, and those of which no footer that was read knows.
func (f *packFinder) level(ctx context.Context, todo []packStep) (next, unknown []packStep, err error) {
	const stretch = 8
	var taken atomic.Int64
	var mu sync.Mutex
	var group errgroup.Group
	for range min(runtime.GOMAXPROCS(0), (len(todo)+stretch-1)/stretch) {
		group.Go(func() error {
			w := packWalk{packFinder: f}
			for {
				end := int(taken.Add(stretch))
				begin := end - stretch
				if begin >= len(todo) {
					break
				}
				for _, step := range todo[begin:min(end, len(todo))] {
					if err := w.reach(ctx, step); err != nil {
						return err
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			next, unknown = append(next, w.next...), append(unknown, w.unknown...)
			return nil
		})
	}
	return next, unknown, errors.Join(group.Wait(), ctx.Err())
}

// A packWalk is one worker's part of a level.
type packWalk struct {
	*packFinder
	next, unknown []packStep
	refs          []tree.Ref
	buf           []byte
}

// reach notes an object as needed, and what it names.
func (w *packWalk) reach(ctx context.Context, step packStep) error {
	i, ok := w.first(step)
	if !ok {
		return nil
	}
	at := &w.objects[i]
	data, err := w.blobs.ReadAt(at.Key, at.Location, w.buf[:0])
	if err != nil {
		return err
	}
	w.buf = data
	if step.size > 0 {
		chunks, err := cas.DecodeList(data)
		if err == nil {
			err = cas.CheckList(chunks, cas.Blob{Hash: step.key.Hash, Size: step.size})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.key, err)
		}
		for _, c := range chunks {
			if !c.Zeros() {
				w.first(packStep{key: cas.Key{NS: step.key.NS, Hash: c.Hash}, size: 1})
			}
		}
		return ctx.Err()
	}
	if w.refs, err = tree.AppendRefs(w.refs[:0], data); err != nil {
		return fmt.Errorf("%s: %w: %w", step.key, err, cas.ErrCorrupt)
	}
	for _, ref := range w.refs {
		ref := packStep{key: ref.Key, size: int64(ref.Size)}
		if ref.key.NS == cas.Files && ref.size == 0 {
			ref.size = 1 // an empty file is an object, too
		}
		if ref.leadsOn() {
			w.next = append(w.next, ref)
		} else {
			w.first(ref)
		}
	}
	return ctx.Err()
}

// first notes an object as needed. It returns its place in objects, and true if what it
// names was not looked at.
func (w *packWalk) first(step packStep) (i int, ok bool) {
	if i = w.index(step.key); i < 0 {
		w.unknown = append(w.unknown, step)
		return i, false
	}
	how := uint32(asContent)
	if step.leadsOn() {
		how = asList
	}
	if w.reached[i].Load()&how != 0 {
		return i, false
	}
	return i, w.reached[i].Or(how)&how == 0 && step.leadsOn()
}

// index returns where in objects a key is, or -1.
func (f *packFinder) index(key cas.Key) int {
	if len(f.slots) == 0 {
		return -1
	}
	h := f.hash(key)
	for i := h; ; i++ {
		slot := f.slots[i&uint64(len(f.slots)-1)]
		if slot == 0 {
			return -1
		}
		if n := int(uint32(slot)) - 1; slot>>32 == h>>32 && f.objects[n].Key == key {
			return n
		}
	}
}

// hash places a key. Somebody may have made contents whose names are alike.
func (f *packFinder) hash(key cas.Key) uint64 {
	return maphash.Bytes(f.seed, key.Hash[:]) + uint64(key.NS)
}

// locate reads the footers of the packs that hold objects.
func (f *packFinder) locate(ctx context.Context, steps []packStep) error {
	if len(steps) == 0 {
		return nil
	}
	keys := make([]cas.Key, len(steps))
	for i, step := range steps {
		keys[i] = step.key
	}
	locs, err := f.s.holder.Locate(ctx, keys)
	if err != nil {
		return err
	}
	var packs []cas.PackID
	for i, at := range locs {
		if at.IsZero() {
			return fmt.Errorf("%s: %w", keys[i], cas.ErrNotFound)
		}
		if !f.seen[at.Pack] {
			f.seen[at.Pack] = true
			packs = append(packs, at.Pack)
		}
	}
	footers := make([][]cas.Located, len(packs))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, id := range packs {
		group.Go(func() (err error) {
			footers[i], err = local.Footer(f.s.dir, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	f.add(footers)
	for _, key := range keys {
		if f.index(key) < 0 {
			return fmt.Errorf("%s: %w", key, errElsewhere)
		}
	}
	return nil
}

// add makes known what lies in packs.
func (f *packFinder) add(footers [][]cas.Located) {
	n := len(f.objects)
	more := 0
	for _, objects := range footers {
		more += len(objects)
	}
	f.objects = slices.Grow(f.objects, more)
	for _, objects := range footers {
		f.objects = append(f.objects, objects...)
	}
	reached := make([]atomic.Uint32, len(f.objects))
	for i := range f.reached {
		reached[i].Store(f.reached[i].Load())
	}
	f.reached = reached
	if 2*len(f.objects) > len(f.slots) {
		size := 1024
		for size < 2*len(f.objects) {
			size *= 2
		}
		f.slots = make([]uint64, size)
		n = 0
	}
	for ; n < len(f.objects); n++ {
		h := f.hash(f.objects[n].Key)
		i := h
		for f.slots[i&uint64(len(f.slots)-1)] != 0 {
			i++
		}
		f.slots[i&uint64(len(f.slots)-1)] = h>>32<<32 | uint64(n+1)
	}
}
