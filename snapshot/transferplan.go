package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// A transferPlan is what is to be done about one thread.
type transferPlan struct {
	head  string            // of the thread where it goes
	there map[string]string // names of its checkpoints there, by id
	known []listed          // that are there already
	last  *listed           // the one before the first that is sent, if it is there
	send  []listed          // the oldest first
}

// plan compares a thread in both stores.
func (t *transfer) plan(ctx context.Context, th sending) (transferPlan, error) {
	p := transferPlan{there: map[string]string{}}
	theirs, err := t.to.Checkpoints(ctx, th.thread, Page{})
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return p, err
	}
	records := map[string]string{}
	var head Checkpoint
	for _, cp := range theirs {
		p.there[cp.ID], records[cp.ID] = cp.Name, cp.Record
		if head.ID == "" && cp.Status == string(index.Ready) {
			head = cp
		}
	}
	p.head = head.ID
	after := uint64(0) // what is sent is newer
	follows := head.ID == ""
	for i, cp := range th.all {
		record, there := records[cp.id]
		switch {
		case there && record != cp.record && cp.seq <= th.upTo:
			return p, t.otherID(cp.id, th.thread)
		case there:
			after = max(after, cp.seq)
			follows = follows || cp.id == head.ID
			if cp.seq <= th.upTo {
				p.known = append(p.known, cp)
				p.last = &th.all[i]
			}
		case cp.ready && cp.parent == head.ID && head.ID != "" && !follows:
			after, follows = max(after, cp.seq-1), true
		}
	}
	if !follows {
		was, err := t.wasHere(ctx, head)
		if err != nil {
			return p, err
		}
		if was {
			after, follows = max(after, head.Received.Sequence), true
		}
	}
	for _, cp := range th.all {
		if _, there := p.there[cp.id]; !there && cp.ready && cp.seq > after && cp.seq <= th.upTo {
			p.send = append(p.send, cp)
		}
	}
	if len(p.send) > 0 && !follows {
		return p, t.diverged(th, head, p.send[0])
	}
	if t.opt.Ref != "" {
		wanted := slices.IndexFunc(th.all, func(cp listed) bool { return cp.seq == th.upTo })
		if wanted < 0 { // deleted since it was resolved
			return p, fmt.Errorf("checkpoint %s: %w", quoted(t.opt.Ref), index.ErrCheckpointNotFound)
		}
		cp := th.all[wanted]
		if _, there := p.there[cp.id]; !there && !slices.Contains(p.send, cp) {
			return p, t.passed(th, cp, head)
		}
	}
	return p, nil
}

// wasHere reports whether the head of the thread there was received from this store, which
// has deleted it since. The store's id and the sequence are not enough: a store that was put
// back from a backup has the id still, and gives the sequence to another checkpoint.
func (t *transfer) wasHere(ctx context.Context, head Checkpoint) (bool, error) {
	r := head.Received
	if r == nil || r.Store != t.store {
		return false, nil
	}
	p, err := t.from.holder.Published(ctx, r.Sequence)
	if errors.Is(err, index.ErrCheckpointNotFound) {
		return false, nil
	}
	return p.ID == head.ID && p.Record == head.Record, err
}

// passed says that a checkpoint cannot be sent, since the thread is further there.
func (t *transfer) passed(th sending, cp listed, head Checkpoint) error {
	err := fmt.Errorf("thread %s has newer checkpoints in %s, the newest is %s, and checkpoint %s is not there any more: %w",
		quoted(th.thread), t.to.called(), quoted(head.ID), quoted(cp.id), ErrDiverged)
	return WithHint(err, "what was deleted there stays deleted; as a thread of its own it can be there: %s export %s | %s import --thread NEW-THREAD -",
		t.from.command(), tree.QuoteShell(cp.id), t.to.command())
}

// diverged says that a thread went on in both stores, or began in both.
func (t *transfer) diverged(th sending, head Checkpoint, next listed) error {
	err := fmt.Errorf("thread %s has checkpoint %s in %s as its head, which %s does not have, and there goes on with %s: %w",
		quoted(th.thread), quoted(head.ID), t.to.called(), t.from.called(), quoted(next.id), ErrDiverged)
	return WithHint(err, "%s fork %s NEW-THREAD makes a thread of its own of it, which can be sent; or send it to another store",
		t.from.command(), tree.QuoteShell(th.all[len(th.all)-1].id))
}

// otherID says that an id means something else in the other store.
func (t *transfer) otherID(id, thread string) error {
	err := fmt.Errorf("checkpoint %s of %s: %s has another one of this id, in thread %s: %w",
		quoted(id), t.from.called(), t.to.called(), quoted(thread), index.ErrDuplicateID)
	return WithHint(err, "%s fork %s NEW-THREAD makes one with an id of its own, which can be sent; or send it to another store", t.from.command(), tree.QuoteShell(id))
}

// called is what a store is called in messages.
func (s *Store) called() string {
	if s.dir == "" {
		return "the store in memory"
	}
	return "the store " + quoted(s.dir)
}

// command is how a verb on a store begins.
func (s *Store) command() string {
	if s.dir == "" {
		return "snapfs"
	}
	return "snapfs --store " + tree.QuoteShell(s.dir)
}

// names gives checkpoints that are there already the names that they have here, where
// they have none.
func (t *transfer) names(ctx context.Context, p transferPlan) error {
	for _, cp := range p.known {
		theirs := p.there[cp.id]
		if cp.name == "" || cp.name == theirs {
			continue
		}
		if theirs != "" {
			t.warn("checkpoint %s is named %s in %s, and stays %s in %s", quoted(cp.id), quoted(cp.name), t.from.called(), quoted(theirs), t.to.called())
			continue
		}
		_, err := t.to.holder.Rename(ctx, cp.id, cp.name)
		switch {
		case errors.Is(err, index.ErrDuplicateName):
			t.nameTaken(cp)
		case errors.Is(err, index.ErrCheckpointNotFound): // deleted meanwhile
		case err != nil:
			return err
		}
	}
	return nil
}

func (t *transfer) nameTaken(cp listed) {
	t.warn("checkpoint %s goes without its name %s: another one has it in %s", quoted(cp.id), quoted(cp.name), t.to.called())
}
