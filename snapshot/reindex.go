package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/badger"
	"github.com/snapfs/snapfs/index/journal"
)

// ReindexResult counts what an index that was made anew knows.
type ReindexResult struct {
	Threads     int
	Checkpoints int
	Packs       int
}

// Reindex makes the index of the store in dir anew, from its packs and its journal
// alone, and calls report for each thing that is lost. A damaged or missing journal is
// mended first: its whole entries stay, and checkpoints that nothing names any more, in
// whose place entries are lost, are published again from their records. If the old
// index is whole and knows what was lost, all becomes as it says. What was damaged is
// kept in damaged/. Interrupted at any point it has to be run again, and the store is
// refused until then. It fails with [ErrLocked] while another process has the store.
func Reindex(ctx context.Context, dir string, opt Options, report func(problem string) error) (res ReindexResult, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return res, err
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	opt.reindex = &reindexing{report: report}
	h, err := openLocal(ctx, dir, opt)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if known := opt.reindex.known; known != nil {
		err := known.restore(ctx, h, report)
		if err == nil {
			err = known.forget(h)
		}
		if err != nil {
			return res, err
		}
	}
	threads, err := h.Threads(ctx, Page{})
	if err != nil {
		return res, err
	}
	for _, t := range threads {
		cps, err := h.Checkpoints(ctx, t.ID, Page{})
		if err != nil {
			return res, err
		}
		for _, cp := range cps {
			if cp.Status == string(index.Ready) {
				continue
			}
			if err := report(fmt.Sprintf("checkpoint %s of thread %s is lost: %s", quoted(cp.ID), quoted(t.ID), cp.StatusMessage)); err != nil {
				return res, err
			}
		}
		res.Checkpoints += len(cps)
	}
	res.Threads = len(threads)
	res.Packs, _, err = local.Size(dir)
	return res, err
}

// reindexing is the making of an index anew.
type reindexing struct {
	report func(problem string) error
	known  *knownState // what the old index knows and the journal has lost; nil: nothing
}

// prepare mends the journal, before the index is made anew from it.
func (r *reindexing) prepare(ctx context.Context, h *localHolder) error {
	report := r.report
	committed, err := badger.Committed(filepath.Join(h.dir, indexDir))
	if err != nil {
		return err
	}
	known, err := pendingKnown(h)
	if err != nil {
		return err
	}
	r.known = known
	if known == nil {
		if known, err = lastKnown(ctx, h); err != nil {
			return err
		}
	}
	lost := &lostRecords{h: h, report: report}
	if known != nil {
		committed = max(committed, known.Applied)
	}
	mended, err := journal.Repair(filepath.Join(h.dir, journalDir), journal.RepairOptions{
		FS: h.fsys, Committed: committed, Aside: filepath.Join(h.dir, local.DamagedDir),
		Fill: func(g journal.Gap, kept []journal.Entry) ([]journal.Entry, error) {
			if known == nil || len(kept) > 0 && kept[len(kept)-1].Seq > known.Applied {
				return lost.fill(ctx, g, kept)
			}
			// Before the journal changes: then nobody else would know any more.
			if r.known == nil {
				if err := known.keep(h); err != nil {
					return nil, err
				}
				r.known = known
			}
			return known.fill(g, kept), nil
		},
	})
	if err != nil {
		return err
	}
	for _, path := range mended.Copies {
		if err := report("the journal was damaged: a copy of what it was is " + quoted(path)); err != nil {
			return err
		}
	}
	unnamed := ""
	if r.known == nil {
		unnamed = ", from its record, without a name if it had one"
	}
	for _, g := range mended.Gaps {
		if err := report(gapText(g)); err != nil {
			return err
		}
		for _, e := range g.Found {
			p, _, _ := journal.Published(e.Event)
			if err := report(fmt.Sprintf("checkpoint %s of thread %s is there again%s", quoted(p.Checkpoint), quoted(p.Thread), unnamed)); err != nil {
				return err
			}
		}
	}
	return nil
}

func gapText(g journal.Gap) string {
	text := fmt.Sprintf("journal entry %d is lost", g.First)
	if g.Last > g.First {
		text = fmt.Sprintf("journal entries %d to %d are lost", g.First, g.Last)
	}
	if rest := g.Last - g.First + 1 - uint64(len(g.Found)); rest > 0 {
		text += fmt.Sprintf("; of %d nothing more is known: checkpoints may have been published, named or deleted, artifacts added or removed", rest)
	}
	return text
}

// publishedIn tells which checkpoints entries of the journal publish, or delete.
func publishedIn(entries []journal.Entry) map[string]bool {
	all := map[string]bool{}
	for _, e := range entries {
		if ev, _, ok := journal.Published(e.Event); ok {
			all[ev.Checkpoint] = true
		}
		switch ev := e.Event.(type) {
		case journal.Delete:
			all[ev.Checkpoint] = true
		case journal.Deleting:
			for _, id := range ev.Checkpoints {
				all[id] = true
			}
		case journal.DeleteSome:
			for _, id := range ev.Checkpoints {
				all[id] = true
			}
		}
	}
	return all
}

// publishAgain is an entry of the journal that publishes a checkpoint; created is Unix
// time in ns.
func publishAgain(id, thread, parent string, record cas.Hash, created int64, from index.Received) journal.Entry {
	return journal.Entry{Time: time.Unix(0, created).UTC(), Event: journal.NewPublished(journal.Publish{
		Org: defaultOrg, Checkpoint: id, Thread: thread, Record: record, ExpectedHead: parent,
	}, from)}
}

// lostRecords finds the records of checkpoints that the journal does not name.
type lostRecords struct {
	h      *localHolder
	report func(string) error
	found  []foundRecord // nil: not looked for yet
}

type foundRecord struct {
	index.Record
	hash cas.Hash
}

// fill takes the records that were made last before the gap's end: as many as it has
// entries. One that was never published, because its save failed at the very end, may
// be among them; none that was published is left out for it.
func (l *lostRecords) fill(ctx context.Context, g journal.Gap, kept []journal.Entry) ([]journal.Entry, error) {
	if l.found == nil {
		var err error
		if l.found, err = l.find(ctx, kept); err != nil {
			return nil, err
		}
	}
	upTo := len(l.found)
	if !g.Before.IsZero() {
		upTo, _ = slices.BinarySearchFunc(l.found, g.Before, func(r foundRecord, t time.Time) int { return r.CreatedAt().Compare(t) })
	}
	from := 0
	if !g.Before.IsZero() || len(kept) > 0 {
		from = max(0, upTo-int(g.Last-g.First+1))
	}
	var entries []journal.Entry
	for _, r := range l.found[from:upTo] {
		entries = append(entries, publishAgain(r.ID, r.Thread, r.Parent, r.hash, r.Created, index.Received{}))
	}
	l.found = slices.Delete(l.found, from, upTo)
	return entries, nil
}

// find reads all records that nothing in the journal publishes, in the order in which
// they were made. A pack without a readable footer has none: what a search finds in it
// may be the content of a file, made to be found and to become a checkpoint of
// somebody else's thread.
func (l *lostRecords) find(ctx context.Context, kept []journal.Entry) ([]foundRecord, error) {
	published := publishedIn(kept)
	found := []foundRecord{}
	for id, err := range local.Packs(l.h.dir) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		objects, err := local.ReadFooter(l.h.dir, id)
		if errors.Is(err, cas.ErrCorrupt) {
			err = l.report(fmt.Sprintf("%v: checkpoints are not looked for in it", err))
		}
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if o.Key.NS != cas.Records {
				continue
			}
			data, err := l.h.packs.ReadAt(o.Key, o.Location, nil)
			if err != nil {
				if err := l.report(fmt.Sprintf("pack %s: %v", o.Location.Pack, err)); err != nil {
					return nil, err
				}
				continue
			}
			rec, err := index.DecodeRecord(data)
			if err != nil || published[rec.ID] { // other things are kept beside records
				continue
			}
			published[rec.ID] = true
			found = append(found, foundRecord{rec, o.Key.Hash})
		}
	}
	slices.SortStableFunc(found, func(a, b foundRecord) int { return cmp.Compare(a.Created, b.Created) })
	return found, nil
}
