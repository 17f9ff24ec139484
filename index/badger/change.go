package badger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// admit runs the checks of a change, with the write lock held.
func (ix *Index) admit(check func(txn *bdb.Txn) error) error {
	if ix.isBroken() { // while this call waited
		return errors.New("the index must be opened again")
	}
	err := ix.db.View(check)
	if err != nil {
		ix.suspect(err)
	}
	return err
}

// commit appends an event to the journal and applies it, with the write lock
// held. After the append it is committed, whatever happens: a failure is
// [index.ErrCommitted] then, and the next Open applies it.
func (ix *Index) commit(ev journal.Event, apply func(txn *bdb.Txn, e journal.Entry) error) error {
	if err := ix.touch(); err != nil {
		return err
	}
	e, err := ix.journal.Append(ev)
	if err != nil {
		return err
	}
	if err := ix.settleEntry(e, apply); err != nil {
		ix.poison(err)
		return fmt.Errorf("journal entry %d: %w: %w", e.Seq, index.ErrCommitted, err)
	}
	return nil
}

// settleEntry applies one entry and notes that, in one transaction; the deletion of a
// thread and many artifacts take several.
func (ix *Index) settleEntry(e journal.Entry, apply func(txn *bdb.Txn, e journal.Entry) error) error {
	if ev, ok := e.Event.(journal.DeleteThread); ok {
		return ix.settleDeleteThread(e, ev)
	}
	if ev, _, ok := journal.Published(e.Event); ok {
		if err := ix.settleArtifacts(ev); err != nil {
			return err
		}
	}
	return ix.update(func(txn *bdb.Txn) error {
		if err := apply(txn, e); err != nil {
			return err
		}
		return txn.Set(appliedKey, applied{seq: e.Seq, sum: e.Sum}.encode())
	})
}

// change runs one change of the tables: check looks whether it is allowed and
// returns the event that commits it; nil: there is nothing to do.
func (ix *Index) change(ctx context.Context, check func(txn *bdb.Txn) (journal.Event, error)) error {
	if err := ix.enter(ctx); err != nil {
		return err
	}
	defer ix.leave()
	ix.write.Lock()
	defer ix.write.Unlock()
	var ev journal.Event
	err := ix.admit(func(txn *bdb.Txn) (err error) {
		ev, err = check(txn)
		return err
	})
	if err != nil || ev == nil {
		return err
	}
	return ix.commit(ev, applyChange)
}

// applyChange applies every event but a publish and the deletion of a thread.
func applyChange(txn *bdb.Txn, e journal.Entry) error {
	switch ev := e.Event.(type) {
	case journal.Rename:
		return applyRename(txn, ev)
	case journal.Delete:
		return applyDelete(txn, ev)
	case journal.Deleting:
		return applyDeleting(txn, ev)
	case journal.DeleteSome:
		return eachOf(ev.Checkpoints, func(id string) error { return applyDelete(txn, journal.Delete{Org: ev.Org, Checkpoint: id}) })
	case journal.AddArtifact:
		return applyAddArtifact(txn, e, ev)
	case journal.RemoveArtifact:
		return applyRemoveArtifact(txn, ev)
	case journal.Lost:
		return nil
	case journal.AcquireLease:
		return applyAcquireLease(txn, e, ev)
	case journal.ReleaseLease:
		return applyReleaseLease(txn, ev)
	}
	return fmt.Errorf("event of type %d: %w", e.Event.Type(), index.ErrNewer)
}

// absent fails with taken when the key is there.
func absent(txn *bdb.Txn, key []byte, taken error, format string, args ...any) error {
	_, err := txn.Get(key)
	switch {
	case errors.Is(err, bdb.ErrKeyNotFound):
		return nil
	case err == nil:
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), taken)
	}
	return err
}

// touchThread returns a thread's value for an entry that writes to it, made new
// if it is not there, and lists it as the one written to last. The caller stores
// the value.
func touchThread(txn *bdb.Txn, e journal.Entry, org, id string) (thread, error) {
	t, err := getThread(txn, org, id)
	switch {
	case errors.Is(err, index.ErrThreadNotFound):
		t = thread{created: e.Time.UnixNano()}
	case err != nil:
		return t, err
	default:
		if err := txn.Delete(activityKey(org, t.last)); err != nil {
			return t, err
		}
	}
	t.last, t.updated = e.Seq, e.Time.UnixNano()
	return t, txn.Set(activityKey(org, e.Seq), []byte(id))
}

// Rename implements [index.Index].
func (ix *Index) Rename(ctx context.Context, org, id, name string) (index.Checkpoint, error) {
	if name != "" {
		if err := index.ValidName(name); err != nil {
			return index.Checkpoint{}, fmt.Errorf("rename: %w", err)
		}
	}
	var cp index.Checkpoint
	err := ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
		var err error
		if cp, err = getCheckpoint(txn, org, id); err != nil {
			return nil, err
		}
		if cp.Status == index.Deleting {
			return nil, index.ErrDeleting
		}
		if cp.Name == name {
			return nil, nil
		}
		if name != "" {
			if err := absent(txn, nameKey(org, cp.Thread, name), index.ErrDuplicateName, "name %q in thread %q", name, cp.Thread); err != nil {
				return nil, err
			}
		}
		return journal.Rename{Org: org, Checkpoint: id, Name: name}, nil
	})
	if err != nil {
		return index.Checkpoint{}, fmt.Errorf("rename checkpoint %q: %w", id, err)
	}
	cp.Name = name
	return cp, nil
}

func applyRename(txn *bdb.Txn, ev journal.Rename) error {
	c, err := ownCheckpoint(txn, ev.Org, ev.Checkpoint)
	if err != nil {
		return err
	}
	if c.name != "" {
		if err := txn.Delete(nameKey(ev.Org, c.thread, c.name)); err != nil {
			return err
		}
	}
	if c.name = ev.Name; c.name != "" {
		if err := txn.Set(nameKey(ev.Org, c.thread, c.name), []byte(ev.Checkpoint)); err != nil {
			return err
		}
	}
	return txn.Set(checkpointKey(ev.Org, ev.Checkpoint), c.encode())
}

// ownCheckpoint reads a checkpoint's value to change it.
func ownCheckpoint(txn *bdb.Txn, org, id string) (c checkpoint, err error) {
	err = withCheckpoint(txn, org, id, func(lent checkpoint) error {
		c = lent
		c.record = append([]byte(nil), lent.record...)
		return nil
	})
	return c, err
}

// AddArtifact implements [index.Index].
func (ix *Index) AddArtifact(ctx context.Context, org, thread string, a index.Artifact) error {
	err := errors.Join(index.ValidID("organization", org), index.ValidID("thread id", thread), a.Validate())
	if err == nil {
		err = ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
			if err := threadStays(txn, org, thread); err != nil {
				return nil, err
			}
			err := absent(txn, artifactKey(org, thread, a.ID), index.ErrDuplicateID, "it is in thread %q already", thread)
			return journal.AddArtifact{Org: org, Thread: thread, Artifact: a}, err
		})
	}
	if err != nil {
		return fmt.Errorf("add artifact %q: %w", a.ID, err)
	}
	return nil
}

func setArtifact(txn *bdb.Txn, org, thread string, a index.Artifact) error {
	value, err := cbor.Marshal(a)
	if err != nil {
		return err
	}
	return txn.Set(artifactKey(org, thread, a.ID), value)
}

// settleArtifacts adds the artifacts of a publish that are too many for its
// transaction, before it: a crash in between leaves what is added again.
func (ix *Index) settleArtifacts(ev journal.Publish) error {
	if len(ev.Artifacts) <= batch {
		return nil
	}
	for some := range slices.Chunk(ev.Artifacts, batch) {
		err := ix.update(func(txn *bdb.Txn) error {
			for _, a := range some {
				if err := setArtifact(txn, ev.Org, ev.Thread, a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func applyAddArtifact(txn *bdb.Txn, e journal.Entry, ev journal.AddArtifact) error {
	t, err := touchThread(txn, e, ev.Org, ev.Thread)
	if err != nil {
		return err
	}
	t.artifacts++
	if err := setArtifact(txn, ev.Org, ev.Thread, ev.Artifact); err != nil {
		return err
	}
	return txn.Set(threadKey(ev.Org, ev.Thread), t.encode())
}

// RemoveArtifact implements [index.Index].
func (ix *Index) RemoveArtifact(ctx context.Context, org, thread, id string) error {
	err := ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
		if _, err := liveThread(txn, org, thread); err != nil {
			return nil, err
		}
		_, err := txn.Get(artifactKey(org, thread, id))
		if errors.Is(err, bdb.ErrKeyNotFound) {
			err = fmt.Errorf("thread %q: %w", thread, index.ErrArtifactNotFound)
		}
		return journal.RemoveArtifact{Org: org, Thread: thread, Artifact: id}, err
	})
	if err != nil {
		return fmt.Errorf("remove artifact %q: %w", id, err)
	}
	return nil
}

func applyRemoveArtifact(txn *bdb.Txn, ev journal.RemoveArtifact) error {
	t, err := getThread(txn, ev.Org, ev.Thread)
	if err != nil {
		return err
	}
	t.artifacts--
	if err := txn.Delete(artifactKey(ev.Org, ev.Thread, ev.Artifact)); err != nil {
		return err
	}
	return txn.Set(threadKey(ev.Org, ev.Thread), t.encode())
}

// Artifacts implements [index.Index].
func (ix *Index) Artifacts(ctx context.Context, org, thread string) ([]index.Artifact, error) {
	var all []index.Artifact
	err := ix.view(ctx, func(txn *bdb.Txn) error {
		if _, err := liveThread(txn, org, thread); err != nil {
			return err
		}
		return walk(ctx, txn, threadPrefix(tArtifact, org, thread), nil, func(key, value []byte) error {
			var a index.Artifact
			if err := cbor.Unmarshal(value, &a); err != nil {
				return fmt.Errorf("artifact %q: %w: %w", key, index.ErrCorrupt, err)
			}
			all = append(all, a)
			return nil
		})
	})
	return all, err
}
