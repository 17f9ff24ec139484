package local

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// An Index knows where objects lie. Its methods may be called concurrently.
type Index interface {
	// Locate tells, key by key, where the object lies; the zero Location is
	// nowhere. It may remember what it told, except under [Fresh].
	Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error)
	// Have reports, key by key, whether a writer may rely on the object that
	// the store has, and need not put it again.
	Have(ctx context.Context, keys []cas.Key) ([]bool, error)
	// AddPack takes over a closed and durable pack from tmp/ (see [Store.Adopt]).
	// When it returns, the pack's objects can be located, for good.
	AddPack(ctx context.Context, id cas.PackID) error
}

// freshKey marks a context made by [Fresh].
type freshKey struct{}

// Fresh returns a context whose Locate must not be answered from memory: what
// was remembered about the asked-for objects has proved wrong.
func Fresh(ctx context.Context) context.Context {
	return context.WithValue(ctx, freshKey{}, true)
}

// IsFresh reports whether ctx was made by [Fresh].
func IsFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }

// Options of a [Store]. The zero value works.
type Options struct {
	Compression Compression
	// Damaged is told of every object that is found damaged by a read; nil: nobody
	// is. It must not read from the store.
	Damaged func(o cas.Located)
	// Places bounds the memory for places of objects that were learned from packs'
	// footers, in bytes; 0: the index is asked each time.
	Places int
	// Keep has writers leave what they have put in tmp/ when they end, however they end,
	// before it is a pack of the store's: [Store.Salvage] takes it over. What a Put has
	// returned for outlives the process.
	Keep bool
	// FS changes the packs' files; nil: the operating system's.
	FS disk.FS
}

// openPacks is how many packs a store keeps open for reading.
const openPacks = 128

// A Store reads and writes the packs of one directory. It implements
// [cas.Store].
type Store struct {
	dir   string
	index Index
	opt   Options
	fsys  disk.FS
	packs *lru.Cache[cas.PackID, *pack]
	known places
	bufs  buffers

	sharding sync.Mutex
	shards   map[string]bool // directories of packs whose names are durable
}

var _ cas.Store = (*Store)(nil)

// New opens the packs in dir, made by [Create].
func New(dir string, index Index, opt Options) *Store {
	closeFile := func(_ cas.PackID, p *pack) { p.Close() } // a read under way finishes first
	packs, err := lru.NewWithEvict(openPacks, closeFile)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &Store{
		dir: dir, index: index, opt: opt, fsys: disk.Or(opt.FS), packs: packs, known: places{max: opt.Places},
		bufs: newBuffers(), shards: map[string]bool{},
	}
}

// Close closes the packs. Reads after it open them again.
func (s *Store) Close() error {
	s.packs.Purge()
	return nil
}

// Has implements [cas.Store].
func (s *Store) Has(ctx context.Context, keys []cas.Key) ([]bool, error) {
	has := make([]bool, len(keys))
	there := map[cas.PackID]bool{}
	var ask []cas.Key
	var which []int // of keys
	for i, k := range keys {
		if at, ok := s.known.find(k); ok && s.isThere(at.Pack, there) {
			has[i] = true
		} else {
			ask, which = append(ask, k), append(which, i)
		}
	}
	if len(ask) == 0 {
		return has, nil
	}
	locs, err := s.index.Locate(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, l := range locs {
		if has[which[i]] = !l.IsZero(); !l.IsZero() && s.known.note(l.Pack) {
			s.learn(l.Pack)
		}
	}
	return has, nil
}

// isThere looks for a pack, once for all that asks with the same looked.
func (s *Store) isThere(id cas.PackID, looked map[cas.PackID]bool) bool {
	there, ok := looked[id]
	if !ok {
		_, err := PackSize(s.dir, id)
		there = err == nil
		looked[id] = there
	}
	return there
}

// Read implements [cas.Store]. A pack that is gone was rewritten: its objects
// have a new place by then, which is asked for. Only an object whose place stays
// the same is missing.
func (s *Store) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	if at, ok := s.known.find(key); ok {
		if out, err := s.bufs.read(ctx, s, key, at, dst); err == nil {
			return out, nil
		} else if errors.Is(err, ErrWouldWait) {
			return nil, err
		} else if errors.Is(err, iofs.ErrNotExist) {
			s.known.forget(at.Pack)
		}
		// Whatever is wrong, the index knows better.
	}
	ask := ctx
	var gone cas.Location
	for {
		locs, err := s.index.Locate(ask, []cas.Key{key})
		if err != nil {
			return nil, err
		}
		at := locs[0]
		if at.IsZero() {
			return nil, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
		}
		if at == gone {
			return nil, fmt.Errorf("%s: pack %s is missing: %w", key, gone.Pack, cas.ErrNotFound)
		}
		if s.known.note(at.Pack) {
			s.learn(at.Pack)
		}
		out, err := s.readAt(ctx, key, at, dst)
		if !errors.Is(err, iofs.ErrNotExist) {
			return out, err
		}
		gone, ask = at, Fresh(ctx)
	}
}

// Expect implements [cas.Expecter]: the index is asked once for all.
func (s *Store) Expect(ctx context.Context, keys []cas.Key) {
	ask := make([]cas.Key, 0, len(keys))
	for _, k := range keys {
		if _, ok := s.known.find(k); !ok {
			ask = append(ask, k)
		}
	}
	if len(ask) == 0 {
		return
	}
	locs, err := s.index.Locate(ctx, ask)
	if err != nil {
		return // whoever reads them meets it
	}
	s.known.tell(ask, locs)
}

// learn notes where a pack's objects lie.
func (s *Store) learn(id cas.PackID) {
	if f, err := os.Open(packPath(s.dir, id)); err == nil {
		s.known.learn(f, id)
		f.Close()
	}
}

// ReadAt is Read for an object whose place is known. It fails with
// [iofs.ErrNotExist] when the pack is gone.
func (s *Store) ReadAt(key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	return s.readAt(context.Background(), key, at, dst)
}

// readAt is ReadAt, which tells of damage.
func (s *Store) readAt(ctx context.Context, key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	out, err := s.bufs.read(ctx, s, key, at, dst)
	if s.opt.Damaged != nil && errors.Is(err, cas.ErrCorrupt) {
		s.opt.Damaged(cas.Located{Key: key, Location: at})
	}
	return out, err
}

// readPack fills the parts from a pack, one after the other. A file that was
// closed under the read because others were needed more is opened again.
func (s *Store) readPack(ctx context.Context, at cas.Location, parts ...[]byte) error {
	for {
		p, ok := s.packs.Get(at.Pack)
		if !ok {
			var err error
			if p, err = openRead(s.dir, at.Pack); err != nil {
				return err
			}
			if old, found, _ := s.packs.PeekOrAdd(at.Pack, p); found {
				p.Close()
				p = old
			}
		}
		if err := p.readPack(ctx, at, parts...); !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
}

// NewWriter implements [cas.Store].
func (s *Store) NewWriter(ctx context.Context) (cas.Writer, error) {
	return &writer{store: s, ctx: ctx, claimed: map[cas.Key]struct{}{}}, nil
}

// Size returns the bytes of all packs of the store in dir, and their number.
func Size(dir string) (packs int, bytes int64, err error) {
	for id, err := range Packs(dir) {
		if err != nil {
			return 0, 0, err
		}
		info, err := os.Stat(packPath(dir, id))
		if errors.Is(err, iofs.ErrNotExist) {
			continue // rewritten meanwhile
		}
		if err != nil {
			return 0, 0, err
		}
		packs, bytes = packs+1, bytes+info.Size()
	}
	return packs, bytes, nil
}
