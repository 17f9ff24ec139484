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
	keys   []cas.Key
	paths  []string // of keys
}

// check fails with [cas.ErrNotFound] or [cas.ErrCorrupt], naming the path, when
// the store lacks something that the restore of root will need. It reads
// directory objects and chunk lists, no contents.
func check(ctx context.Context, store cas.Store, r *tree.Reader, root cas.Hash, files *policy.Files) error {
	c := &checker{ctx: ctx, store: store, reader: r}
	if err := c.dir(root, "", files.Root()); err != nil {
		return err
	}
	return c.flush()
}

func (c *checker) dir(h cas.Hash, path string, scope policy.Scope) error {
	d, err := c.reader.Open(c.ctx, h)
	if err != nil {
		return fmt.Errorf("directory %s: %w", tree.Quote(path), err)
	}
	for e, err := range d.Entries(c.ctx, 0) {
		if err != nil {
			return fmt.Errorf("directory %s: %w", tree.Quote(path), err)
		}
		p := path + e.Name
		decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
		if e.Kind == tree.Dir && decision.Descend {
			if err := c.dir(e.Hash, p+"/", sub); err != nil {
				return err
			}
		}
		if !decision.Keep {
			continue
		}
		if !e.XAttrs.IsZero() {
			if err := c.need(p, cas.Key{NS: cas.Trees, Hash: e.XAttrs}); err != nil {
				return err
			}
		}
		if e.Kind == tree.File {
			if err := c.blob(p, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}); err != nil {
				return err
			}
		}
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
