package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Checkpoints are published together once so many, or so many bytes, were put: a pack for
// each would cost an fsync each.
const (
	groupMost  = 64
	groupBytes = 64 << 20
)

// An arrival is a checkpoint of which all objects were put.
type arrival struct {
	listed
	hash      cas.Hash
	artifacts []index.Artifact // that the thread gets with it
}

// thread sends one thread.
func (t *transfer) thread(ctx context.Context, th sending) error {
	p, err := t.plan(ctx, th)
	if err != nil {
		return err
	}
	if len(p.send) > 0 {
		if err := t.checkpoints(ctx, th, &p); err != nil {
			return err
		}
	}
	t.res.Known += len(p.known)
	if err := t.names(ctx, p); err != nil {
		return err
	}
	if t.opt.Ref != "" {
		return nil
	}
	return t.loose(ctx, th)
}

// checkpoints sends what a plan says, or one that is made anew when the thread has changed
// by the time it is nobody else's to write to.
func (t *transfer) checkpoints(ctx context.Context, th sending, p *transferPlan) error {
	if err := t.open(ctx, th.thread); err != nil {
		return err
	}
	session, err := t.to.begin(ctx, BeginRequest{Thread: th.thread, PID: os.Getpid(), Lease: t.opt.Lease}, t.opt.Wait)
	if err != nil {
		return err
	}
	defer session.Close()
	if session.Head() != p.head {
		if *p, err = t.plan(ctx, th); err != nil {
			return err
		}
	}
	gets, err := t.artifactsOf(ctx, th.thread, p.last)
	if err != nil {
		return err
	}
	for _, cp := range p.send {
		a, err := t.put(ctx, th.thread, cp, gets)
		if err == nil {
			t.group = append(t.group, a)
			if len(t.group) >= groupMost || t.w.Stats().Stored-t.flushed >= groupBytes {
				err = t.publish(ctx, th.thread, session)
			}
		} else if perr := t.publish(ctx, th.thread, session); perr != nil { // what was put before it
			return perr
		}
		if err := t.tell(ctx, err); err != nil {
			t.group = nil
			return err
		}
	}
	return t.publish(ctx, th.thread, session)
}

// put sends all objects of a checkpoint that are missing.
func (t *transfer) put(ctx context.Context, thread string, cp listed, gets *arrivingArtifacts) (a arrival, err error) {
	if there, err := t.to.Resolve(ctx, cp.id); err == nil && there.ID == cp.id {
		return a, t.otherID(cp.id, there.Thread)
	}
	a.listed = cp
	a.hash, err = cas.ParseHash(cp.record)
	if err != nil {
		return a, err
	}
	rec, err := t.from.Record(ctx, Checkpoint{ID: cp.id, Record: cp.record})
	if err == nil && (rec.ID != cp.id || rec.Thread != thread) {
		err = fmt.Errorf("its record is of checkpoint %s in thread %s: %w", quoted(rec.ID), quoted(rec.Thread), cas.ErrCorrupt)
	}
	if err == nil {
		a.artifacts, err = gets.with(ctx, rec)
	}
	if err != nil {
		return a, t.lacks(ctx, cp.id, &sourceError{err})
	}
	if err := t.all(ctx, func() error {
		_, err := t.reach.checkpoint(ctx, rec, a.hash)
		return err
	}); err != nil {
		return a, t.lacks(ctx, cp.id, err)
	}
	if len(gets.now) > 0 {
		gets.gave(a.artifacts)
	}
	return a, nil
}

// all sends what follow reaches. If that fails all of it is asked for again by who needs it.
func (t *transfer) all(ctx context.Context, follow func() error) error {
	t.reach.mark()
	err := follow()
	if err != nil {
		t.send.drop()
		var sent *sendError
		if !errors.As(err, &sent) {
			err = &sourceError{err} // the walk only reads
		}
	} else {
		err = t.send.drain(ctx)
	}
	if err != nil {
		t.reach.undo()
	}
	return err
}

// lacks says what became of a checkpoint that could not be read whole: it may have been
// deleted meanwhile.
func (t *transfer) lacks(ctx context.Context, id string, err error) error {
	var source *sourceError
	if !errors.As(err, &source) || ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, cas.ErrNotFound) && !errors.Is(err, cas.ErrCorrupt) {
		return source.error // the store that sends cannot be read, which is no matter of this checkpoint
	}
	cp, rerr := t.from.Resolve(ctx, id)
	if errors.Is(rerr, index.ErrCheckpointNotFound) || rerr == nil && cp.ID != id {
		return fmt.Errorf("checkpoint %s was deleted while it was sent: %w", quoted(id), index.ErrCheckpointNotFound)
	}
	return WithHint(fmt.Errorf("checkpoint %s in %s: %w", quoted(id), t.from.called(), err), "%s verify --data names all that is damaged or lost there", t.from.command())
}

// publish makes checkpoints of what was put.
func (t *transfer) publish(ctx context.Context, thread string, session Session) error {
	group := t.group
	t.group = nil
	if len(group) == 0 {
		return nil
	}
	if err := t.w.Flush(ctx); err != nil {
		return err
	}
	t.flushed = t.w.Stats().Stored
	for _, a := range group {
		// What is too much for one step goes before: the next try finds it there.
		early, with := splitArtifacts(a.artifacts)
		if err := t.give(ctx, session, newArtifacts(early)); err != nil {
			return err
		}
		req := PublishRequest{Record: a.hash, Name: a.name, Artifacts: newArtifacts(with), Received: &Received{Store: t.store, Sequence: a.seq}}
		cp, err := session.Publish(ctx, req)
		if errors.Is(err, index.ErrDuplicateName) {
			t.nameTaken(a.listed)
			req.Name = ""
			cp, err = session.Publish(ctx, req)
		}
		if errors.Is(err, index.ErrStaleHead) {
			err = WithHint(err, "somebody else wrote into the thread in %s: do it again", t.to.called())
		}
		if err != nil {
			return waitHint(fmt.Errorf("checkpoint %s: %w", quoted(a.id), err), thread)
		}
		t.res.Checkpoints++
		t.res.Artifacts += len(with)
		if t.opt.Arrived != nil {
			if err := t.opt.Arrived(cp); err != nil {
				return err
			}
		}
	}
	return nil
}
