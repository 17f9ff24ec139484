package tree

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// A Source is where a [Reader] gets objects from: the Read method of
// [cas.Store], with the same contract.
type Source interface {
	Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error)
}

// A Reader reads the objects of the trees namespace and keeps the last used
// ones decoded. All methods may be called concurrently. An object that is
// missing is [cas.ErrNotFound]; one that breaks a rule of the format, or does
// not fit where it is named, is both [cas.ErrCorrupt] and [ErrInvalid].
type Reader struct {
	source  Source
	cache   *cache
	buffers sync.Pool // of *[]byte
}

// NewReader returns a reader that holds up to about cacheBytes bytes of decoded
// objects; with zero it reads each one whenever it is asked for.
func NewReader(s Source, cacheBytes int64) *Reader {
	return &Reader{source: s, cache: newCache(cacheBytes), buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// read gets an object's bytes as a string of just their length.
func (r *Reader) read(ctx context.Context, h cas.Hash) (string, error) {
	buf := r.buffers.Get().(*[]byte)
	defer r.buffers.Put(buf)
	b, err := r.source.Read(ctx, cas.Key{NS: cas.Trees, Hash: h}, (*buf)[:0])
	if err != nil {
		return "", err
	}
	*buf = b
	return string(b), nil
}

// load returns a directory object, from the cache if it is there.
func (r *Reader) load(ctx context.Context, h cas.Hash) (*object, error) {
	if o, ok := r.cache.get(h).(*object); ok {
		return o, nil
	}
	data, err := r.read(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", h, err)
	}
	o, err := decodeObject(data)
	if err != nil {
		return nil, corrupt("directory", h, err)
	}
	if first, ok := r.cache.add(h, o).(*object); ok {
		return first, nil
	}
	return o, nil
}

// Open returns the directory whose root object is h. It reads that one object.
func (r *Reader) Open(ctx context.Context, h cas.Hash) (*Directory, error) {
	o, err := r.load(ctx, h)
	if err != nil {
		return nil, err
	}
	if err := o.checkRoot(); err != nil {
		return nil, corrupt("directory", h, err)
	}
	return &Directory{r: r, hash: h, top: o}, nil
}

// Find returns the entry at a slash path below the directory root. It follows
// no symlinks. For "" and "." it returns a directory entry that has nothing but
// its kind and hash: a root's other metadata lies outside its tree. It fails
// with [ErrNotFound], also when the path leads through something that is not a
// directory, and with [ErrInvalid] when the path breaks the rules of
// [CheckPath].
func (r *Reader) Find(ctx context.Context, root cas.Hash, path string) (Entry, error) {
	e := Entry{Kind: Dir, Hash: root}
	if path == "" || path == "." {
		return e, nil
	}
	if err := CheckPath(path); err != nil {
		return Entry{}, err
	}
	for name := range strings.SplitSeq(path, "/") {
		if e.Kind != Dir {
			return Entry{}, fmt.Errorf("find %q: %q is a %s: %w", path, e.Name, e.Kind, ErrNotFound)
		}
		d, err := r.Open(ctx, e.Hash)
		if err != nil {
			return Entry{}, fmt.Errorf("find %q: %w", path, err)
		}
		if e, err = d.Lookup(ctx, name); err != nil {
			return Entry{}, fmt.Errorf("find %q: %w", path, err)
		}
	}
	return e, nil
}

// XAttrs reads a set of extended attributes. The result is shared and must not
// be changed.
func (r *Reader) XAttrs(ctx context.Context, h cas.Hash) ([]XAttr, error) {
	if set, ok := r.cache.get(h).(xattrSet); ok {
		return set, nil
	}
	data, err := r.read(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("read extended attributes %s: %w", h, err)
	}
	set, err := DecodeXAttrs([]byte(data))
	if err != nil {
		return nil, corrupt("extended attributes", h, err)
	}
	r.cache.add(h, xattrSet(set))
	return set, nil
}
