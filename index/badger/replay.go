package badger

import (
	"context"
	"errors"
	"fmt"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// A transaction of a replay ends after so many entries and artifacts, or bytes of
// records, far below what Badger takes; see [batch].
const (
	replayEntries = batch
	replayBytes   = 128 << 10
)

// replay applies the journal from entry number from on. A record that is lost
// or damaged is distrust of the database at first; in a rebuild there is nothing
// left to try, and its checkpoint gets the status Error: one lost record must
// not take the whole store away.
func (ix *Index) replay(ctx context.Context, from uint64, rebuilding bool) error {
	var gone deleted
	if rebuilding {
		var err error
		if gone, err = ix.deleted(ctx); err != nil {
			return err
		}
	}
	txn := ix.db.NewTransaction(true)
	defer func() { txn.Discard() }()
	var at applied
	entries, bytes := 0, 0
	commit := func() error {
		if entries == 0 {
			return nil
		}
		err := txn.Set(appliedKey, at.encode())
		if err == nil {
			err = txn.Commit()
		}
		if err != nil && !rebuilding {
			err = fmt.Errorf("%w: %w", errDistrust, err)
		}
		if err != nil {
			return err
		}
		txn = ix.db.NewTransaction(true)
		entries, bytes = 0, 0
		return nil
	}
	for e, err := range ix.journal.Replay(from) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if ev, ok := e.Event.(journal.DeleteThread); ok {
			if err := commit(); err != nil {
				return err
			}
			txn.Discard() // it does not see what follows
			if err := ix.settleDeleteThread(e, ev); err != nil {
				return fmt.Errorf("apply journal entry %d: %w", e.Seq, err)
			}
			txn = ix.db.NewTransaction(true)
			continue
		}
		artifacts := 0 // or what takes as much
		published, _, publishes := journal.Published(e.Event)
		switch ev := e.Event.(type) {
		case journal.Deleting:
			artifacts = len(ev.Checkpoints)
		case journal.DeleteSome:
			artifacts = len(ev.Checkpoints)
		default:
			artifacts = len(published.Artifacts)
		}
		if artifacts > batch || entries+artifacts > replayEntries {
			if err := commit(); err != nil {
				return err
			}
		}
		if publishes && artifacts > batch {
			txn.Discard() // it does not see what follows
			if err := ix.settleArtifacts(published); err != nil {
				return fmt.Errorf("apply journal entry %d: %w", e.Seq, err)
			}
			txn = ix.db.NewTransaction(true)
			artifacts = 0
		}
		n, err := ix.apply(ctx, txn, e, gone, rebuilding)
		if err != nil {
			return fmt.Errorf("apply journal entry %d: %w", e.Seq, err)
		}
		at = applied{seq: e.Seq, sum: e.Sum}
		if entries, bytes = entries+1+artifacts, bytes+n; entries < replayEntries && bytes < replayBytes {
			continue
		}
		if err := commit(); err != nil {
			return err
		}
	}
	return commit()
}

// apply puts one entry into the tables and returns about how many bytes it took.
func (ix *Index) apply(ctx context.Context, txn *bdb.Txn, e journal.Entry, gone deleted, rebuilding bool) (int, error) {
	if ev, _, ok := journal.Published(e.Event); ok {
		rec := unread(e, ev)
		if !gone.after(e, ev) {
			var err error
			if rec, err = ix.loadPublished(ctx, e, ev, rebuilding); err != nil {
				return 0, err
			}
		}
		c, err := applyPublish(txn, e, ev, rec)
		switch {
		case err == nil:
		case !rebuilding:
			err = fmt.Errorf("%w: %w", errDistrust, err)
		case errors.Is(err, index.ErrDuplicateID):
			// A damaged database let a publish through. The first one stays.
			ix.opt.Logger.Error("the journal publishes a checkpoint twice, the second is left out",
				"entry", e.Seq, "org", ev.Org, "checkpoint", ev.Checkpoint)
			err = nil
		}
		return len(c.record), err
	}
	n := 0
	if ev, ok := e.Event.(journal.Rename); ok { // it writes the record again
		_ = withCheckpoint(txn, ev.Org, ev.Checkpoint, func(c checkpoint) error {
			n = len(c.record)
			return nil
		})
	}
	err := applyChange(txn, e)
	switch {
	case err == nil || errors.Is(err, index.ErrNewer):
	case !rebuilding:
		err = fmt.Errorf("%w: %w", errDistrust, err)
	case errors.Is(err, index.ErrCheckpointNotFound), errors.Is(err, index.ErrThreadNotFound):
		// A damaged database let a change through, too.
		ix.opt.Logger.Error("the journal changes what is not there, the change is left out", "entry", e.Seq, "err", err)
		err = nil
	}
	return n, err
}

// deleted knows what the journal deletes, and with which entry last. The records
// of such checkpoints may be gone from the packs, and that is no loss.
type deleted struct{ checkpoints, threads map[[2]string]uint64 }

// deleted reads the whole journal for deletions.
func (ix *Index) deleted(ctx context.Context) (deleted, error) {
	d := deleted{checkpoints: map[[2]string]uint64{}, threads: map[[2]string]uint64{}}
	for e, err := range ix.journal.Replay(1) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return d, err
		}
		switch ev := e.Event.(type) {
		case journal.Delete:
			d.checkpoints[[2]string{ev.Org, ev.Checkpoint}] = e.Seq
		case journal.DeleteSome:
			d.some(e, ev.Org, ev.Checkpoints)
		case journal.Deleting:
			if d.some(e, ev.Org, ev.Checkpoints); ev.Thread != "" {
				d.threads[[2]string{ev.Org, ev.Thread}] = e.Seq
			}
		case journal.DeleteThread:
			d.threads[[2]string{ev.Org, ev.Thread}] = e.Seq
		}
	}
	return d, nil
}

func (d deleted) some(e journal.Entry, org string, ids []string) {
	for _, id := range ids {
		d.checkpoints[[2]string{org, id}] = e.Seq
	}
}

// after reports whether what an entry publishes is deleted later on.
func (d deleted) after(e journal.Entry, ev journal.Publish) bool {
	return d.checkpoints[[2]string{ev.Org, ev.Checkpoint}] > e.Seq || d.threads[[2]string{ev.Org, ev.Thread}] > e.Seq
}

var errUnread = errors.New("its record was not read")

// unread is what stands for a record that is not read.
func unread(e journal.Entry, ev journal.Publish) loaded {
	return loaded{Record: index.Record{ID: ev.Checkpoint, Thread: ev.Thread, Created: e.Time.UnixNano()}, lost: errUnread}
}

// loadPublished reads the record of a published checkpoint.
func (ix *Index) loadPublished(ctx context.Context, e journal.Entry, ev journal.Publish, rebuilding bool) (loaded, error) {
	rec, err := ix.load(ctx, ev.Record)
	if err == nil && (rec.ID != ev.Checkpoint || rec.Thread != ev.Thread) {
		err = fmt.Errorf("record %s is of checkpoint %q in thread %q: %w", ev.Record, rec.ID, rec.Thread, cas.ErrCorrupt)
	}
	switch {
	case err == nil:
		return rec, nil
	case !missing(err):
		return loaded{}, err
	case !rebuilding:
		return loaded{}, fmt.Errorf("%w: %w", errDistrust, err)
	}
	ix.opt.Logger.Error("the record of a checkpoint is lost", "org", ev.Org, "checkpoint", ev.Checkpoint, "thread", ev.Thread, "err", err)
	rec = unread(e, ev)
	rec.lost = err
	return rec, nil
}
