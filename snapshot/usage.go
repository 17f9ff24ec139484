package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
)

// Usage says what takes the room in a store. All numbers are bytes unless they say
// otherwise.
type Usage struct {
	// LogicalBytes is what all checkpoints would take beside each other: files by their
	// lengths, once a name, artifacts and conversations.
	LogicalBytes int64 `json:"logicalBytes"`
	// UniqueBytes is the length of all objects that are needed, each once: contents, and
	// what describes them. Runs of zeros are not in it.
	UniqueBytes int64 `json:"uniqueBytes"`
	// StoredBytes is what these objects take in packs, compressed and with headers.
	StoredBytes int64 `json:"storedBytes"`
	// ReclaimableBytes is what packs have beside that: what nothing needs any more. A
	// collection leaves a little of it, one that purges nothing.
	ReclaimableBytes int64 `json:"reclaimableBytes"`
	Objects          int   `json:"objects"` // that are needed
	// DedupRatio is LogicalBytes to UniqueBytes, CompressionRatio UniqueBytes to
	// StoredBytes; 0 where there is nothing.
	DedupRatio       float64 `json:"dedupRatio"`
	CompressionRatio float64 `json:"compressionRatio"`
	// Limit is the store's limit; 0: it has none.
	Limit int64 `json:"limit,omitempty"`
	// LimitedBytes is what counts for the limit: packs and journal.
	LimitedBytes int64            `json:"limitedBytes"`
	Namespaces   []NamespaceUsage `json:"namespaces"`
	Threads      []ThreadUsage    `json:"threads"` // by last activity, newest first
}

// NamespaceUsage is what the needed objects of one namespace take.
type NamespaceUsage struct {
	Namespace   string `json:"namespace"`
	Objects     int    `json:"objects"`
	UniqueBytes int64  `json:"uniqueBytes"`
	StoredBytes int64  `json:"storedBytes"`
}

// ThreadUsage is what one thread takes.
type ThreadUsage struct {
	Thread       string `json:"thread"`
	Checkpoints  int    `json:"checkpoints"`
	LogicalBytes int64  `json:"logicalBytes"`
	// FreedBytes is what no other thread needs: what deleting this one, and nothing else,
	// makes reclaimable.
	FreedBytes int64 `json:"freedBytes"`
}

// Usage counts what the store's checkpoints and artifacts take. It reads every directory,
// each once or twice whatever shares it, and takes about 60 bytes of memory an object. It
// fails with [cas.ErrNotFound] or [cas.ErrCorrupt] where one is lost.
func (s *Store) Usage(ctx context.Context) (Usage, error) { return s.holder.Usage(ctx) }

// Usage implements [Holder].
func (h *localHolder) Usage(ctx context.Context) (Usage, error) {
	a := newAccountant(h, progress.From(ctx))
	if err := a.all(ctx); err != nil {
		return Usage{}, fmt.Errorf("stats: %w", err)
	}
	if err := a.count(ctx); err != nil {
		return Usage{}, fmt.Errorf("stats: %w", err)
	}
	u := a.usage
	u.Limit = h.limit
	packs, bytes, limited, err := h.sizes()
	if err != nil {
		return Usage{}, fmt.Errorf("stats: %w", err)
	}
	u.LimitedBytes = limited
	bytes -= int64(packs) * local.WholeSize(0)
	// What was collected or saved meanwhile may have changed packs after they were counted.
	u.ReclaimableBytes = max(0, bytes-u.StoredBytes)
	u.DedupRatio, u.CompressionRatio = ratio(u.LogicalBytes, u.UniqueBytes), ratio(u.UniqueBytes, u.StoredBytes)
	return u, nil
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Owners of objects that are no thread's number: several is that of one that more than one
// of them needs, instant that of what only instant workspaces need.
const (
	several = -1
	instant = -2
)

// An accountant finds out which threads need an object.
type accountant struct {
	reach
	h       *localHolder
	owner   map[cas.Key]int32 // number of the thread, or several
	current int32             // number of the thread that is looked at
	usage   Usage
}

// newAccountant makes one that has seen nothing. An object that a second thread needs is
// gone below once more, for what lies below is needed by both; then never again. So
// every object is read twice at most.
func newAccountant(h *localHolder, meter *progress.Meter) *accountant {
	a := &accountant{h: h, owner: map[cas.Key]int32{}, usage: Usage{Namespaces: []NamespaceUsage{}, Threads: []ThreadUsage{}}}
	a.reach = reach{source: h.objects, found: nothing, claim: func(key cas.Key) bool {
		switch owner, known := a.owner[key]; {
		case !known:
			a.owner[key] = a.current
			meter.Add(1, 0)
			return true
		case owner == a.current, owner == several:
			return false
		}
		a.owner[key] = several
		return true
	}}
	return a
}

// nothing is for who only wants to know what is reached.
func nothing(context.Context, bool, ...needed) error { return nil }

// all looks at every thread.
func (a *accountant) all(ctx context.Context) error {
	orgs, err := a.h.index.Organizations(ctx)
	if err != nil {
		return err
	}
	for _, org := range orgs {
		for t, err := range a.h.index.Threads(ctx, org, index.Page{}) {
			if err != nil {
				return err
			}
			a.current = int32(len(a.usage.Threads))
			a.usage.Threads = append(a.usage.Threads, ThreadUsage{Thread: t.ID})
			if err := a.thread(ctx, org, t.ID); err != nil {
				return WithHint(err, "snapfs verify names all that is lost")
			}
		}
	}
	a.current = instant
	return pinned(ctx, a.h, &a.reach)
}

// thread looks at what one thread needs.
func (a *accountant) thread(ctx context.Context, org, id string) error {
	u := &a.usage.Threads[a.current]
	for cp, err := range a.h.index.Checkpoints(ctx, org, id, index.Page{}) {
		if errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		if cp.Status != index.Ready {
			continue
		}
		u.Checkpoints++
		artifacts, err := a.checkpoint(ctx, cp.Record, cp.RecordHash)
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
		}
		u.LogicalBytes += int64(cp.Totals.Bytes) + int64(cp.Record.Conversation.Size)
		for _, artifact := range artifacts {
			u.LogicalBytes += int64(artifact.Blob.Size)
		}
	}
	artifacts, err := a.h.index.Artifacts(ctx, org, id)
	if errors.Is(err, index.ErrThreadNotFound) {
		return nil
	}
	if err == nil {
		err = a.artifacts(ctx, artifacts)
	}
	if err != nil {
		return fmt.Errorf("artifacts of thread %s: %w", quoted(id), err)
	}
	return nil
}

// count adds up what the objects take.
func (a *accountant) count(ctx context.Context) error {
	byNamespace := make([]NamespaceUsage, cas.Records+1)
	u := &a.usage
	for o, err := range a.h.located(ctx) {
		if err != nil {
			return err
		}
		owner, needed := a.owner[o.Key]
		if !needed {
			continue
		}
		plain, stored := int64(o.Location.Plain), a.h.recordSize(o.Location)
		n := &byNamespace[o.Key.NS]
		n.Objects, n.UniqueBytes, n.StoredBytes = n.Objects+1, n.UniqueBytes+plain, n.StoredBytes+stored
		if owner >= 0 {
			u.Threads[owner].FreedBytes += stored
		}
	}
	for ns := cas.Files; ns.Valid(); ns++ {
		n := byNamespace[ns]
		n.Namespace = ns.String()
		u.Namespaces = append(u.Namespaces, n)
		u.Objects, u.UniqueBytes, u.StoredBytes = u.Objects+n.Objects, u.UniqueBytes+n.UniqueBytes, u.StoredBytes+n.StoredBytes
	}
	for _, t := range u.Threads {
		u.LogicalBytes += t.LogicalBytes
	}
	return nil
}

// located yields all objects.
func (h *localHolder) located(ctx context.Context) iter.Seq2[cas.Located, error] {
	if h.packs != nil {
		return h.index.Locations(ctx)
	}
	return func(yield func(cas.Located, error) bool) {
		for _, o := range h.memory.Objects() {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// recordSize is what an object takes, in bytes.
func (h *localHolder) recordSize(at cas.Location) int64 {
	if h.packs != nil {
		return local.RecordSize(at)
	}
	return int64(at.Stored)
}
