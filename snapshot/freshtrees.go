package snapshot

import (
	"bytes"
	"context"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// freshTrees keeps the directories of a capture that the store does not have, and drops
// all contents. As a source it has those of the store, too.
type freshTrees struct {
	under cas.Source

	mu   sync.RWMutex
	objs map[cas.Hash][]byte
}

// Put implements [cas.Writer].
func (f *freshTrees) Put(_ context.Context, objs ...cas.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objs == nil {
		f.objs = map[cas.Hash][]byte{}
	}
	for _, o := range objs {
		if o.Key.NS == cas.Trees {
			f.objs[o.Key.Hash] = bytes.Clone(o.Data)
		}
	}
	return nil
}

// Flush implements [cas.Writer].
func (f *freshTrees) Flush(context.Context) error { return nil }

// Stats implements [cas.Writer].
func (f *freshTrees) Stats() cas.WriterStats { return cas.WriterStats{} }

// Close implements [cas.Writer].
func (f *freshTrees) Close() error { return nil }

// Read implements [cas.Source].
func (f *freshTrees) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	f.mu.RLock()
	data, ok := f.objs[key.Hash]
	f.mu.RUnlock()
	if ok && key.NS == cas.Trees {
		return append(dst, data...), nil
	}
	return f.under.Read(ctx, key, dst)
}

// Expect implements [cas.Expecter] for what is in the store.
func (f *freshTrees) Expect(ctx context.Context, keys []cas.Key) {
	e, ok := f.under.(cas.Expecter)
	if !ok {
		return
	}
	var others []cas.Key
	f.mu.RLock()
	for _, k := range keys {
		if _, ok := f.objs[k.Hash]; !ok {
			others = append(others, k)
		}
	}
	f.mu.RUnlock()
	e.Expect(ctx, others)
}
