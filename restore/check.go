package restore

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// checkBatch is how many objects are asked for at once.
const checkBatch = 1024

// checker looks for everything that a restore will need.
type checker struct {
	ctx    context.Context
	store  cas.Store
	reader *tree.Reader
	links  *linkGroups
	keys   []cas.Key
	paths  []string // of keys
}

// check fails with [cas.ErrNotFound] or [cas.ErrCorrupt], naming the path, when
// the store lacks something that the restore of src will need. It reads
// directory objects, attributes and chunk lists, no contents.
func check(ctx context.Context, store cas.Store, r *tree.Reader, src Source, links *linkGroups, files *policy.Files) error {
	c := &checker{ctx: ctx, store: store, reader: r, links: links}
	if err := c.xattrs(".", src.Stat.XAttrs); err != nil {
		return err
	}
	if err := c.dir(src.Root, "", files.Root()); err != nil {
		return err
	}
	return c.flush()
}

func (c *checker) dir(h cas.Hash, path string, scope policy.Scope) error {
	d, err := c.reader.Open(c.ctx, h)
	if err != nil {
		return fmt.Errorf("directory %s: %w", tree.Quote(shown(path)), err)
	}
	for e, err := range d.Entries(c.ctx, 0) {
		if err != nil {
			return fmt.Errorf("directory %s: %w", tree.Quote(shown(path)), err)
		}
		// A small tree may unfold to any depth.
		p := path + e.Name
		if len(p) > tree.MaxPath {
			return corrupt("%s: a path of %d bytes", tree.Quote(p), len(p))
		}
		decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
		if e.Kind == tree.Dir && decision.Descend {
			if err := c.dir(e.Hash, p+"/", sub); err != nil {
				return err
			}
		}
		if !decision.Keep {
			continue
		}
		if err := c.links.check(p, e); err != nil {
			return err
		}
		if err := c.xattrs(p, e.XAttrs); err != nil {
			return err
		}
		if e.Kind == tree.File {
			if err := c.blob(p, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// xattrs reads a set of extended attributes; the zero hash is none.
func (c *checker) xattrs(path string, h cas.Hash) error {
	if h.IsZero() {
		return nil
	}
	if _, err := c.reader.XAttrs(c.ctx, h); err != nil {
		return fmt.Errorf("%s: %w", tree.Quote(path), err)
	}
	return nil
}

// blob asks for a file's object, or for its list and its chunks.
func (c *checker) blob(path string, b cas.Blob) error {
	chunks, err := cas.Chunks(c.ctx, c.store, cas.Files, b)
	if err != nil {
		return fmt.Errorf("%s: %w", tree.Quote(path), err)
	}
	for _, chunk := range chunks {
		if chunk.Zeros() {
			continue
		}
		if err := c.need(path, cas.Key{NS: cas.Files, Hash: chunk.Hash}); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) need(path string, key cas.Key) error {
	c.keys, c.paths = append(c.keys, key), append(c.paths, path)
	if len(c.keys) < checkBatch {
		return nil
	}
	return c.flush()
}

func (c *checker) flush() error {
	has, err := c.store.Has(c.ctx, c.keys)
	if err != nil {
		return err
	}
	for i, ok := range has {
		if !ok {
			return fmt.Errorf("%s: %s: %w", tree.Quote(c.paths[i]), c.keys[i], cas.ErrNotFound)
		}
	}
	c.keys, c.paths = c.keys[:0], c.paths[:0]
	return nil
}
