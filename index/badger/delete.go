package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// Delete implements [index.Index].
func (ix *Index) Delete(ctx context.Context, org, id string) (index.Checkpoint, index.Thread, error) {
	var cp index.Checkpoint
	err := ix.change(ctx, func(txn *bdb.Txn) (_ journal.Event, err error) {
		cp, err = getCheckpoint(txn, org, id)
		return journal.Delete{Org: org, Checkpoint: id}, err
	})
	if err != nil {
		return index.Checkpoint{}, index.Thread{}, fmt.Errorf("delete checkpoint %q: %w", id, err)
	}
	t, err := ix.Thread(ctx, org, cp.Thread)
	if errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
		return cp, index.Thread{ID: cp.Thread}, nil
	}
	return cp, t, err
}

func applyDelete(txn *bdb.Txn, ev journal.Delete) error {
	c, err := ownCheckpoint(txn, ev.Org, ev.Checkpoint)
	if err != nil {
		return err
	}
	hidden, err := removeCheckpoint(txn, ev.Org, ev.Checkpoint, c)
	if err != nil || hidden {
		return err
	}
	return leaveThread(txn, ev.Org, ev.Checkpoint, c)
}

// removeCheckpoint takes a checkpoint out of all tables but its thread's value. It
// reports whether that does not count it any more: its deletion was decided before.
func removeCheckpoint(txn *bdb.Txn, org, id string, c checkpoint) (hidden bool, err error) {
	keys := [][]byte{checkpointKey(org, id), sequenceKey(org, c.thread, c.seq)}
	mark := deletingKey(org, deletingCheckpoints, id)
	if hidden, err = has(txn, mark); err != nil {
		return false, err
	}
	if hidden {
		keys = append(keys, mark) // its name may be another's now
	} else {
		keys = append(keys, findingKeys(org, id, c)...)
	}
	for _, k := range keys {
		if err := txn.Delete(k); err != nil {
			return false, err
		}
	}
	return hidden, nil
}

// newestReady finds the head that a thread has without one checkpoint; "": none.
func newestReady(txn *bdb.Txn, org, thread, without string) (head string, err error) {
	err = walk(context.Background(), txn, threadPrefix(tSequence, org, thread), nil, func(_, value []byte) error {
		id := string(value)
		if id == without {
			return nil
		}
		if gone, err := has(txn, deletingKey(org, deletingCheckpoints, id)); gone || err != nil {
			return err
		}
		return withCheckpoint(txn, org, id, func(c checkpoint) error {
			if !c.ready {
				return nil
			}
			head = id
			return errStop
		})
	})
	return head, err
}

// DeleteThread implements [index.Index].
func (ix *Index) DeleteThread(ctx context.Context, org, id string) error {
	err := ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
		_, err := getThread(txn, org, id)
		return journal.DeleteThread{Org: org, Thread: id}, err
	})
	if err != nil {
		return fmt.Errorf("delete thread %q: %w", id, err)
	}
	return nil
}

// batch is how many things one transaction adds or removes. Each has keys and values
// of up to 4 KiB, and Badger takes 600 KiB.
const batch = 64

// settleDeleteThread applies the deletion of a thread, which may be more than
// one transaction can hold: first the thread itself with its lease, so that nobody finds
// it any more, then what belonged to it, piece by piece; the last piece notes the entry
// as applied. Whatever is left by a crash is removed when the entry is applied
// again.
func (ix *Index) settleDeleteThread(e journal.Entry, ev journal.DeleteThread) error {
	err := ix.update(func(txn *bdb.Txn) error {
		t, err := getThread(txn, ev.Org, ev.Thread)
		if errors.Is(err, index.ErrThreadNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(txn.Delete(threadKey(ev.Org, ev.Thread)), txn.Delete(activityKey(ev.Org, t.last)), txn.Delete(leaseKey(ev.Org, ev.Thread)))
	})
	for err == nil {
		more := false
		err = ix.update(func(txn *bdb.Txn) (err error) {
			more, err = clearThread(txn, ev.Org, ev.Thread)
			if err != nil || more {
				return err
			}
			if err := txn.Delete(deletingKey(ev.Org, deletingThread, ev.Thread)); err != nil {
				return err
			}
			return txn.Set(appliedKey, applied{seq: e.Seq, sum: e.Sum}.encode())
		})
		if !more {
			break
		}
	}
	return err
}

// clearThread removes some of what belongs to a thread and reports whether there
// may be more.
func clearThread(txn *bdb.Txn, org, thread string) (more bool, err error) {
	var ids []string
	var artifacts [][]byte
	collect := func(table byte, fn func(key, value []byte)) error {
		n := 0
		return walk(context.Background(), txn, threadPrefix(table, org, thread), nil, func(key, value []byte) error {
			fn(key, value)
			if n++; n == batch {
				more = true
				return errStop
			}
			return nil
		})
	}
	err = errors.Join(
		collect(tSequence, func(_, value []byte) { ids = append(ids, string(value)) }),
		collect(tArtifact, func(key, _ []byte) { artifacts = append(artifacts, bytes.Clone(key)) }),
	)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		c, err := ownCheckpoint(txn, org, id)
		if err == nil {
			_, err = removeCheckpoint(txn, org, id, c)
		}
		if err != nil {
			return false, err
		}
	}
	for _, key := range artifacts {
		if err := txn.Delete(key); err != nil {
			return false, err
		}
	}
	return more, nil
}
