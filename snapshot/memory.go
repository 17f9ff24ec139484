package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/memory"
	memindex "github.com/snapfs/snapfs/index/memory"
	"github.com/snapfs/snapfs/tree"
)

// OpenMemory makes an empty store in memory, for the tests of programs that use
// snapfs. It does all that a store on a disk does, but cannot be mounted or
// served to other processes, and is gone when it is closed.
func OpenMemory() *Store { return openMemory(time.Now) }

func openMemory(now func() time.Time) *Store {
	h := newHolder(slog.New(slog.DiscardHandler))
	h.memory = memory.New()
	h.objects = h.memory
	h.index = memindex.New(memindex.Options{Now: now, Records: func(ctx context.Context, hash cas.Hash) ([]byte, error) {
		return h.memory.Read(ctx, cas.Key{NS: cas.Records, Hash: hash}, nil)
	}})
	h.info = newStoreInfo()
	return &Store{holder: h, blobs: h.memory, trees: tree.NewReader(h.memory, treeCache), log: h.log, now: now}
}

// gcMemory is GC in memory: writers there do not ask what was condemned, so it
// frees only while no save is under way.
func (h *localHolder) gcMemory(ctx context.Context, req GCRequest) (GCResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := newMarker(h, nil)
	if err := m.all(ctx); err != nil {
		return GCResult{}, fmt.Errorf("gc: mark: %w", err)
	}
	res := GCResult{Waiting: len(h.live)}
	var dead []cas.Key
	for _, o := range h.memory.Objects() {
		if _, ok := m.seen[o.Key]; !ok {
			dead = append(dead, o.Key)
			res.Bytes += int64(o.Location.Plain)
		}
	}
	res.Objects = len(dead)
	if !req.DryRun && res.Waiting == 0 {
		h.memory.Delete(dead...)
		res.Freed = res.Bytes
	}
	return res, nil
}
