package snapshot

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// PacksOf returns the packs in which all lies that the files of a checkpoint need: the
// record, whose hash it gets, directories, contents, attributes and hard links. Each object
// was found in one of them; one that is nowhere is [cas.ErrNotFound].
func (s *Store) PacksOf(ctx context.Context, rec index.Record, record cas.Hash) ([]cas.PackID, error) {
	f := &packFinder{s: s, packs: map[cas.PackID]bool{}, at: map[cas.Key]cas.PackID{}, seen: map[cas.Key]struct{}{}}
	first := []toFind{{key: cas.Key{NS: cas.Records, Hash: record}, leaf: true}}
	if !rec.Links.IsZero() {
		blob := cas.Blob{Hash: rec.Links.Hash, Size: int64(rec.Links.Size)}
		keys, err := f.blob(ctx, cas.Trees, blob)
		if err != nil {
			return nil, err
		}
		first = append(first, keys...)
	}
	for _, hash := range []cas.Hash{rec.Root.Tree, rec.Root.XAttrs} {
		if !hash.IsZero() {
			first = append(first, toFind{key: cas.Key{NS: cas.Trees, Hash: hash}})
		}
	}
	if err := f.all(ctx, first); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Keys(f.packs), func(a, b cas.PackID) int { return slices.Compare(a[:], b[:]) }), nil
}

// toFind is an object. A leaf names no others.
type toFind struct {
	key  cas.Key
	leaf bool
}

// A packFinder goes through trees, one level after the other, and finds out in which packs
// their objects lie. It asks the index for what no footer read so far has, and then reads
// the footer of that pack.
type packFinder struct {
	s     *Store
	packs map[cas.PackID]bool
	at    map[cas.Key]cas.PackID // of all objects in packs whose footers were read
	seen  map[cas.Key]struct{}
}

// all follows objects and what they name.
func (f *packFinder) all(ctx context.Context, level []toFind) error {
	for len(level) > 0 {
		fresh := level[:0]
		for _, o := range level {
			if _, ok := f.seen[o.key]; !ok {
				f.seen[o.key] = struct{}{}
				fresh = append(fresh, o)
			}
		}
		if err := f.locate(ctx, fresh); err != nil {
			return err
		}
		next, err := f.below(ctx, fresh)
		if err != nil {
			return err
		}
		level = next
	}
	return nil
}

// locate finds the packs of some objects.
func (f *packFinder) locate(ctx context.Context, objs []toFind) error {
	ask := make([]cas.Key, 0, len(objs))
	for _, o := range objs {
		if pack, ok := f.at[o.key]; ok {
			f.packs[pack] = true
		} else {
			ask = append(ask, o.key)
		}
	}
	const few = 64 // the first answers tell which footers have the others
	for len(ask) > 0 {
		some := ask[:min(few, len(ask))]
		locs, err := f.s.holder.Locate(local.Fresh(ctx), some)
		if err != nil {
			return err
		}
		for i, at := range locs {
			if at.IsZero() {
				return fmt.Errorf("%s: %w", some[i], cas.ErrNotFound)
			}
			if err := f.learn(at.Pack); err != nil {
				return err
			}
			if _, ok := f.at[some[i]]; !ok {
				return fmt.Errorf("%s: pack %s does not have it: %w", some[i], at.Pack, cas.ErrNotFound)
			}
		}
		rest := ask[:0]
		for _, key := range ask {
			if pack, ok := f.at[key]; ok {
				f.packs[pack] = true
			} else {
				rest = append(rest, key)
			}
		}
		ask = rest
	}
	return nil
}

// blob returns the objects of a blob: itself, or its list and its chunks.
func (f *packFinder) blob(ctx context.Context, ns cas.Namespace, b cas.Blob) ([]toFind, error) {
	objs := []toFind{{cas.Key{NS: ns, Hash: b.Hash}, true}}
	if !b.Chunked() {
		return objs, nil
	}
	chunks, err := cas.Chunks(ctx, f.s.blobs, ns, b)
	if err != nil {
		return nil, err
	}
	for _, c := range chunks {
		if !c.Zeros() {
			objs = append(objs, toFind{cas.Key{NS: ns, Hash: c.Hash}, true})
		}
	}
	return objs, nil
}

// learn reads a pack's footer.
func (f *packFinder) learn(id cas.PackID) error {
	if _, known := f.packs[id]; known {
		return nil
	}
	f.packs[id] = true
	objects, err := local.Footer(f.s.dir, id)
	for _, o := range objects {
		f.at[o.Key] = id
	}
	return err
}

// below reads what the directories among some objects name.
func (f *packFinder) below(ctx context.Context, objs []toFind) ([]toFind, error) {
	var mu sync.Mutex
	var all []toFind
	g, ctx := errgroup.WithContext(ctx)
	n := runtime.GOMAXPROCS(0)
	for i := range n {
		g.Go(func() error {
			var buf []byte
			var mine []toFind
			for _, o := range objs[i*len(objs)/n : (i+1)*len(objs)/n] {
				if o.leaf {
					continue
				}
				var err error
				if buf, err = f.s.blobs.Read(local.ByChecksum(ctx), o.key, buf[:0]); err != nil {
					return err
				}
				refs, err := tree.Refs(buf)
				if err != nil {
					return fmt.Errorf("%s: %w: %w", o.key, err, cas.ErrCorrupt)
				}
				for _, ref := range refs {
					b := cas.Blob{Hash: ref.Key.Hash, Size: int64(ref.Size)}
					if ref.Key.NS == cas.Trees || !b.Chunked() {
						mine = append(mine, toFind{ref.Key, ref.Key.NS != cas.Trees})
						continue
					}
					chunks, err := f.blob(ctx, ref.Key.NS, b)
					if err != nil {
						return err
					}
					mine = append(mine, chunks...)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			return nil
		})
	}
	return all, g.Wait()
}
