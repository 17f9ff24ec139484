package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/index"
)

// LeaseTime is how long a lease lasts that nobody renews, if nothing else is asked for.
// [Store.HoldWriter] renews such a one every 45 s.
const LeaseTime = 120 * time.Second

// A Lease makes its owner the single writer of a thread: while it holds, only who names
// its token makes checkpoints in the thread. It guards no names, deletions and artifacts.
type Lease struct {
	Thread string `json:"thread"`
	// Token proves who the owner is; empty where somebody else asks.
	Token string `json:"token,omitempty"`
	// Fence is a number that is higher in each later lease of a store, for ever.
	Fence   uint64        `json:"fence"`
	Owner   string        `json:"owner"`
	Expires time.Time     `json:"expires"` // by the clock of the store's holder
	TTL     time.Duration `json:"ttlNs"`   // in ns: what a renewal gives
}

// LeaseOptions of [Store.AcquireWriter]. The zero value works.
type LeaseOptions struct {
	Owner string        // free text for those who find the thread held; empty: this process and its user
	TTL   time.Duration // 1 s to 1 h; 0: [LeaseTime]
	// Wait is how long to wait for somebody else's lease to end; 0: it fails at once.
	Wait time.Duration
}

// LeaseRequest asks a holder for a lease. The caller makes the token: when an answer
// was lost, asking again gets the same lease.
type LeaseRequest struct {
	Thread string        `json:"-"`
	Token  string        `json:"token" doc:"16 to 128 visible ASCII characters, not to be guessed"`
	Owner  string        `json:"owner,omitempty" doc:"free text about who asks"`
	TTL    time.Duration `json:"ttlNs" doc:"how long it lasts, in ns"`
}

func newLease(l index.Lease, token string) Lease {
	return Lease{Thread: l.Thread, Token: token, Fence: l.Fence, Owner: l.Owner, Expires: l.Expires, TTL: l.TTL}
}

// AcquireWriter makes the caller the single writer of a thread, which need not be there
// yet. It fails with [index.ErrWriterConflict] while somebody else is. A save that is
// under way without the lease publishes nothing any more.
func (s *Store) AcquireWriter(ctx context.Context, thread string, opt LeaseOptions) (Lease, error) {
	req := LeaseRequest{Thread: thread, Token: index.NewToken(), Owner: opt.Owner, TTL: opt.TTL}
	if req.Owner == "" {
		req.Owner = fmt.Sprintf("process %d of %s", os.Getpid(), creator().User)
	}
	if req.TTL == 0 {
		req.TTL = LeaseTime
	}
	var l Lease
	err := Await(ctx, opt.Wait, func() (err error) {
		l, err = s.holder.AcquireLease(ctx, req)
		return err
	})
	if err != nil && ctx.Err() != nil { // an answer that came too late may have brought it
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
		defer cancel()
		_ = s.holder.ReleaseLease(end, thread, req.Token)
	}
	return l, waitHint(err, thread)
}

// giveBackTime is how long giving back a lease may take that nobody waits for any more.
const giveBackTime = 2 * time.Second

// RenewWriter gives a lease its whole time again. It fails with [index.ErrWriterLost]
// when it is over, whoever has the thread since.
func (s *Store) RenewWriter(ctx context.Context, thread, token string) (Lease, error) {
	l, err := s.holder.RenewLease(ctx, thread, token)
	return l, lostHint(err, thread)
}

// ReleaseWriter ends a lease. It fails with [index.ErrWriterLost] when it is over
// already.
func (s *Store) ReleaseWriter(ctx context.Context, thread, token string) error {
	return lostHint(s.holder.ReleaseLease(ctx, thread, token), thread)
}

// Writer returns the lease of a thread, without its token. It fails with
// [index.ErrNoWriter].
func (s *Store) Writer(ctx context.Context, thread string) (Lease, error) {
	return s.holder.Lease(ctx, thread)
}

// HoldWriter keeps a lease renewed until ctx ends, and returns nil then: releasing it is
// left to the caller. It returns an error when the lease is lost: from then on nothing
// can be published with it. A renewal that fails for another reason is tried again for
// as long as the lease may last.
func (s *Store) HoldWriter(ctx context.Context, lease Lease) error {
	until := time.Now().Add(lease.TTL) // by our clock: there is no other to be seen
	pause := renewEvery(lease.TTL)
	for {
		if err := sleep(ctx, pause); err != nil {
			return nil
		}
		asked := time.Now()
		renewed, err := s.RenewWriter(ctx, lease.Thread, lease.Token)
		switch {
		case err == nil:
			until, pause = asked.Add(renewed.TTL), renewEvery(renewed.TTL)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, index.ErrWriterLost), !time.Now().Before(until):
			return err
		default:
			s.log.Warn("cannot renew the lease of a thread", "thread", lease.Thread, "error", err)
			pause = renewEvery(lease.TTL) / 8
		}
	}
}

// renewEvery is 45 s for a lease of 120 s: two tries may fail.
func renewEvery(ttl time.Duration) time.Duration { return ttl * 3 / 8 }

// waitHint says what to do about a thread that somebody else writes to.
func waitHint(err error, thread string) error {
	switch {
	case err == nil || Hint(err) != "":
		return err
	case errors.Is(err, index.ErrWriterConflict):
		return WithHint(err, "--wait 2m waits until it is free; snapfs lease show %s tells who has it", quoted(thread))
	case errors.Is(err, ErrBusy):
		return WithHint(err, "--wait 2m waits until that is over")
	}
	return lostHint(err, thread)
}

// lostHint says what to do without a lease.
func lostHint(err error, thread string) error {
	if !errors.Is(err, index.ErrWriterLost) || Hint(err) != "" {
		return err
	}
	return WithHint(err, "snapfs lease acquire %s takes a new one; the thread's head may have moved since", quoted(thread))
}

// AcquireLease implements [Holder].
func (h *localHolder) AcquireLease(ctx context.Context, req LeaseRequest) (Lease, error) {
	l, err := h.index.AcquireLease(ctx, index.AcquireLease{Org: defaultOrg, Thread: req.Thread, Token: req.Token, Owner: req.Owner, TTL: req.TTL})
	if err != nil {
		return Lease{}, err
	}
	return newLease(l, req.Token), nil
}

// RenewLease implements [Holder].
func (h *localHolder) RenewLease(ctx context.Context, thread, token string) (Lease, error) {
	l, err := h.index.RenewLease(ctx, defaultOrg, thread, token)
	if err != nil {
		return Lease{}, err
	}
	return newLease(l, token), nil
}

// ReleaseLease implements [Holder].
func (h *localHolder) ReleaseLease(ctx context.Context, thread, token string) error {
	return h.index.ReleaseLease(ctx, defaultOrg, thread, token)
}

// Lease implements [Holder].
func (h *localHolder) Lease(ctx context.Context, thread string) (Lease, error) {
	l, err := h.index.Lease(ctx, defaultOrg, thread)
	if err != nil {
		return Lease{}, err
	}
	return newLease(l, ""), nil
}
