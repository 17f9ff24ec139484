package badger

import (
	"context"
	"errors"
	"fmt"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// The kinds of what is in the table x.
const (
	deletingThread      = 't'
	deletingCheckpoints = 'c'
)

func deletingKey(org string, kind byte, id string) []byte {
	return append(append(orgKey(tDeleting, org), kind), id...)
}

// has reports whether there is a key.
func has(txn *bdb.Txn, key []byte) (bool, error) {
	_, err := txn.Get(key)
	if errors.Is(err, bdb.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil, err
}

// isDeleting reports whether a checkpoint is being deleted, by itself or with its thread.
func isDeleting(txn *bdb.Txn, org, thread, id string) (bool, error) {
	gone, err := has(txn, deletingKey(org, deletingCheckpoints, id))
	if gone || err != nil {
		return gone, err
	}
	return has(txn, deletingKey(org, deletingThread, thread))
}

// threadStays fails with [index.ErrDeleting] when a thread is being deleted.
func threadStays(txn *bdb.Txn, org, id string) error {
	gone, err := has(txn, deletingKey(org, deletingThread, id))
	if gone {
		err = fmt.Errorf("thread %q: %w", id, index.ErrDeleting)
	}
	return err
}

// deletingCheckpoint is what a checkpoint looks like that is being deleted.
func deletingCheckpoint(cp index.Checkpoint) index.Checkpoint {
	cp.Name, cp.Status, cp.StatusMessage = "", index.Deleting, ""
	return cp
}

// deleting is what is being deleted of an organization.
type deleting struct{ threads, checkpoints map[string]bool }

// loadDeleting reads the table x.
func loadDeleting(ctx context.Context, txn *bdb.Txn, org string) (deleting, error) {
	var d deleting
	prefix := orgKey(tDeleting, org)
	err := walk(ctx, txn, prefix, nil, func(key, _ []byte) error {
		if d.threads == nil {
			d.threads, d.checkpoints = map[string]bool{}, map[string]bool{}
		}
		switch rest := key[len(prefix):]; {
		case len(rest) > 1 && rest[0] == deletingThread:
			d.threads[string(rest[1:])] = true
		case len(rest) > 1 && rest[0] == deletingCheckpoints:
			d.checkpoints[string(rest[1:])] = true
		default:
			return fmt.Errorf("deletion %q: %w", key, index.ErrCorrupt)
		}
		return nil
	})
	return d, err
}

// has reports whether a checkpoint is among it, by itself or with its thread.
func (d deleting) has(txn *bdb.Txn, org, id string) (bool, error) {
	if len(d.threads) == 0 || d.checkpoints[id] {
		return d.checkpoints[id], nil
	}
	gone := false
	err := withCheckpoint(txn, org, id, func(c checkpoint) error {
		gone = d.threads[c.thread]
		return nil
	})
	return gone, err
}

// Deletions implements [index.Index].
func (ix *Index) Deletions(ctx context.Context) ([]index.Deletion, error) {
	var threads, all []index.Deletion
	err := ix.view(ctx, func(txn *bdb.Txn) error {
		return walk(ctx, txn, []byte{tDeleting}, nil, func(key, value []byte) error {
			org, rest, ok := cutStr(key[1:])
			switch {
			case ok && len(rest) > 1 && rest[0] == deletingThread:
				threads = append(threads, index.Deletion{Org: org, Thread: string(rest[1:])})
			case ok && len(rest) > 1 && rest[0] == deletingCheckpoints:
				all = append(all, index.Deletion{Org: org, Thread: string(value), Checkpoint: string(rest[1:])})
			default:
				return fmt.Errorf("deletion %q: %w", key, index.ErrCorrupt)
			}
			return nil
		})
	})
	return append(threads, all...), err
}

// BeginDelete implements [index.Index].
func (ix *Index) BeginDelete(ctx context.Context, org, id string) (index.Checkpoint, error) {
	var cp index.Checkpoint
	err := ix.change(ctx, func(txn *bdb.Txn) (_ journal.Event, err error) {
		if cp, err = getCheckpoint(txn, org, id); err != nil || cp.Status == index.Deleting {
			return nil, err
		}
		return journal.Deleting{Org: org, Checkpoints: []string{id}}, nil
	})
	if err != nil {
		return index.Checkpoint{}, fmt.Errorf("delete checkpoint %q: %w", id, err)
	}
	return cp, nil
}

// BeginDeleteThread implements [index.Index].
func (ix *Index) BeginDeleteThread(ctx context.Context, org, id string) error {
	err := ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
		_, err := getThread(txn, org, id)
		if err == nil {
			err = threadStays(txn, org, id)
		}
		if errors.Is(err, index.ErrDeleting) {
			return nil, nil
		}
		return journal.Deleting{Org: org, Thread: id}, err
	})
	if err != nil {
		return fmt.Errorf("delete thread %q: %w", id, err)
	}
	return nil
}

// BeginForget implements [index.Index].
func (ix *Index) BeginForget(ctx context.Context, org, thread string, ids []string) (accepted []string, err error) {
	if err = index.ValidForget(ids); err == nil {
		err = ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
			t, err := liveThread(txn, org, thread)
			if err != nil {
				return nil, err
			}
			taken := map[string]bool{}
			for _, id := range ids {
				cp, err := getCheckpoint(txn, org, id)
				switch {
				case errors.Is(err, index.ErrCheckpointNotFound):
				case err != nil:
					return nil, err
				case cp.Thread == thread && cp.Status == index.Ready && cp.Name == "" && id != t.head && !taken[id]:
					taken[id] = true
					accepted = append(accepted, id)
				}
			}
			if len(accepted) == 0 {
				return nil, nil
			}
			return journal.Deleting{Org: org, Checkpoints: accepted}, nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("forget checkpoints of thread %q: %w", thread, err)
	}
	return accepted, nil
}

// EndDelete implements [index.Index].
func (ix *Index) EndDelete(ctx context.Context, org string, ids []string) error {
	err := index.ValidForget(ids)
	if err == nil {
		err = ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
			var left []string
			taken := map[string]bool{}
			for _, id := range ids {
				is, err := has(txn, deletingKey(org, deletingCheckpoints, id))
				if err != nil {
					return nil, err
				}
				if is && !taken[id] {
					taken[id] = true
					left = append(left, id)
				}
			}
			switch len(left) {
			case 0:
				return nil, nil
			case 1:
				return journal.Delete{Org: org, Checkpoint: left[0]}, nil
			}
			return journal.DeleteSome{Org: org, Checkpoints: left}, nil
		})
	}
	if err != nil {
		return fmt.Errorf("delete %d checkpoints: %w", len(ids), err)
	}
	return nil
}

// applyDeleting takes what is being deleted out of where it is found. Of what is not
// there it says so when the rest is done.
func applyDeleting(txn *bdb.Txn, ev journal.Deleting) error {
	if ev.Thread != "" {
		if _, err := getThread(txn, ev.Org, ev.Thread); err != nil {
			return err
		}
		if err := txn.Delete(leaseKey(ev.Org, ev.Thread)); err != nil {
			return err
		}
		return txn.Set(deletingKey(ev.Org, deletingThread, ev.Thread), nil)
	}
	return eachOf(ev.Checkpoints, func(id string) error { return hideCheckpoint(txn, ev.Org, id) })
}

// eachOf calls fn for each id. Those that are not there fail at the end.
func eachOf(ids []string, fn func(id string) error) (absent error) {
	for _, id := range ids {
		err := fn(id)
		if errors.Is(err, index.ErrCheckpointNotFound) {
			absent, err = err, nil
		}
		if err != nil {
			return err
		}
	}
	return absent
}

// hideCheckpoint puts one into the table x.
func hideCheckpoint(txn *bdb.Txn, org, id string) error {
	key := deletingKey(org, deletingCheckpoints, id)
	if already, err := has(txn, key); already || err != nil {
		return err
	}
	c, err := ownCheckpoint(txn, org, id)
	if err != nil {
		return err
	}
	for _, k := range findingKeys(org, id, c) {
		if err := txn.Delete(k); err != nil {
			return err
		}
	}
	if err := txn.Set(key, []byte(c.thread)); err != nil {
		return err
	}
	return leaveThread(txn, org, id, c)
}

// findingKeys are those by which a checkpoint is found without its whole id.
func findingKeys(org, id string, c checkpoint) (keys [][]byte) {
	if k := tailKey(org, id); k != nil {
		keys = append(keys, k)
	}
	if c.name != "" {
		keys = append(keys, nameKey(org, c.thread, c.name))
	}
	return keys
}

// leaveThread takes a checkpoint out of what its thread says of itself.
func leaveThread(txn *bdb.Txn, org, id string, c checkpoint) error {
	t, err := getThread(txn, org, c.thread)
	if err != nil {
		return err
	}
	pub, err := c.public(id)
	if err != nil {
		return err
	}
	t.checkpoints--
	t.newBytes -= pub.NewBytes
	if t.head == id {
		if t.head, err = newestReady(txn, org, c.thread, id); err != nil {
			return err
		}
	}
	return txn.Set(threadKey(org, c.thread), t.encode())
}
