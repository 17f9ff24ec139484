package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Check implements [index.Index].
func (ix *Index) Check(ctx context.Context) iter.Seq2[string, error] {
	return list(ctx, ix, 0, func(txn *bdb.Txn, emit func(string) error) error {
		c := checker{ctx: ctx, txn: txn, emit: emit, fences: map[uint64]string{}}
		steps := []func() error{
			func() error { return c.tables(ix) },
			func() error {
				if ix.journal == nil {
					return nil
				}
				return c.applied(ix.journal.Last())
			},
			func() error { return c.each(tLocation, c.location) },
			func() error { return c.each(tThread, c.thread) },
			func() error { return c.each(tCheckpoint, c.checkpoint) },
			func() error { return c.each(tSequence, c.sequence) },
			func() error { return c.each(tActivity, c.activity) },
			func() error { return c.each(tName, c.name) },
			func() error { return c.each(tArtifact, c.artifact) },
			func() error { return c.each(tTail, c.tail) },
			func() error { return c.each(tLease, c.lease) },
			func() error { return c.each(tDeleting, c.deleting) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				if errors.Is(err, errStop) {
					return nil
				}
				return err
			}
		}
		return nil
	})
}

// CheckJournal reads the whole journal. It fails with [index.ErrCorrupt].
func (ix *Index) CheckJournal(ctx context.Context) error {
	if err := ix.enter(ctx); err != nil {
		return err
	}
	defer ix.leave()
	for _, err := range ix.journal.Replay(1) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checker compares the tables with one another.
type checker struct {
	ctx  context.Context
	txn  *bdb.Txn
	emit func(string) error
	// fences are those of leases so far, and whose they are.
	fences map[uint64]string
}

func (c checker) say(format string, args ...any) error { return c.emit(fmt.Sprintf(format, args...)) }

// each calls fn with every entry of a table. fn returns errStop when the
// consumer has had enough, which ends the whole check.
func (c checker) each(table byte, fn func(key, value []byte) error) error {
	stopped := false
	err := walk(c.ctx, c.txn, []byte{table}, nil, func(key, value []byte) error {
		err := fn(bytes.Clone(key[1:]), bytes.Clone(value))
		stopped = errors.Is(err, errStop)
		return err
	})
	if stopped {
		return errStop
	}
	return err
}

// tables verifies the checksum of every block. Badger takes a damaged block for
// an empty one when it looks for a key, so this is the only way to be sure.
func (c checker) tables(ix *Index) error {
	verify := func() (err error) {
		defer guard(&err)
		return ix.db.VerifyChecksum()
	}
	if err := verify(); err != nil {
		ix.suspect(fmt.Errorf("%w: %w", index.ErrCorrupt, err))
		return c.say("a table is damaged: %v", err)
	}
	return nil
}

func (c checker) applied(last uint64) error {
	b, err := getID(c.txn, appliedKey)
	if err != nil {
		return c.say("last applied entry: %v", err)
	}
	at, err := decodeApplied([]byte(b))
	if err != nil {
		return c.say("last applied entry: %v", err)
	}
	// The journal may have grown since this transaction began.
	if at.seq > last {
		return c.say("entry %d is applied, the journal ends with %d", at.seq, last)
	}
	return nil
}

func (c checker) location(key, value []byte) error {
	l, err := decodeLocation(value)
	if err != nil || len(key) != locationKeySize-1 || !cas.Namespace(key[0]).Valid() || l.IsZero() {
		return c.say("location %x is damaged", key)
	}
	return nil
}

// thread compares a thread's value with its checkpoints.
func (c checker) thread(key, value []byte) error {
	org, rest, ok := cutStr(key)
	id := string(rest)
	t, err := decodeThread(value)
	if !ok || err != nil {
		return c.say("thread %q is damaged", key)
	}
	var want thread
	err = walk(c.ctx, c.txn, threadPrefix(tSequence, org, id), nil, func(_, value []byte) error {
		if gone, err := has(c.txn, deletingKey(org, deletingCheckpoints, string(value))); gone || err != nil {
			return err
		}
		return withCheckpoint(c.txn, org, string(value), func(cp checkpoint) error {
			pub, err := cp.public(string(value))
			if err != nil {
				return err
			}
			if want.head == "" && cp.ready {
				want.head = string(value)
			}
			want.checkpoints++
			want.newBytes += pub.NewBytes
			want.last = max(want.last, cp.seq)
			return nil
		})
	})
	if err == nil {
		err = walk(c.ctx, c.txn, threadPrefix(tArtifact, org, id), nil, func(_, _ []byte) error {
			want.artifacts++
			return nil
		})
	}
	if err != nil {
		return c.say("thread %q: %v", id, err)
	}
	// Its times, and who wrote to it last, may be of a checkpoint that is gone.
	if want.last > t.last {
		return c.say("thread %q was written to by entry %d, it says %d", id, want.last, t.last)
	}
	want.last, want.created, want.updated = t.last, t.created, t.updated
	if t != want {
		return c.say("thread %q says %+v, its checkpoints %+v", id, t, want)
	}
	if got, err := getID(c.txn, activityKey(org, t.last)); err != nil || got != id {
		return c.say("thread %q is not listed by its activity (%q, %v)", id, got, err)
	}
	return nil
}

func (c checker) checkpoint(key, value []byte) error {
	org, rest, ok := cutStr(key)
	id := string(rest)
	cp, err := decodeCheckpoint(value)
	if !ok || err != nil {
		return c.say("checkpoint %q is damaged", key)
	}
	pub, err := cp.public(id)
	if err != nil {
		return c.say("%v", err)
	}
	if pub.ID != id || pub.Thread != cp.thread {
		return c.say("checkpoint %q of thread %q has the record of %q in thread %q", id, cp.thread, pub.ID, pub.Thread)
	}
	if cp.ready && cas.Data.Sum(cp.record) != cp.hash {
		return c.say("checkpoint %q: its record does not hash to %s", id, cp.hash)
	}
	if got, err := getID(c.txn, sequenceKey(org, cp.thread, cp.seq)); err != nil || got != id {
		return c.say("checkpoint %q is not listed in thread %q (%q, %v)", id, cp.thread, got, err)
	}
	gone, err := has(c.txn, deletingKey(org, deletingCheckpoints, id))
	if err != nil {
		return err
	}
	if gone {
		return nil // it is found by its id alone
	}
	if cp.name != "" {
		if got, err := getID(c.txn, nameKey(org, cp.thread, cp.name)); err != nil || got != id {
			return c.say("checkpoint %q is not found by its name %q (%q, %v)", id, cp.name, got, err)
		}
	}
	if k := tailKey(org, id); k != nil {
		if _, err := c.txn.Get(k); err != nil {
			return c.say("checkpoint %q is not found by its last part (%v)", id, err)
		}
	}
	return nil
}

// points checks that an entry's value names a checkpoint for which same holds; by the
// entry it is found, if it is not being deleted.
func (c checker) points(what string, key []byte, org, id string, found bool, same func(checkpoint) bool) error {
	agrees := false
	err := withCheckpoint(c.txn, org, id, func(cp checkpoint) error {
		agrees = same(cp)
		return nil
	})
	if err == nil && found {
		gone, gerr := has(c.txn, deletingKey(org, deletingCheckpoints, id))
		agrees, err = agrees && !gone, gerr
	}
	if err != nil || !agrees {
		return c.say("%s %q leads to checkpoint %q, which does not agree (%v)", what, key, id, err)
	}
	return nil
}

func (c checker) sequence(key, value []byte) error {
	org, rest, _ := cutStr(key)
	th, _, _ := cutStr(rest)
	return c.points("order", key, org, string(value), false, func(cp checkpoint) bool {
		return bytes.Equal(sequenceKey(org, cp.thread, cp.seq)[1:], key) && cp.thread == th
	})
}

func (c checker) name(key, value []byte) error {
	org, rest, _ := cutStr(key)
	th, name, _ := cutStr(rest)
	return c.points("name", key, org, string(value), true, func(cp checkpoint) bool {
		return cp.thread == th && cp.name == string(name)
	})
}

func (c checker) tail(key, _ []byte) error {
	org, rest, _ := cutStr(key)
	tail, id, ok := strings.Cut(string(rest), "\x00")
	return c.points("last part", key, org, id, true, func(checkpoint) bool {
		return ok && strings.HasSuffix(id, "-"+tail)
	})
}

// deleting looks at what is being deleted. A thread in it may be gone: it goes before
// what belonged to it.
func (c checker) deleting(key, value []byte) error {
	org, rest, ok := cutStr(key)
	switch {
	case ok && len(rest) > 1 && rest[0] == deletingCheckpoints:
		return c.points("deletion", key, org, string(rest[1:]), false, func(cp checkpoint) bool { return cp.thread == string(value) })
	case ok && len(rest) > 1 && rest[0] == deletingThread:
		id := string(rest[1:])
		if held, err := has(c.txn, leaseKey(org, id)); held || err != nil {
			return c.say("thread %q is being deleted and has a lease (%v)", id, err)
		}
		return nil
	}
	return c.say("deletion %q is damaged", key)
}

func (c checker) activity(key, value []byte) error {
	org, _, _ := cutStr(key)
	t, err := getThread(c.txn, org, string(value))
	if err != nil || !bytes.Equal(activityKey(org, t.last)[1:], key) {
		return c.say("activity %x leads to thread %q, which does not agree (%v)", key, value, err)
	}
	return nil
}

func (c checker) artifact(key, value []byte) error {
	org, rest, _ := cutStr(key)
	th, id, ok := cutStr(rest)
	var a index.Artifact
	if err := cbor.Unmarshal(value, &a); err != nil || !ok || a.ID != string(id) || a.Validate() != nil {
		return c.say("artifact %q is damaged", key)
	}
	if _, err := getThread(c.txn, org, th); err != nil {
		return c.say("artifact %q of thread %q: %v", a.ID, th, err)
	}
	return nil
}

func (c checker) lease(key, value []byte) error {
	org, rest, ok := cutStr(key)
	th := string(rest)
	h, err := decodeLease(th, value)
	if err != nil || !ok || index.ValidID("thread id", th) != nil || index.ValidID("organization", org) != nil || h.Fence == 0 || h.Token.IsZero() {
		return c.say("lease %q is damaged", key)
	}
	if other, taken := c.fences[h.Fence]; taken {
		return c.say("leases of threads %q and %q have the same fence %d", other, th, h.Fence)
	}
	c.fences[h.Fence] = th
	at := applied{}
	if b, err := getID(c.txn, appliedKey); err == nil {
		at, _ = decodeApplied([]byte(b)) // looked at before
	}
	if h.Fence > at.seq {
		return c.say("the lease of thread %q is of entry %d, %d are applied", th, h.Fence, at.seq)
	}
	return nil
}
