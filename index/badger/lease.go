package badger

import (
	"context"
	"errors"
	"fmt"
	"time"

	bdb "github.com/dgraph-io/badger/v4"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// AcquireLease implements [index.Index].
func (ix *Index) AcquireLease(ctx context.Context, a index.AcquireLease) (index.Lease, error) {
	l, err := ix.acquireLease(ctx, a)
	if err != nil {
		return index.Lease{}, fmt.Errorf("acquire lease: %w", err)
	}
	return l, nil
}

func (ix *Index) acquireLease(ctx context.Context, a index.AcquireLease) (index.Lease, error) {
	if err := a.Validate(); err != nil {
		return index.Lease{}, err
	}
	if err := ix.enter(ctx); err != nil {
		return index.Lease{}, err
	}
	defer ix.leave()
	ix.write.Lock()
	defer ix.write.Unlock()
	var held index.HeldLease
	owned, now := false, ix.opt.Now()
	err := ix.admit(func(txn *bdb.Txn) (err error) {
		if err := threadStays(txn, a.Org, a.Thread); err != nil {
			return err
		}
		if held, err = getLease(txn, a.Org, a.Thread); err != nil {
			return err
		}
		owned, err = held.Free(a, now)
		return err
	})
	if err != nil || owned {
		return held.Lease, err
	}
	held = index.NewHeldLease(a, now)
	err = ix.commit(journal.AcquireLease{
		Org: a.Org, Thread: a.Thread, Token: held.Token, Owner: a.Owner, Expires: held.Expires.UnixNano(), TTL: int64(a.TTL),
	}, func(txn *bdb.Txn, e journal.Entry) error {
		held.Fence = e.Seq
		return applyChange(txn, e)
	})
	return held.Lease, err
}

func applyAcquireLease(txn *bdb.Txn, e journal.Entry, ev journal.AcquireLease) error {
	return txn.Set(leaseKey(ev.Org, ev.Thread), encodeLease(index.HeldLease{
		Lease: index.Lease{Thread: ev.Thread, Fence: e.Seq, Owner: ev.Owner, Expires: time.Unix(0, ev.Expires), TTL: time.Duration(ev.TTL)},
		Token: ev.Token,
	}))
}

// RenewLease implements [index.Index]. The journal is not told: a log that is never
// compacted would grow with the time that a thread is held.
func (ix *Index) RenewLease(ctx context.Context, org, thread, token string) (index.Lease, error) {
	l, err := ix.renewLease(ctx, org, thread, token)
	if err != nil {
		return index.Lease{}, fmt.Errorf("renew lease: %w", err)
	}
	return l, nil
}

func (ix *Index) renewLease(ctx context.Context, org, thread, token string) (index.Lease, error) {
	if err := ix.enter(ctx); err != nil {
		return index.Lease{}, err
	}
	defer ix.leave()
	ix.write.Lock()
	defer ix.write.Unlock()
	held, err := ix.ownedLease(org, thread, token)
	if err == nil {
		held = held.Renewed(ix.opt.Now())
		err = ix.touch()
	}
	if err == nil {
		err = ix.update(func(txn *bdb.Txn) error { return txn.Set(leaseKey(org, thread), encodeLease(held)) })
	}
	return held.Lease, err
}

// ownedLease is a thread's lease if it has the token; the write lock is held.
func (ix *Index) ownedLease(org, thread, token string) (held index.HeldLease, err error) {
	err = ix.admit(func(txn *bdb.Txn) (err error) {
		if held, err = getLease(txn, org, thread); err != nil {
			return err
		}
		return held.Owned(thread, token, ix.opt.Now())
	})
	return held, err
}

// ReleaseLease implements [index.Index].
func (ix *Index) ReleaseLease(ctx context.Context, org, thread, token string) error {
	err := ix.change(ctx, func(txn *bdb.Txn) (journal.Event, error) {
		held, err := getLease(txn, org, thread)
		if err == nil {
			err = held.Owned(thread, token, ix.opt.Now())
		}
		return journal.ReleaseLease{Org: org, Thread: thread, Fence: held.Fence}, err
	})
	if err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

func applyReleaseLease(txn *bdb.Txn, ev journal.ReleaseLease) error {
	held, err := getLease(txn, ev.Org, ev.Thread)
	if err != nil || held.Fence != ev.Fence {
		return err
	}
	return txn.Delete(leaseKey(ev.Org, ev.Thread))
}

// Lease implements [index.Index].
func (ix *Index) Lease(ctx context.Context, org, thread string) (l index.Lease, err error) {
	err = ix.view(ctx, func(txn *bdb.Txn) error {
		held, err := getLease(txn, org, thread)
		if err == nil && !held.Live(ix.opt.Now()) {
			err = fmt.Errorf("thread %q: %w", thread, index.ErrNoWriter)
		}
		l = held.Lease
		return err
	})
	if err != nil {
		return index.Lease{}, err
	}
	return l, nil
}

// CheckLease implements [index.Index].
func (ix *Index) CheckLease(ctx context.Context, org, thread, token string) error {
	return ix.view(ctx, func(txn *bdb.Txn) error {
		held, err := getLease(txn, org, thread)
		if err != nil {
			return err
		}
		return held.Admits(thread, token, ix.opt.Now())
	})
}

// getLease reads the last lease of a thread; the zero value is none.
func getLease(txn *bdb.Txn, org, thread string) (held index.HeldLease, err error) {
	err = get(txn, leaseKey(org, thread), func(b []byte) (err error) {
		held, err = decodeLease(thread, b)
		return err
	})
	if errors.Is(err, bdb.ErrKeyNotFound) {
		return index.HeldLease{}, nil
	}
	return held, err
}

// orgLease is a lease and the organization of its thread.
type orgLease struct {
	index.HeldLease
	org string
}

// liveLeases are all that hold now.
func (ix *Index) liveLeases(ctx context.Context) (live []orgLease, err error) {
	now := ix.opt.Now()
	err = ix.db.View(func(txn *bdb.Txn) error {
		return walk(ctx, txn, []byte{tLease}, nil, func(key, value []byte) error {
			org, thread, ok := cutStr(key[1:])
			held, err := decodeLease(string(thread), value)
			if !ok || err != nil {
				return fmt.Errorf("lease %q: %w", key, index.ErrCorrupt)
			}
			if held.Live(now) {
				live = append(live, orgLease{held, org})
			}
			return nil
		})
	})
	return live, err
}

// setLeases takes over when leases expire that the database has, too.
func (ix *Index) setLeases(leases []orgLease) error {
	for _, l := range leases {
		err := ix.update(func(txn *bdb.Txn) error {
			held, err := getLease(txn, l.org, l.Thread)
			if err != nil || held.Fence != l.Fence {
				return err
			}
			return txn.Set(leaseKey(l.org, l.Thread), encodeLease(l.HeldLease))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
