package restore

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/tasks"
	"github.com/snapfs/snapfs/tree"
)

// checkBatch is how many objects are asked for at once.
const checkBatch = 1024

// checker looks for everything that a restore will need.
type checker struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // with the first error
	store  cas.Store
	reader *tree.Reader
	links  *linkGroups
	tasks  *tasks.Stack[checkTask]

	mu    sync.Mutex
	times map[cas.Hash]int // how often an object is needed
}

// checkTask is a directory to be looked through.
type checkTask struct {
	hash cas.Hash
	path string // "" or ends in a slash
	in   within
}

// checkWorker looks through directories.
type checkWorker struct {
	*checker
	times map[cas.Hash]int
	keys  []cas.Key
	paths []string // of keys
}

// check fails with [cas.ErrNotFound] or [cas.ErrCorrupt], naming the path, when
// the store lacks something that the restore of src will need. It reads
// directory objects, attributes and chunk lists, no contents. It returns which
// objects are needed several times.
func check(ctx context.Context, store cas.Store, r *tree.Reader, src Source, links *linkGroups, in within) (*repeated, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &checker{ctx: ctx, cancel: cancel, store: store, reader: r, links: links, times: map[cas.Hash]int{}}
	if err := c.xattrs(".", src.Stat.XAttrs); err != nil {
		return nil, err
	}
	c.tasks = tasks.New(checkTask{hash: src.Root, in: in})
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(c.work)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return newRepeated(c.times), nil
}

// work looks through directories until none is left.
func (c *checker) work() {
	w := &checkWorker{checker: c, times: map[cas.Hash]int{}}
	c.tasks.Each(func(t checkTask) {
		if c.ctx.Err() != nil {
			return
		}
		if err := w.dir(t); err != nil {
			c.cancel(err)
		}
	})
	if err := w.flush(); err != nil {
		c.cancel(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for h, n := range w.times {
		c.times[h] += n
	}
}

func (c *checkWorker) dir(t checkTask) error {
	d, err := c.reader.Open(c.ctx, t.hash)
	if err != nil {
		return fmt.Errorf("directory %s: %w", tree.Quote(shown(t.path)), err)
	}
	for e, err := range d.Entries(c.ctx, 0) {
		if err != nil {
			return fmt.Errorf("directory %s: %w", tree.Quote(shown(t.path)), err)
		}
		// A small tree may unfold to any depth.
		p := t.path + e.Name
		if len(p) > tree.MaxPath {
			return corrupt("%s: a path of %d bytes", tree.Quote(p), len(p))
		}
		decision, sub := t.in.decide(&e)
		if e.Kind == tree.Dir && decision.Descend {
			c.tasks.Put(checkTask{hash: e.Hash, path: p + "/", in: sub})
		}
		if !decision.Keep {
			continue
		}
		if p == capture.Marker {
			return corrupt("%s: the name of a restore's own marker", tree.Quote(p))
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
func (c *checkWorker) blob(path string, b cas.Blob) error {
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

func (c *checkWorker) need(path string, key cas.Key) error {
	if c.times[key.Hash]++; c.times[key.Hash] > 1 {
		return nil
	}
	c.keys, c.paths = append(c.keys, key), append(c.paths, path)
	if len(c.keys) < checkBatch {
		return nil
	}
	return c.flush()
}

func (c *checkWorker) flush() error {
	if len(c.keys) == 0 {
		return nil
	}
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
