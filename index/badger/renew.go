package badger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/index"
)

const (
	// renewWait is how long Renew waits for a moment without calls.
	renewWait = 10 * time.Second
	renewPoll = time.Millisecond
	// renewTries is how often Renew tries to open the database again, which a child that
	// is being forked has open, too, for an instant.
	renewTries = 1000
)

// Last returns the number of the journal's last entry.
func (ix *Index) Last() uint64 { return ix.journal.Last() }

// renewing marks the context of what Renew calls: it must not wait for Renew.
type renewing struct{}

// Renew leaves no byte of what was deleted by the journal's entry number upTo in the
// journal (see [journal.Journal.Forget]) and in the database, whose files keep deleted
// keys until they are merged: it is made anew from journal and packs. Other calls wait
// meanwhile. Killed at any point, the next Open makes it anew. It fails with
// [index.ErrInUse] when there is no moment without calls, and an index in memory with
// [errors.ErrUnsupported]; then nothing has changed. After other failures the index may have to
// be opened again.
func (ix *Index) Renew(ctx context.Context, upTo uint64) error {
	if ix.opt.InMemory {
		return fmt.Errorf("make the index anew: it is kept in memory: %w", errors.ErrUnsupported)
	}
	end, err := ix.quieten(ctx)
	if err != nil {
		return fmt.Errorf("make the index anew: %w", err)
	}
	defer end()
	// Half of it is nothing: whoever asked may go away.
	if err := ix.renew(context.WithValue(context.WithoutCancel(ctx), renewing{}, true), upTo); err != nil {
		return fmt.Errorf("make the index anew: %w", err)
	}
	return nil
}

// insideKey marks the context of what a call calls: Renew waits for that call, and it must
// not wait for Renew.
type insideKey struct{}

func inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{}, true)
}

// listing counts a listing whose consumer may call, until it is over.
func (ix *Index) listing() (over func()) {
	ix.state.Lock()
	defer ix.state.Unlock()
	ix.lists++
	return func() {
		ix.state.Lock()
		defer ix.state.Unlock()
		ix.lists--
	}
}

// mustWait reports whether a new call has to wait for Renew; state is locked.
func (ix *Index) mustWait(ctx context.Context) bool {
	switch {
	case ix.resume == nil:
		return false
	case ix.still:
		return true
	}
	return ix.lists == 0 && ctx.Value(insideKey{}) == nil
}

// quieten waits for the calls under way and has later ones wait until end is called.
func (ix *Index) quieten(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, renewWait, fmt.Errorf("it is listed all the time: %w", index.ErrInUse))
	defer cancel()
	ix.state.Lock()
	if ix.resume != nil {
		ix.state.Unlock()
		return nil, fmt.Errorf("somebody does so already: %w", index.ErrInUse)
	}
	resume := make(chan struct{})
	ix.resume = resume
	ix.state.Unlock()
	release := func() {
		ix.state.Lock()
		ix.resume, ix.still = nil, false
		ix.state.Unlock()
		close(resume)
	}
	tick := time.NewTicker(renewPoll)
	defer tick.Stop()
	for {
		ix.state.Lock()
		switch {
		case ix.closed:
			err = index.ErrClosed
		case ix.broken != nil:
			err = fmt.Errorf("it must be opened again: %w", ix.broken)
		case ix.calls == 0:
			ix.still = true
			ix.calls++ // Close waits, too
			ix.state.Unlock()
			return func() { ix.leave(); release() }, nil
		}
		ix.state.Unlock()
		if err == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		release()
		return nil, err
	}
}

// renew is Renew while nothing else goes on.
func (ix *Index) renew(ctx context.Context, upTo uint64) error {
	if err := ix.room(); err != nil {
		return err
	}
	leases, err := ix.liveLeases(ctx)
	if err != nil {
		return err
	}
	// From now on the database is worth nothing: it knows an entry of the journal that
	// will be another one.
	if err := ix.mark.set(stateBuilding, ix.opt.BootID, 0, true); err != nil {
		return err
	}
	err = func() error {
		if err := closeDB(ix.db); err != nil {
			return err
		}
		ix.db = nil
		live := map[uint64]bool{}
		for _, l := range leases {
			live[l.Fence] = true
		}
		changed, err := ix.journal.Forget(upTo, live)
		if err != nil {
			return err
		}
		started := time.Now()
		for try := 1; ; try++ {
			err = ix.rebuild(ctx)
			if !errors.Is(err, index.ErrInUse) || try == renewTries {
				break
			}
			time.Sleep(renewPoll)
		}
		if err == nil {
			err = ix.setLeases(leases) // the journal does not know their renewals
		}
		ix.opt.Logger.Info("made the index anew", "dir", ix.dir, "journal entries changed", changed, "took", time.Since(started))
		return err
	}()
	if err != nil {
		ix.poison(err)
	}
	return err
}
