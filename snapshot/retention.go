package snapshot

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/policy"
)

// retentionFile, in cache/, tells when a daemon last did what its configuration asks for:
// a time (RFC 3339, UTC) and a newline.
const retentionFile = "retention"

// Times of [Store.Retain].
const (
	retainEvery = 24 * time.Hour
	// retainLook is how often the clock is looked at: a machine that sleeps, or is given
	// another time, does not tell.
	retainLook = time.Hour
)

// RetainOptions are for [Store.Retain].
type RetainOptions struct {
	Rules policy.Retention
	// Wait returns after a while, or when its context ends; nil: it sleeps.
	Wait func(ctx context.Context, d time.Duration)
}

// Retain forgets, once a day, what the rules do not keep, and then frees the space, until
// its context ends. When it did so last is noted in the store: whoever begins anew goes on
// from there, and one that was interrupted is done again. What fails is logged, and tried
// again a day later. A second one of the same store returns at once.
func (s *Store) Retain(ctx context.Context, opt RetainOptions) {
	if !s.retaining.TryLock() {
		s.log.Warn("retention is at work already")
		return
	}
	defer s.retaining.Unlock()
	if opt.Wait == nil {
		opt.Wait = func(ctx context.Context, d time.Duration) { sleep(ctx, d) }
	}
	last := s.lastRetained()
	for ctx.Err() == nil {
		now := s.now()
		if last.After(now) { // the clock went back, and may be right now
			last = now
			s.noteRetained(last)
		}
		if wait := retainEvery - now.Sub(last); !last.IsZero() && wait > 0 {
			opt.Wait(ctx, min(wait, retainLook))
			continue
		}
		s.retain(ctx, opt.Rules)
		if ctx.Err() == nil {
			last = s.now()
			s.noteRetained(last)
		}
	}
}

// retain does it once.
func (s *Store) retain(ctx context.Context, rules policy.Retention) {
	forgot, err := s.Forget(ctx, ForgetOptions{Rules: rules})
	for _, f := range forgot.Failed {
		s.log.Warn("retention: checkpoints could not be dropped", "thread", f.Thread, "checkpoints", len(f.Checkpoints), "error", f.Err)
	}
	var freed GCResult
	if err == nil {
		freed, err = s.GC(ctx, GCRequest{})
	}
	switch {
	case ctx.Err() != nil:
		s.log.Info("retention was interrupted", "dropped", len(forgot.Dropped))
	case err != nil:
		s.log.Warn("retention failed", "dropped", len(forgot.Dropped), "kept", forgot.Kept, "error", err)
	default:
		s.log.Info("retention is done", "threads", forgot.Threads, "dropped", len(forgot.Dropped), "kept", forgot.Kept, "failed", len(forgot.Failed), "freed", freed.Freed)
	}
}

// lastRetained is when it was done last; zero: never, or nobody knows.
func (s *Store) lastRetained() time.Time {
	text, err := os.ReadFile(filepath.Join(s.dir, cacheDir, retentionFile))
	var last time.Time
	if err == nil {
		last, err = time.Parse(time.RFC3339Nano, strings.TrimSuffix(string(text), "\n"))
	}
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		s.log.Warn("cannot tell when retention was done last", "error", err)
	}
	return last
}

// noteRetained notes when it was done last.
func (s *Store) noteRetained(at time.Time) {
	text := at.UTC().Format(time.RFC3339Nano) + "\n"
	if err := writeFile(s.fsys, s.dir, filepath.Join(s.dir, cacheDir, retentionFile), []byte(text)); err != nil {
		s.log.Warn("cannot note when retention was done", "error", fmt.Errorf("%s: %w", retentionFile, err))
	}
}
