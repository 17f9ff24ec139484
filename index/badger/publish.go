package badger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// AddLocations implements [index.Index].
func (ix *Index) AddLocations(ctx context.Context, objects []index.Located) error {
	if err := ix.addLocations(ctx, objects); err != nil {
		return fmt.Errorf("add %d locations: %w", len(objects), err)
	}
	return nil
}

func (ix *Index) addLocations(ctx context.Context, objects []index.Located) error {
	if err := ix.enter(ctx); err != nil {
		return err
	}
	defer ix.leave()
	for _, o := range objects {
		if !o.Key.NS.Valid() || o.Location.IsZero() {
			return fmt.Errorf("%w location of %s", index.ErrInvalid, o.Key)
		}
	}
	ix.write.Lock()
	defer ix.write.Unlock()
	fresh := make([]index.Located, 0, len(objects))
	err := ix.db.View(func(txn *bdb.Txn) error {
		var key []byte
		for _, o := range objects {
			key = appendLocationKey(key[:0], o.Key)
			_, err := txn.Get(key)
			if errors.Is(err, bdb.ErrKeyNotFound) {
				fresh = append(fresh, o)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(fresh) == 0 {
		return err
	}
	if err := ix.touch(); err != nil {
		return err
	}
	batch := ix.db.NewWriteBatch()
	defer batch.Cancel()
	if err := setLocations(batch, fresh); err != nil {
		return err
	}
	return batch.Flush()
}

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
	if rec.Parent != p.ExpectedHead {
		return none, fmt.Errorf("%w record: its parent is %q, the expected head %q", index.ErrInvalid, rec.Parent, p.ExpectedHead)
	}
	ix.write.Lock()
	defer ix.write.Unlock()
	if ix.isBroken() { // while this call waited
		return none, errors.New("the index must be opened again")
	}
	if err := ix.db.View(func(txn *bdb.Txn) error { return admit(txn, p, rec.Record) }); err != nil {
		ix.suspect(err)
		return none, err
	}
	if err := ix.touch(); err != nil {
		return none, err
	}
	e, err := ix.journal.Append(journal.Publish{
		Org: p.Org, Checkpoint: rec.ID, Thread: rec.Thread, Record: p.Record, ExpectedHead: p.ExpectedHead, Name: p.Name,
	})
	if err != nil {
		return none, err
	}
	// From here on it is committed, whatever happens.
	var c checkpoint
	err = ix.update(func(txn *bdb.Txn) (err error) {
		c, err = applyPublish(txn, e, e.Event.(journal.Publish), rec)
		if err != nil {
			return err
		}
		return txn.Set(appliedKey, applied{seq: e.Seq, sum: e.Sum}.encode())
	})
	if err != nil {
		ix.poison(err)
		return none, fmt.Errorf("checkpoint %q, journal entry %d: %w: %w", rec.ID, e.Seq, index.ErrCommitted, err)
	}
	return index.Checkpoint{
		Record: rec.Record, RecordHash: p.Record, Seq: c.seq, Name: c.name, Status: index.Ready,
	}, nil
}

// admit checks a publish against what is there.
func admit(txn *bdb.Txn, p index.Publish, rec index.Record) error {
	_, err := txn.Get(checkpointKey(p.Org, rec.ID))
	if err == nil {
		return fmt.Errorf("checkpoint %q: %w", rec.ID, index.ErrDuplicateID)
	}
	if !errors.Is(err, bdb.ErrKeyNotFound) {
		return err
	}
	t, err := getThread(txn, p.Org, rec.Thread)
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return err
	}
	if t.head != p.ExpectedHead {
		return fmt.Errorf("thread %q: %w: it is %q, not %q", rec.Thread, index.ErrStaleHead, t.head, p.ExpectedHead)
	}
	if p.Name == "" {
		return nil
	}
	_, err = txn.Get(nameKey(p.Org, rec.Thread, p.Name))
	if err == nil {
		return fmt.Errorf("name %q in thread %q: %w", p.Name, rec.Thread, index.ErrDuplicateName)
	}
	if !errors.Is(err, bdb.ErrKeyNotFound) {
		return err
	}
	return nil
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
	data, err := ix.opt.Records(ctx, index.Located{Key: key, Location: locs[0]})
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

// applyPublish puts one published checkpoint into the tables.
func applyPublish(txn *bdb.Txn, e journal.Entry, ev journal.Publish, rec loaded) (checkpoint, error) {
	c := checkpoint{
		seq: e.Seq, hash: ev.Record, ready: rec.lost == nil, created: rec.Created, thread: ev.Thread, name: ev.Name,
		record: rec.data,
	}
	if rec.lost != nil {
		c.message = cutText(rec.lost.Error(), 1024)
	}
	id := checkpointKey(ev.Org, ev.Checkpoint)
	if _, err := txn.Get(id); !errors.Is(err, bdb.ErrKeyNotFound) {
		if err == nil {
			err = fmt.Errorf("journal entry %d publishes checkpoint %q again: %w", e.Seq, ev.Checkpoint, index.ErrDuplicateID)
		}
		return c, err
	}
	t, err := getThread(txn, ev.Org, ev.Thread)
	switch {
	case errors.Is(err, index.ErrThreadNotFound):
		t.created = rec.Created
	case err != nil:
		return c, err
	default:
		if err := txn.Delete(activityKey(ev.Org, t.last)); err != nil {
			return c, err
		}
	}
	t.last, t.updated = e.Seq, rec.Created
	t.checkpoints++
	t.newBytes += rec.NewBytes
	if c.ready {
		t.head = ev.Checkpoint
	}
	sets := []struct{ key, value []byte }{
		{id, c.encode()},
		{threadKey(ev.Org, ev.Thread), t.encode()},
		{activityKey(ev.Org, e.Seq), []byte(ev.Thread)},
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
