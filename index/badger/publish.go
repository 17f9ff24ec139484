package badger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// Publish implements [index.Index].
func (ix *Index) Publish(ctx context.Context, p index.Publish) (index.Checkpoint, error) {
	cp, err := ix.publish(ctx, p)
	if err != nil {
		return index.Checkpoint{}, fmt.Errorf("publish record %s: %w", p.Record, err)
	}
	return cp, nil
}

func (ix *Index) publish(ctx context.Context, p index.Publish) (index.Checkpoint, error) {
	var none index.Checkpoint
	if err := ix.enter(ctx); err != nil {
		return none, err
	}
	defer ix.leave()
	if err := index.ValidID("organization", p.Org); err != nil {
		return none, err
	}
	if p.Name != "" {
		if err := index.ValidName(p.Name); err != nil {
			return none, err
		}
	}
	rec, err := ix.load(ctx, p.Record)
	if err != nil {
		return none, err
	}
	if err := p.Received.Validate(); err != nil {
		return none, err
	}
	if p.Received.IsZero() && rec.Parent != p.ExpectedHead {
		return none, fmt.Errorf("%w record: its parent is %q, the expected head %q", index.ErrInvalid, rec.Parent, p.ExpectedHead)
	}
	for _, a := range p.Artifacts {
		if err := a.Validate(); err != nil {
			return none, err
		}
	}
	ix.write.Lock()
	defer ix.write.Unlock()
	if err := ix.admit(func(txn *bdb.Txn) error { return admit(txn, p, rec.Record, ix.opt.Now()) }); err != nil {
		return none, err
	}
	var c checkpoint
	err = ix.commit(journal.NewPublished(journal.Publish{
		Org: p.Org, Checkpoint: rec.ID, Thread: rec.Thread, Record: p.Record, ExpectedHead: p.ExpectedHead, Name: p.Name, Artifacts: p.Artifacts,
	}, p.Received), func(txn *bdb.Txn, e journal.Entry) (err error) {
		ev, _, _ := journal.Published(e.Event)
		c, err = applyPublish(txn, e, ev, rec)
		return err
	})
	if err != nil {
		return none, fmt.Errorf("checkpoint %q: %w", rec.ID, err)
	}
	return index.Checkpoint{
		Record: rec.Record, RecordHash: p.Record, Seq: c.seq, Name: c.name, Status: index.Ready, Received: c.received,
	}, nil
}

// admit checks a publish against what is there.
func admit(txn *bdb.Txn, p index.Publish, rec index.Record, now time.Time) error {
	held, err := getLease(txn, p.Org, rec.Thread)
	if err != nil {
		return err
	}
	if err := held.Admits(rec.Thread, p.Lease, now); err != nil {
		return err
	}
	if err := threadStays(txn, p.Org, rec.Thread); err != nil {
		return err
	}
	if cp, err := getCheckpoint(txn, p.Org, rec.ID); err == nil && cp.Status == index.Deleting {
		return fmt.Errorf("checkpoint %q: %w", rec.ID, index.ErrDeleting)
	}
	if err := absent(txn, checkpointKey(p.Org, rec.ID), index.ErrDuplicateID, "checkpoint %q", rec.ID); err != nil {
		return err
	}
	t, err := getThread(txn, p.Org, rec.Thread)
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return err
	}
	if t.head != p.ExpectedHead {
		return fmt.Errorf("thread %q: %w: it is %q, not %q", rec.Thread, index.ErrStaleHead, t.head, p.ExpectedHead)
	}
	if p.Empty && t.artifacts > 0 {
		return fmt.Errorf("thread %q has %d artifacts: %w", rec.Thread, t.artifacts, index.ErrStaleHead)
	}
	for i, a := range p.Artifacts {
		if err := absent(txn, artifactKey(p.Org, rec.Thread, a.ID), index.ErrDuplicateID, "artifact %q in thread %q", a.ID, rec.Thread); err != nil {
			return err
		}
		if slices.ContainsFunc(p.Artifacts[:i], func(b index.Artifact) bool { return a.ID == b.ID }) {
			return fmt.Errorf("artifact %q: %w", a.ID, index.ErrDuplicateID)
		}
	}
	if p.Name == "" {
		return nil
	}
	return absent(txn, nameKey(p.Org, rec.Thread, p.Name), index.ErrDuplicateName, "name %q in thread %q", p.Name, rec.Thread)
}

// loaded is a record and its encoding; or, while rebuilding, what little is
// known of a lost one.
type loaded struct {
	index.Record
	data []byte
	lost error
}

// load reads and verifies one record.
func (ix *Index) load(ctx context.Context, hash cas.Hash) (loaded, error) {
	key := cas.Key{NS: cas.Records, Hash: hash}
	locs, err := ix.locate(ctx, []cas.Key{key})
	if err != nil {
		return loaded{}, err
	}
	if locs[0].IsZero() {
		return loaded{}, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
	}
	data, err := ix.opt.Records(inside(ctx), index.Located{Key: key, Location: locs[0]})
	if err != nil {
		return loaded{}, fmt.Errorf("read %s: %w", key, err)
	}
	if cas.Data.Sum(data) != hash {
		return loaded{}, fmt.Errorf("read %s: %w", key, cas.ErrCorrupt)
	}
	rec, err := index.DecodeRecord(data)
	if err != nil {
		return loaded{}, err
	}
	return loaded{Record: rec, data: data}, nil
}

// applyPublish puts one published checkpoint into the tables, with its artifacts unless
// those are many.
func applyPublish(txn *bdb.Txn, e journal.Entry, ev journal.Publish, rec loaded) (checkpoint, error) {
	_, from, _ := journal.Published(e.Event)
	c := checkpoint{
		seq: e.Seq, hash: ev.Record, ready: rec.lost == nil, created: rec.Created, thread: ev.Thread, name: ev.Name,
		received: from, record: rec.data,
	}
	if rec.lost != nil {
		c.message = cutText(rec.lost.Error(), 1024)
	}
	id := checkpointKey(ev.Org, ev.Checkpoint)
	if err := absent(txn, id, index.ErrDuplicateID, "journal entry %d publishes checkpoint %q again", e.Seq, ev.Checkpoint); err != nil {
		return c, err
	}
	t, err := touchThread(txn, e, ev.Org, ev.Thread)
	if err != nil {
		return c, err
	}
	if len(ev.Artifacts) <= batch { // see settleArtifacts
		for _, a := range ev.Artifacts {
			if err := setArtifact(txn, ev.Org, ev.Thread, a); err != nil {
				return c, err
			}
		}
	}
	t.artifacts += uint64(len(ev.Artifacts))
	t.checkpoints++
	t.newBytes += rec.NewBytes
	if c.ready {
		t.head = ev.Checkpoint
	}
	sets := []struct{ key, value []byte }{
		{id, c.encode()},
		{threadKey(ev.Org, ev.Thread), t.encode()},
		{sequenceKey(ev.Org, ev.Thread, e.Seq), []byte(ev.Checkpoint)},
	}
	if k := tailKey(ev.Org, ev.Checkpoint); k != nil {
		sets = append(sets, struct{ key, value []byte }{k, nil})
	}
	if ev.Name != "" {
		sets = append(sets, struct{ key, value []byte }{nameKey(ev.Org, ev.Thread, ev.Name), []byte(ev.Checkpoint)})
	}
	for _, s := range sets {
		if err := txn.Set(s.key, s.value); err != nil {
			return c, err
		}
	}
	return c, nil
}

func cutText(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
