package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/index"
)

// A deletion has two steps. When it is decided, by one durable entry of the journal, what
// is deleted can no longer be found. Then mounts are told, and it is removed. What was
// decided and not done when a process ends is done by the next one that opens the store.

// DeleteOptions are for deletions.
type DeleteOptions struct {
	NoWait bool // return when it is decided; whoever holds the store does the rest
}

// Delete removes a checkpoint and returns it as it was. Its thread's head moves
// to the newest one left; a thread without checkpoints stays. [Store.GC] frees
// the space. Of one whose deletion failed it is tried again.
func (s *Store) Delete(ctx context.Context, ref string) (Checkpoint, error) {
	cp, _, err := s.BeginDelete(ctx, ref, DeleteOptions{})
	return cp, err
}

// BeginDelete is Delete, with options. It reports whether the deletion is done.
func (s *Store) BeginDelete(ctx context.Context, ref string, opt DeleteOptions) (cp Checkpoint, done bool, err error) {
	if cp, err = s.holder.Resolve(ctx, ref); err == nil {
		done, err = s.holder.Delete(ctx, cp.ID, opt)
	}
	return cp, done, err
}

// DeleteThread removes a thread with all of its checkpoints and artifacts.
func (s *Store) DeleteThread(ctx context.Context, id string) error {
	_, err := s.BeginDeleteThread(ctx, id, DeleteOptions{})
	return err
}

// BeginDeleteThread is DeleteThread, with options. It reports whether the deletion is done.
func (s *Store) BeginDeleteThread(ctx context.Context, id string, opt DeleteOptions) (done bool, err error) {
	return s.holder.DeleteThread(ctx, id, opt)
}

// Deleting reports whether a checkpoint is being deleted.
func (c Checkpoint) Deleting() bool {
	return c.Status == string(index.Deleting) || c.Status == string(index.DeleteFailed)
}

// A deletion is a checkpoint, or a thread, whose deletion is decided.
type deletion struct {
	thread, checkpoint string // no checkpoint: the whole thread
}

// String names it in messages.
func (d deletion) String() string {
	if d.checkpoint == "" {
		return "thread " + quoted(d.thread)
	}
	return "checkpoint " + quoted(d.checkpoint)
}

// again is what a user types to have it tried again.
func (d deletion) again() string {
	if d.checkpoint == "" {
		return "snapfs delete --thread " + quoted(d.thread)
	}
	return "snapfs delete " + quoted(d.checkpoint)
}

// deletionRun is one try to end a deletion.
type deletionRun struct {
	done chan struct{}
	err  error // once it is done
}

// deletions are those that this process works on.
type deletions struct {
	running map[deletion]*deletionRun
	failed  map[deletion]string // why the last try failed
}

func newDeletions() deletions {
	return deletions{running: map[deletion]*deletionRun{}, failed: map[deletion]string{}}
}

// Delete implements [Holder].
func (h *localHolder) Delete(ctx context.Context, id string, opt DeleteOptions) (bool, error) {
	cp, err := h.index.BeginDelete(ctx, defaultOrg, id)
	if err != nil {
		return false, err
	}
	d := deletion{thread: cp.Thread, checkpoint: id}
	if cp.Status == index.Deleting {
		if _, err := h.index.Thread(ctx, defaultOrg, cp.Thread); errors.Is(err, index.ErrDeleting) {
			d.checkpoint = "" // it goes with its thread
		}
	}
	return h.end(ctx, d, cp.Name, opt)
}

// DeleteThread implements [Holder].
func (h *localHolder) DeleteThread(ctx context.Context, id string, opt DeleteOptions) (bool, error) {
	if err := h.index.BeginDeleteThread(ctx, defaultOrg, id); err != nil {
		return false, err
	}
	return h.end(ctx, deletion{thread: id}, "", opt)
}

// end ends a deletion that is decided, and waits for that if it is wanted. name is the one
// that the checkpoint had.
func (h *localHolder) end(ctx context.Context, d deletion, name string, opt DeleteOptions) (done bool, err error) {
	run, err := h.run(d, name)
	if err != nil {
		return false, err
	}
	if opt.NoWait {
		select {
		case <-run.done:
		default:
			return false, nil
		}
	}
	select {
	case <-run.done:
		return run.err == nil, run.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// run begins to end a deletion, unless somebody does so already.
func (h *localHolder) run(d deletion, name string) (*deletionRun, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("delete %s: %w", d, index.ErrClosed)
	}
	if run := h.deletions.running[d]; run != nil {
		return run, nil
	}
	run := &deletionRun{done: make(chan struct{})}
	h.deletions.running[d] = run
	h.ending.Go(func() {
		run.err = h.complete(d, name)
		h.mu.Lock()
		delete(h.deletions.running, d)
		h.mu.Unlock()
		close(run.done)
	})
	return run, nil
}

// complete ends one deletion: whoever asked for it may go away meanwhile.
func (h *localHolder) complete(d deletion, name string) error {
	if d.checkpoint != "" {
		return h.completeSome(d.thread, map[string]string{d.checkpoint: name})
	}
	h.notify(Event{Kind: ThreadDeleted, Thread: d.thread})
	err := h.at("delete")
	if err == nil {
		err = h.index.DeleteThread(context.Background(), defaultOrg, d.thread)
	}
	if errors.Is(err, index.ErrThreadNotFound) {
		err = nil
	}
	return h.settle(err, d)
}

// completeSome ends the deletions of some checkpoints of a thread, given with the names
// that they had.
func (h *localHolder) completeSome(thread string, names map[string]string) error {
	var ids []string
	var all []deletion
	for id, name := range names {
		h.notify(Event{Kind: Deleted, Thread: thread, Checkpoint: id, OldName: name})
		ids = append(ids, id)
		all = append(all, deletion{thread, id})
	}
	slices.Sort(ids)
	err := h.at("delete")
	if err == nil {
		err = h.index.EndDelete(context.Background(), defaultOrg, ids)
	}
	return h.settle(err, all...)
}

// settle notes how a try to end deletions went.
func (h *localHolder) settle(err error, all ...deletion) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range all {
		delete(h.deletions.failed, d)
		if err != nil {
			h.deletions.failed[d] = err.Error()
		}
	}
	if err == nil {
		return nil
	}
	h.log.Warn("a deletion is decided, but not done", "what", all[0].String(), "count", len(all), "error", err)
	err = fmt.Errorf("%s is gone from mounts and listings, but could not be removed: %w", all[0], err)
	return WithHint(err, "it is tried again when the store is opened next, and by %s", all[0].again())
}

// resumeDeletions ends what was decided and not done: when the store is opened. What
// fails is noted.
func (h *localHolder) resumeDeletions(ctx context.Context) {
	pending, err := h.index.Deletions(ctx)
	if err != nil {
		h.log.Warn("cannot look for interrupted deletions", "error", err)
		return
	}
	var some []string
	for i, d := range pending {
		if ctx.Err() != nil {
			return
		}
		if d.Org != defaultOrg {
			continue
		}
		if d.Checkpoint == "" {
			_ = h.complete(deletion{thread: d.Thread}, "")
			continue
		}
		some = append(some, d.Checkpoint)
		if next := i + 1; len(some) == index.MaxForget || next == len(pending) || pending[next].Thread != d.Thread {
			names := map[string]string{}
			for _, id := range some {
				names[id] = ""
			}
			_ = h.completeSome(d.Thread, names)
			some = nil
		}
	}
}

// doc is newCheckpoint, with what this process knows of deletions.
func (h *localHolder) doc(cp index.Checkpoint) Checkpoint {
	doc := newCheckpoint(cp)
	if cp.Status != index.Deleting {
		return doc
	}
	doc.StatusMessage = "it is gone from mounts and references, and is being removed"
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range []deletion{{cp.Thread, cp.ID}, {thread: cp.Thread}} {
		if why, failed := h.deletions.failed[d]; failed && h.deletions.running[d] == nil {
			doc.Status, doc.StatusMessage = string(index.DeleteFailed), why
		}
	}
	return doc
}
