package client

import (
	"context"
	"errors"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/snapshot"
)

// failover is a holder that opens the store anew when the daemon that it spoke
// with has ended: what was asked for is asked again. Only what reads, and the
// beginning of a save, is repeated; a save under way is not.
type failover struct {
	opener *opener

	mu      sync.Mutex
	holder  snapshot.Holder
	retired []snapshot.Holder // earlier ones: a session may still have to be closed
	opening chan struct{}     // not nil while one caller opens
	closed  bool
}

var _ snapshot.Holder = (*failover)(nil)

func (f *failover) current() snapshot.Holder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holder
}

// retry calls fn until it does not meet a daemon that has ended.
func retry[T any](ctx context.Context, f *failover, fn func(snapshot.Holder) (T, error)) (T, error) {
	for {
		h := f.current()
		v, err := fn(h)
		if !gone(err) || ctx.Err() != nil {
			return v, err
		}
		again, oerr := f.replace(ctx, h)
		if oerr != nil {
			return v, oerr
		}
		if !again {
			return v, err
		}
	}
}

// replace opens the store anew, unless somebody else has done so since old was
// asked. It reports whether there is something new to ask.
func (f *failover) replace(ctx context.Context, old snapshot.Holder) (bool, error) {
	for {
		f.mu.Lock()
		switch {
		case f.closed:
			f.mu.Unlock()
			return false, nil
		case f.holder != old:
			f.mu.Unlock()
			return true, nil
		case f.opening == nil:
			f.opening = make(chan struct{})
			f.mu.Unlock()
			return f.open(ctx)
		}
		wait := f.opening
		f.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// open does it. The caller has set opening.
func (f *failover) open(ctx context.Context) (bool, error) {
	remote, local, err := f.opener.open(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.opening)
	f.opening = nil
	if err != nil {
		return false, err
	}
	var next snapshot.Holder = remote
	if local != nil {
		next = local.Holder()
	}
	if f.closed {
		return false, next.Close()
	}
	f.retired = append(f.retired, f.holder)
	f.holder = next
	return true, nil
}

// Close implements [snapshot.Holder].
func (f *failover) Close() error {
	f.mu.Lock()
	f.closed = true
	all := append(f.retired, f.holder)
	f.retired = nil
	f.mu.Unlock()
	var errs []error
	for _, h := range all {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

// Resolve implements [snapshot.Holder].
func (f *failover) Resolve(ctx context.Context, ref string) (snapshot.Checkpoint, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Checkpoint, error) { return h.Resolve(ctx, ref) })
}

// Thread implements [snapshot.Holder].
func (f *failover) Thread(ctx context.Context, id string) (snapshot.Thread, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Thread, error) { return h.Thread(ctx, id) })
}

// Threads implements [snapshot.Holder].
func (f *failover) Threads(ctx context.Context, p snapshot.Page) ([]snapshot.Thread, error) {
	return retry(ctx, f, func(h snapshot.Holder) ([]snapshot.Thread, error) { return h.Threads(ctx, p) })
}

// Checkpoints implements [snapshot.Holder].
func (f *failover) Checkpoints(ctx context.Context, thread string, p snapshot.Page) ([]snapshot.Checkpoint, error) {
	return retry(ctx, f, func(h snapshot.Holder) ([]snapshot.Checkpoint, error) { return h.Checkpoints(ctx, thread, p) })
}

// Locate implements [snapshot.Holder].
func (f *failover) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	return retry(ctx, f, func(h snapshot.Holder) ([]cas.Location, error) { return h.Locate(ctx, keys) })
}

// Begin implements [snapshot.Holder].
func (f *failover) Begin(ctx context.Context, req snapshot.BeginRequest) (snapshot.Session, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Session, error) { return h.Begin(ctx, req) })
}

// Rename implements [snapshot.Holder].
func (f *failover) Rename(ctx context.Context, id, name string) (snapshot.Checkpoint, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Checkpoint, error) { return h.Rename(ctx, id, name) })
}

// Delete implements [snapshot.Holder].
func (f *failover) Delete(ctx context.Context, id string, opt snapshot.DeleteOptions) (bool, error) {
	return retry(ctx, f, func(h snapshot.Holder) (bool, error) { return h.Delete(ctx, id, opt) })
}

// DeleteThread implements [snapshot.Holder].
func (f *failover) DeleteThread(ctx context.Context, id string, opt snapshot.DeleteOptions) (bool, error) {
	return retry(ctx, f, func(h snapshot.Holder) (bool, error) { return h.DeleteThread(ctx, id, opt) })
}

// Forget implements [snapshot.Holder]. Asked again it does not name what was deleted the
// first time.
func (f *failover) Forget(ctx context.Context, req snapshot.ForgetSome) (snapshot.Forgotten, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Forgotten, error) { return h.Forget(ctx, req) })
}

// Artifacts implements [snapshot.Holder].
func (f *failover) Artifacts(ctx context.Context, thread string) ([]snapshot.Artifact, error) {
	return retry(ctx, f, func(h snapshot.Holder) ([]snapshot.Artifact, error) { return h.Artifacts(ctx, thread) })
}

// RemoveArtifact implements [snapshot.Holder].
func (f *failover) RemoveArtifact(ctx context.Context, thread, id string) error {
	return again(ctx, f, func(h snapshot.Holder) error { return h.RemoveArtifact(ctx, thread, id) })
}

// AcquireLease implements [snapshot.Holder]. Asked again it gets what it got before.
func (f *failover) AcquireLease(ctx context.Context, req snapshot.LeaseRequest) (snapshot.Lease, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Lease, error) { return h.AcquireLease(ctx, req) })
}

// RenewLease implements [snapshot.Holder].
func (f *failover) RenewLease(ctx context.Context, thread, token string) (snapshot.Lease, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Lease, error) { return h.RenewLease(ctx, thread, token) })
}

// ReleaseLease implements [snapshot.Holder].
func (f *failover) ReleaseLease(ctx context.Context, thread, token string) error {
	return again(ctx, f, func(h snapshot.Holder) error { return h.ReleaseLease(ctx, thread, token) })
}

// Lease implements [snapshot.Holder].
func (f *failover) Lease(ctx context.Context, thread string) (snapshot.Lease, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Lease, error) { return h.Lease(ctx, thread) })
}

// Distrust implements [snapshot.Holder].
func (f *failover) Distrust(ctx context.Context, objects []cas.Located) error {
	return again(ctx, f, func(h snapshot.Holder) error { return h.Distrust(ctx, objects) })
}

// GC implements [snapshot.Holder].
func (f *failover) GC(ctx context.Context, req snapshot.GCRequest) (snapshot.GCResult, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.GCResult, error) { return h.GC(ctx, req) })
}

// Repair implements [snapshot.Holder].
func (f *failover) Repair(ctx context.Context, req snapshot.RepairRequest) (snapshot.RepairResult, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.RepairResult, error) { return h.Repair(ctx, req) })
}

// again is retry for what has no result. A change that was made before the
// daemon ended is not found by the second try, which then says so.
func again(ctx context.Context, f *failover, fn func(snapshot.Holder) error) error {
	_, err := retry(ctx, f, func(h snapshot.Holder) (struct{}, error) { return struct{}{}, fn(h) })
	return err
}

// Check implements [snapshot.Holder].
func (f *failover) Check(ctx context.Context) ([]string, error) {
	return retry(ctx, f, func(h snapshot.Holder) ([]string, error) { return h.Check(ctx) })
}

// Stats implements [snapshot.Holder].
func (f *failover) Stats(ctx context.Context) (snapshot.Stats, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Stats, error) { return h.Stats(ctx) })
}

// Published implements [snapshot.Holder].
func (f *failover) Published(ctx context.Context, sequence uint64) (snapshot.PublishedCheckpoint, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.PublishedCheckpoint, error) { return h.Published(ctx, sequence) })
}

// Usage implements [snapshot.Holder].
func (f *failover) Usage(ctx context.Context) (snapshot.Usage, error) {
	return retry(ctx, f, func(h snapshot.Holder) (snapshot.Usage, error) { return h.Usage(ctx) })
}

// Mount implements [snapshot.Holder]. It is the daemon's own and not repeated.
func (f *failover) Mount(ctx context.Context, req snapshot.MountRequest) error {
	return f.current().Mount(ctx, req)
}

// Unmount implements [snapshot.Holder].
func (f *failover) Unmount(ctx context.Context, req snapshot.UnmountRequest) error {
	return f.current().Unmount(ctx, req)
}
