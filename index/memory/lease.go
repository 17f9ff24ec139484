package memory

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/index"
)

// AcquireLease implements [index.Index].
func (ix *Index) AcquireLease(ctx context.Context, a index.AcquireLease) (l index.Lease, err error) {
	err = a.Validate()
	if err == nil {
		err = ix.do(ctx, func(s *State) error {
			now, k := ix.opt.Now(), key{a.Org, a.Thread}
			if t := s.threads[k]; t != nil && t.deleting {
				return fmt.Errorf("thread %q: %w", a.Thread, index.ErrDeleting)
			}
			owned, err := s.leases[k].Free(a, now)
			if err == nil && !owned {
				held := index.NewHeldLease(a, now)
				s.seq++
				held.Fence = s.seq
				s.leases[k] = held
			}
			l = s.leases[k].Lease
			return err
		})
	}
	if err != nil {
		return index.Lease{}, fmt.Errorf("acquire lease: %w", err)
	}
	return l, nil
}

// RenewLease implements [index.Index].
func (ix *Index) RenewLease(ctx context.Context, org, thread, token string) (l index.Lease, err error) {
	err = ix.do(ctx, func(s *State) error {
		now, k := ix.opt.Now(), key{org, thread}
		if err := s.leases[k].Owned(thread, token, now); err != nil {
			return err
		}
		s.leases[k] = s.leases[k].Renewed(now)
		l = s.leases[k].Lease
		return nil
	})
	if err != nil {
		return l, fmt.Errorf("renew lease: %w", err)
	}
	return l, nil
}

// ReleaseLease implements [index.Index].
func (ix *Index) ReleaseLease(ctx context.Context, org, thread, token string) error {
	err := ix.do(ctx, func(s *State) error {
		if err := s.leases[key{org, thread}].Owned(thread, token, ix.opt.Now()); err != nil {
			return err
		}
		s.seq++
		delete(s.leases, key{org, thread})
		return nil
	})
	if err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// Lease implements [index.Index].
func (ix *Index) Lease(ctx context.Context, org, thread string) (l index.Lease, err error) {
	err = ix.do(ctx, func(s *State) error {
		held := s.leases[key{org, thread}]
		if !held.Live(ix.opt.Now()) {
			return fmt.Errorf("thread %q: %w", thread, index.ErrNoWriter)
		}
		l = held.Lease
		return nil
	})
	return l, err
}

// CheckLease implements [index.Index].
func (ix *Index) CheckLease(ctx context.Context, org, thread, token string) error {
	return ix.do(ctx, func(s *State) error {
		return s.leases[key{org, thread}].Admits(thread, token, ix.opt.Now())
	})
}
