package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/snapshot"
)

const (
	// pollEvery is how often a store that somebody else has is looked at again.
	pollEvery = 15 * time.Millisecond
	// sayAfter is how long a wait stays unmentioned.
	sayAfter = time.Second
)

// Open opens the store in dir through its daemon, or in this process if there is
// none. While another process has the store and does not serve it, Open waits
// for either, as long as ctx lives; after a second it calls onWait, once, unless
// that is nil. A store is created, if the options ask for it, only when there is
// no daemon.
//
// The store goes on when the daemon ends: the next operation opens the store
// anew, by the same rule. Only a save under way is lost with it.
func Open(ctx context.Context, dir string, opt snapshot.Options, onWait func(*snapshot.LockedError)) (*snapshot.Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	o := &opener{dir: dir, opt: opt, onWait: onWait}
	remote, local, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	if local != nil {
		return local, nil
	}
	return snapshot.New(dir, &failover{opener: o, holder: remote}, opt), nil
}

// opener opens one store as often as needed.
type opener struct {
	dir    string
	opt    snapshot.Options
	onWait func(*snapshot.LockedError)
}

// open returns a connection or the store in this process.
func (o *opener) open(ctx context.Context) (*Holder, *snapshot.Store, error) {
	begun := time.Now()
	said := o.onWait == nil
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		h, err := o.dial(ctx, &said)
		if err == nil {
			return h, nil, nil
		}
		if !gone(err) {
			return nil, nil, snapshot.Forbidden(o.dir, err)
		}
		s, err := snapshot.Open(ctx, o.dir, o.opt)
		if err == nil {
			return nil, s, nil
		}
		var locked *snapshot.LockedError
		if !errors.As(err, &locked) {
			return nil, nil, snapshot.Forbidden(o.dir, err)
		}
		if !said && time.Since(begun) >= sayAfter {
			said = true
			o.onWait(locked)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%w: %w", locked, context.Cause(ctx))
		}
	}
}

// gone reports whether err says that there is no daemon, or soon none.
func gone(err error) bool { return errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrClosing) }

// dial is Dial that says for whom it waits when the daemon takes long to answer:
// it may be stopped.
func (o *opener) dial(ctx context.Context, said *bool) (*Holder, error) {
	if *said {
		return Dial(ctx, o.dir)
	}
	waiting := time.AfterFunc(sayAfter, func() { o.onWait(snapshot.LockHolder(o.dir)) })
	h, err := Dial(ctx, o.dir)
	*said = !waiting.Stop()
	return h, err
}
