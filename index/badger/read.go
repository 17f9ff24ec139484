package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strings"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Locate implements [index.Index].
func (ix *Index) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	if err := ix.enter(ctx); err != nil {
		return nil, fmt.Errorf("locate %d objects: %w", len(keys), err)
	}
	defer ix.leave()
	locs, err := ix.locate(ctx, keys)
	if err != nil {
		ix.suspect(err)
		return nil, fmt.Errorf("locate %d objects: %w", len(keys), err)
	}
	return locs, nil
}

// locate is Locate for a call that has entered.
func (ix *Index) locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	locs := make([]cas.Location, len(keys))
	err := ix.db.View(func(txn *bdb.Txn) error {
		key := make([]byte, 0, locationKeySize)
		for i, k := range keys {
			if i%4096 == 4095 && ctx.Err() != nil {
				return ctx.Err()
			}
			key = appendLocationKey(key[:0], k)
			err := get(txn, key, func(b []byte) (err error) {
				locs[i], err = decodeLocation(b)
				return err
			})
			if err != nil && !errors.Is(err, bdb.ErrKeyNotFound) {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		return nil
	})
	return locs, err
}

func getThread(txn *bdb.Txn, org, id string) (t thread, err error) {
	err = get(txn, threadKey(org, id), func(b []byte) (err error) {
		t, err = decodeThread(b)
		return err
	})
	if errors.Is(err, bdb.ErrKeyNotFound) {
		err = fmt.Errorf("thread %q: %w", id, index.ErrThreadNotFound)
	}
	return t, err
}

// withCheckpoint lends a checkpoint's value to fn.
func withCheckpoint(txn *bdb.Txn, org, id string, fn func(checkpoint) error) error {
	err := get(txn, checkpointKey(org, id), func(b []byte) error {
		c, err := decodeCheckpoint(b)
		if err != nil {
			return fmt.Errorf("checkpoint %q: %w", id, err)
		}
		return fn(c)
	})
	if errors.Is(err, bdb.ErrKeyNotFound) {
		err = fmt.Errorf("checkpoint %q: %w", id, index.ErrCheckpointNotFound)
	}
	return err
}

func getCheckpoint(txn *bdb.Txn, org, id string) (cp index.Checkpoint, err error) {
	err = withCheckpoint(txn, org, id, func(c checkpoint) (err error) {
		if cp, err = c.public(id); err != nil {
			return err
		}
		gone, err := isDeleting(txn, org, c.thread, id)
		if gone {
			cp = deletingCheckpoint(cp)
		}
		return err
	})
	return cp, err
}

// liveThread is getThread for everything but a deletion.
func liveThread(txn *bdb.Txn, org, id string) (thread, error) {
	t, err := getThread(txn, org, id)
	if err == nil {
		err = threadStays(txn, org, id)
		if err != nil {
			err = fmt.Errorf("%w: %w", index.ErrThreadNotFound, err)
		}
	}
	return t, err
}

// getID reads a value that is an id.
func getID(txn *bdb.Txn, key []byte) (id string, err error) {
	err = get(txn, key, func(b []byte) error {
		id = string(b)
		return nil
	})
	return id, err
}

// Checkpoint implements [index.Index].
func (ix *Index) Checkpoint(ctx context.Context, org, id string) (cp index.Checkpoint, err error) {
	err = ix.view(ctx, func(txn *bdb.Txn) (err error) {
		cp, err = getCheckpoint(txn, org, id)
		return err
	})
	return cp, err
}

// Named implements [index.Index].
func (ix *Index) Named(ctx context.Context, org, thread, name string) (cp index.Checkpoint, err error) {
	err = ix.view(ctx, func(txn *bdb.Txn) error {
		if _, err := liveThread(txn, org, thread); err != nil {
			return err
		}
		id, err := getID(txn, nameKey(org, thread, name))
		if errors.Is(err, bdb.ErrKeyNotFound) {
			return fmt.Errorf("name %q in thread %q: %w", name, thread, index.ErrCheckpointNotFound)
		}
		if err != nil {
			return err
		}
		cp, err = getCheckpoint(txn, org, id)
		return err
	})
	return cp, err
}

// Thread implements [index.Index].
func (ix *Index) Thread(ctx context.Context, org, id string) (out index.Thread, err error) {
	err = ix.view(ctx, func(txn *bdb.Txn) error {
		t, err := liveThread(txn, org, id)
		out = t.public(id)
		return err
	})
	if err != nil {
		return index.Thread{}, err
	}
	return out, nil
}

// errStop ends a walk early.
var errStop = errors.New("stop")

// walk calls fn with each key under prefix, in order, and its value, if it is
// behind after (nil: all).
func walk(ctx context.Context, txn *bdb.Txn, prefix, after []byte, fn func(key, value []byte) error) error {
	opt := bdb.DefaultIteratorOptions
	opt.Prefix = prefix
	opt.PrefetchValues = false // they lie beside the keys
	it := txn.NewIterator(opt)
	defer it.Close()
	step := func(move func()) (err error) {
		defer guard(&err)
		move()
		return ctx.Err()
	}
	start := append(bytes.Clone(prefix), after...)
	for err := step(func() { it.Seek(start) }); err != nil || it.Valid(); err = step(it.Next) {
		if err != nil {
			return err
		}
		item := it.Item()
		key := item.Key()
		if after != nil && bytes.Equal(key[len(prefix):], after) {
			continue
		}
		if err := item.Value(func(b []byte) error { return fn(key, b) }); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// list runs a listing in one read transaction: fn gets an emit that returns
// errStop when the consumer or the page has had enough.
func list[T any](ctx context.Context, ix *Index, limit int, fn func(txn *bdb.Txn, emit func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped, n := false, 0
		err := ix.view(ctx, func(txn *bdb.Txn) error {
			defer ix.listing()()
			return fn(txn, func(v T) error {
				n++
				if stopped = !yield(v, nil); stopped || n == limit {
					return errStop
				}
				return nil
			})
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

// Threads implements [index.Index].
func (ix *Index) Threads(ctx context.Context, org string, p index.Page) iter.Seq2[index.Thread, error] {
	return list(ctx, ix, p.Limit, func(txn *bdb.Txn, emit func(index.Thread) error) error {
		gone, err := loadDeleting(ctx, txn, org)
		if err != nil {
			return err
		}
		prefix := orgKey(tActivity, org)
		var after []byte
		if p.Before != "" {
			t, err := liveThread(txn, org, p.Before)
			if err != nil {
				return err
			}
			after = activityKey(org, t.last)[len(prefix):]
		}
		return walk(ctx, txn, prefix, after, func(_, value []byte) error {
			id := string(value)
			if gone.threads[id] {
				return nil
			}
			t, err := getThread(txn, org, id)
			if err != nil {
				return err
			}
			return emit(t.public(id))
		})
	})
}

// Checkpoints implements [index.Index].
func (ix *Index) Checkpoints(ctx context.Context, org, thread string, p index.Page) iter.Seq2[index.Checkpoint, error] {
	return list(ctx, ix, p.Limit, func(txn *bdb.Txn, emit func(index.Checkpoint) error) error {
		t, err := getThread(txn, org, thread)
		if err == nil && !p.Deleting {
			_, err = liveThread(txn, org, thread)
		}
		if err != nil {
			return err
		}
		gone, err := loadDeleting(ctx, txn, org)
		if err != nil {
			return err
		}
		prefix := threadPrefix(tSequence, org, thread)
		var after []byte
		if p.Before != "" {
			err := withCheckpoint(txn, org, p.Before, func(c checkpoint) error {
				if c.thread != thread {
					return fmt.Errorf("checkpoint %q in thread %q: %w", p.Before, thread, index.ErrCheckpointNotFound)
				}
				after = sequenceKey(org, thread, c.seq)[len(prefix):]
				return nil
			})
			if err != nil {
				return err
			}
		}
		n, stopped := uint64(0), false
		err = walk(ctx, txn, prefix, after, func(_, value []byte) error {
			id := string(value)
			alone := gone.checkpoints[id]
			if alone && !p.Deleting {
				return nil
			}
			var cp index.Checkpoint
			err := withCheckpoint(txn, org, id, func(c checkpoint) (err error) {
				cp, err = c.public(id)
				return err
			})
			if err != nil {
				return err
			}
			if alone || gone.threads[thread] {
				cp = deletingCheckpoint(cp)
			}
			if !alone {
				n++
			}
			err = emit(cp)
			stopped = err != nil
			return err
		})
		if err == nil && !stopped && after == nil && n != t.checkpoints {
			// Badger's iterators end at a damaged block without saying so.
			err = fmt.Errorf("thread %q: %d of %d checkpoints are listed: %w", thread, n, t.checkpoints, index.ErrCorrupt)
		}
		return err
	})
}

// ByPrefix implements [index.Index].
func (ix *Index) ByPrefix(ctx context.Context, org, prefix string, limit int) (found []index.Checkpoint, err error) {
	if strings.IndexByte(prefix, 0) >= 0 {
		return nil, nil // no id has one, and it would be taken for the end of a tail
	}
	err = ix.view(ctx, func(txn *bdb.Txn) error {
		gone, err := loadDeleting(ctx, txn, org)
		if err != nil {
			return err
		}
		ids := make(map[string]bool)
		collect := func(table byte, idOf func(rest []byte) string) error {
			base := orgKey(table, org)
			n := 0
			return walk(ctx, txn, append(bytes.Clone(base), prefix...), nil, func(key, _ []byte) error {
				id := idOf(key[len(base):])
				if hidden, err := gone.has(txn, org, id); hidden || err != nil {
					return err
				}
				ids[id] = true
				if n++; n == limit {
					return errStop
				}
				return nil
			})
		}
		if err := collect(tCheckpoint, func(rest []byte) string { return string(rest) }); err != nil {
			return err
		}
		if err := collect(tTail, func(rest []byte) string { return string(rest[bytes.IndexByte(rest, 0)+1:]) }); err != nil {
			return err
		}
		sorted := make([]string, 0, len(ids))
		for id := range ids {
			sorted = append(sorted, id)
		}
		sort.Strings(sorted)
		if limit > 0 && len(sorted) > limit {
			sorted = sorted[:limit]
		}
		for _, id := range sorted {
			cp, err := getCheckpoint(txn, org, id)
			if err != nil {
				return err
			}
			found = append(found, cp)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Organizations implements [index.Index].
func (ix *Index) Organizations(ctx context.Context) ([]string, error) {
	var orgs []string
	err := ix.view(ctx, func(txn *bdb.Txn) error {
		for after := []byte(nil); ; {
			var org string
			err := walk(ctx, txn, []byte{tThread}, after, func(key, _ []byte) error {
				var ok bool
				if org, _, ok = cutStr(key[1:]); !ok {
					return fmt.Errorf("thread %q: %w", key, index.ErrCorrupt)
				}
				return errStop
			})
			if err != nil || org == "" {
				return err
			}
			orgs = append(orgs, org)
			// Behind every thread of it: ids are UTF-8, which has no 0xff.
			after = append(appendStr(nil, org), 0xff)
		}
	})
	return orgs, err
}
