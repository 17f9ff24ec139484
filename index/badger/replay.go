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

// A transaction of a replay ends after so many entries or bytes of records, far
// below what Badger takes.
const (
	replayEntries = 256
	replayBytes   = 256 << 10
)

// replay applies the journal from entry number from on. A record that is lost
// or damaged is distrust of the database at first; in a rebuild there is nothing
// left to try, and its checkpoint gets the status Error: one lost record must
// not take the whole store away.
func (ix *Index) replay(ctx context.Context, from uint64, rebuilding bool) error {
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
		n, err := ix.apply(ctx, txn, e, rebuilding)
		if err != nil {
			return fmt.Errorf("apply journal entry %d: %w", e.Seq, err)
		}
		at = applied{seq: e.Seq, sum: e.Sum}
		if entries, bytes = entries+1, bytes+n; entries < replayEntries && bytes < replayBytes {
			continue
		}
		if err := commit(); err != nil {
			return err
		}
	}
	return commit()
}

// apply puts one entry into the tables and returns about how many bytes it took.
func (ix *Index) apply(ctx context.Context, txn *bdb.Txn, e journal.Entry, rebuilding bool) (int, error) {
	switch ev := e.Event.(type) {
	case journal.Publish:
		rec, err := ix.loadPublished(ctx, e, ev, rebuilding)
		if err != nil {
			return 0, err
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
	return 0, fmt.Errorf("event of type %d: %w", e.Event.Type(), index.ErrNewer)
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
	return loaded{
		Record: index.Record{ID: ev.Checkpoint, Thread: ev.Thread, Created: e.Time.UnixNano()},
		lost:   err,
	}, nil
}
