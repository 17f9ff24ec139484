package badger

import (
	"context"
	"errors"
	"fmt"
	"iter"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// AddLocations implements [index.Index].
func (ix *Index) AddLocations(ctx context.Context, objects []index.Located) error {
	return ix.places(ctx, "add", objects, func(batch *bdb.WriteBatch) error {
		fresh, err := ix.unknown(objects)
		if err != nil {
			return err
		}
		return setLocations(batch, fresh)
	})
}

// MoveLocations implements [index.Index].
func (ix *Index) MoveLocations(ctx context.Context, objects []index.Located) error {
	return ix.places(ctx, "move", objects, func(batch *bdb.WriteBatch) error { return setLocations(batch, objects) })
}

// DropLocations implements [index.Index].
func (ix *Index) DropLocations(ctx context.Context, keys []cas.Key) error {
	return ix.places(ctx, "drop", nil, func(batch *bdb.WriteBatch) error {
		for _, k := range keys {
			if err := batch.Delete(appendLocationKey(nil, k)); err != nil {
				return err
			}
		}
		return nil
	})
}

// places runs one change of locations. They need no journal: the packs tell them
// again.
func (ix *Index) places(ctx context.Context, what string, objects []index.Located, fn func(batch *bdb.WriteBatch) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s locations: %w", what, err)
		}
	}()
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
	if err := ix.touch(); err != nil {
		return err
	}
	batch := ix.db.NewWriteBatch()
	defer batch.Cancel()
	if err := fn(batch); err != nil {
		return err
	}
	return batch.Flush()
}

// unknown returns those of the objects that are nowhere yet.
func (ix *Index) unknown(objects []index.Located) (fresh []index.Located, err error) {
	err = ix.db.View(func(txn *bdb.Txn) error {
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
	return fresh, err
}

// Locations implements [index.Index].
func (ix *Index) Locations(ctx context.Context) iter.Seq2[index.Located, error] {
	return list(ctx, ix, 0, func(txn *bdb.Txn, emit func(index.Located) error) error {
		return walk(ctx, txn, []byte{tLocation}, nil, func(key, value []byte) error {
			l, err := decodeLocation(value)
			if err != nil || len(key) != locationKeySize {
				return fmt.Errorf("location %x: %w", key, index.ErrCorrupt)
			}
			return emit(index.Located{Key: cas.Key{NS: cas.Namespace(key[1]), Hash: cas.Hash(key[2:])}, Location: l})
		})
	})
}
