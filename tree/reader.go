package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// A Reader reads the objects of the trees namespace and keeps the last used
// ones decoded. All methods may be called concurrently. An object that is
// missing is [cas.ErrNotFound]; one that breaks a rule of the format, or does
// not fit where it is named, is both [cas.ErrCorrupt] and [ErrInvalid].
type Reader struct {
	source  cas.Source
	cache   *cas.Cache[decoded]
	buffers sync.Pool // of *[]byte
}

// NewReader returns a reader that holds up to about cacheBytes bytes of decoded
// objects; with zero it reads each one whenever it is asked for.
func NewReader(s cas.Source, cacheBytes int64) *Reader {
	return &Reader{source: s, cache: cas.NewCache(cacheBytes, decoded.cost), buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// Expect tells the source which directory objects will be read soon, if it is one that
// can make use of that.
func (r *Reader) Expect(ctx context.Context, hashes []cas.Hash) {
	e, ok := r.source.(cas.Expecter)
	if !ok || len(hashes) == 0 {
		return
	}
	keys := make([]cas.Key, len(hashes))
	for i, h := range hashes {
		keys[i] = cas.Key{NS: cas.Trees, Hash: h}
	}
	e.Expect(ctx, keys)
}

// A decoded object knows how much memory it takes, in bytes.
type decoded interface{ cost() int64 }

// get returns what decode makes of an object, from the cache if it is there.
// what names the object's use in errors.
func (r *Reader) get(ctx context.Context, what string, h cas.Hash, decode func(data string) (decoded, error)) (decoded, error) {
	v, err := r.fetch(ctx, what, h, decode)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("read %s %s: %w", what, h, err)
	}
	return v, err
}

// fetch is get, with the source's errors as they are.
func (r *Reader) fetch(ctx context.Context, what string, h cas.Hash, decode func(data string) (decoded, error)) (decoded, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := cas.Key{NS: cas.Trees, Hash: h}
	// Others may wait for this read: it ends even if its first asker goes away.
	ctx = context.WithoutCancel(ctx)
	return r.cache.Get(key, func() (decoded, error) {
		buf := r.buffers.Get().(*[]byte)
		defer r.buffers.Put(buf)
		b, err := r.source.Read(ctx, key, (*buf)[:0])
		if err != nil {
			return nil, err
		}
		*buf = b
		v, err := decode(string(b)) // of just its length
		if err != nil {
			return nil, corrupt(what, h, err)
		}
		return v, nil
	})
}

// load returns a directory object.
func (r *Reader) load(ctx context.Context, h cas.Hash) (*object, error) {
	const what = "directory"
	v, err := r.get(ctx, what, h, func(data string) (decoded, error) { return decodeObject(data) })
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, corrupt(what, h, invalid(what, "it is a set of extended attributes"))
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
// [CheckPath]. The error does not name the path.
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
			return Entry{}, fmt.Errorf("%s is a %s: %w", Quote(e.Name), e.Kind, ErrNotFound)
		}
		d, err := r.Open(ctx, e.Hash)
		if err != nil {
			return Entry{}, err
		}
		if e, err = d.Lookup(ctx, name); err != nil && name != path {
			err = fmt.Errorf("%s: %w", Quote(name), err)
		}
		if err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

// decodeSet decodes a set of extended attributes.
func decodeSet(data string) (decoded, error) {
	set, err := DecodeXAttrs([]byte(data))
	return xattrSet(set), err
}

// XAttrs reads a set of extended attributes. The result is shared and must not
// be changed.
func (r *Reader) XAttrs(ctx context.Context, h cas.Hash) ([]XAttr, error) {
	const what = "extended attributes"
	v, err := r.get(ctx, what, h, decodeSet)
	if err != nil {
		return nil, err
	}
	set, ok := v.(xattrSet)
	if !ok {
		return nil, corrupt(what, h, invalid(what, "it is a directory"))
	}
	return set, nil
}
