package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/index"
)

// A wait for a thread looks again after so long: at first, and at most.
const (
	awaitFirst = 10 * time.Millisecond
	awaitMost  = time.Second
)

// Await calls try until it meets neither another save into the thread ([ErrBusy]) nor
// somebody else's lease ([index.ErrWriterConflict]), or the wait is over: then it returns
// what try said last. Between the calls it sleeps, a little longer each time. It returns
// early when ctx ends.
func Await(ctx context.Context, wait time.Duration, try func() error) error {
	end := time.Now().Add(wait)
	for pause := awaitFirst; ; pause = min(pause*3/2, awaitMost) {
		err := try()
		if !errors.Is(err, ErrBusy) && !errors.Is(err, index.ErrWriterConflict) {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return err
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return fmt.Errorf("wait until the thread is free: %w", err)
		}
	}
}

// sleep returns an error when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin begins a session, once the thread is nobody else's to write to: see [Await].
func (s *Store) begin(ctx context.Context, req BeginRequest, wait time.Duration) (session Session, err error) {
	err = Await(ctx, wait, func() (err error) {
		session, err = s.holder.Begin(ctx, req)
		return err
	})
	return session, waitHint(err, req.Thread)
}
