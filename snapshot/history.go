package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// A Revision is a checkpoint in which a path is not what it was in the one before.
type Revision struct {
	// Op is one of Added, Deleted, Modified, Metadata and Type. A directory is Modified
	// when anything below it is another than before.
	Op         tree.Op
	Checkpoint Checkpoint
}

// historyPage is how many checkpoints are asked for at once.
const historyPage = 1000

// History calls fn for the checkpoints of a thread in which a path changed, newest first.
// Of a fork it goes on into the thread that it came from, as long as its origin is there.
// What was renamed is deleted at one path and added at the other; owners do not count. It
// fails with [tree.ErrNotFound] if the path was in none of them.
func (s *Store) History(ctx context.Context, thread, at string, fn func(Revision) error) error {
	h := history{s: s, ctx: ctx, fn: fn, page: historyPage}
	return h.of(thread, at)
}

// of is [Store.History].
func (h *history) of(thread, at string) error {
	s, ctx := h.s, h.ctx
	clean := path.Clean("/" + at)[1:]
	h.path = clean
	if clean != "" && tree.CheckPath(clean) != nil {
		return h.nowhere(thread, at)
	}
	if _, err := s.holder.Thread(ctx, thread); err != nil {
		return err
	}
	seen := map[string]bool{} // an origin comes before what was made of it; whoever says otherwise ends it
	for before := ""; !seen[thread+"\x00"+before]; {
		seen[thread+"\x00"+before] = true
		if err := h.line(thread, before); err != nil {
			return err
		}
		origin := h.newer.checkpoint.Origin
		if origin == nil || h.newer.checkpoint.Reason == string(index.Imported) { // from who knows which store
			break
		}
		cp, err := s.Resolve(ctx, origin.Checkpoint)
		if errors.Is(err, index.ErrCheckpointNotFound) || errors.Is(err, ErrAmbiguous) || err == nil && (cp.ID != origin.Checkpoint || cp.Thread != origin.Thread) {
			break // it was deleted
		}
		if err == nil {
			err = h.next(cp)
		}
		if err != nil {
			return err
		}
		thread, before = cp.Thread, cp.ID
	}
	if err := h.tell(nil); err != nil {
		return err
	}
	if !h.found {
		return h.nowhere(thread, at)
	}
	return nil
}

// history is the state of one History.
type history struct {
	s     *Store
	ctx   context.Context
	path  string
	page  int // how many checkpoints are asked for at once
	fn    func(Revision) error
	newer revision // the last one that was looked at
	found bool     // the path was somewhere
}

// A revision is a path in a checkpoint.
type revision struct {
	checkpoint Checkpoint
	entry      *tree.Entry // nil: it is not in it
}

func (h *history) nowhere(thread, at string) error {
	err := fmt.Errorf("%s was in no checkpoint of thread %s: %w", quoted(at), quoted(thread), tree.ErrNotFound)
	return WithHint(err, "snapfs ls -R %s@latest lists what is in its latest one", quoted(thread))
}

// line goes through a thread's checkpoints, newest first, behind one of them.
func (h *history) line(thread, before string) error {
	for {
		page, err := h.s.holder.Checkpoints(h.ctx, thread, Page{Limit: h.page, Before: before})
		if err != nil {
			return err
		}
		for _, cp := range page {
			if cp.Status != string(index.Ready) {
				continue
			}
			if err := h.next(cp); err != nil {
				return err
			}
		}
		if len(page) < h.page {
			return nil
		}
		before = page[len(page)-1].ID
	}
}

// next looks at the checkpoint before the last one.
func (h *history) next(cp Checkpoint) error {
	if h.newer.checkpoint.Tree == cp.Tree {
		h.newer.checkpoint = cp // the change is in the first of those that are alike
		return nil
	}
	e, err := h.find(cp)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	if err := h.tell(e); err != nil {
		return err
	}
	h.newer = revision{cp, e}
	return nil
}

// find returns the entry of the path in a checkpoint; nil: there is none.
func (h *history) find(cp Checkpoint) (*tree.Entry, error) {
	root, err := cas.ParseHash(cp.Tree)
	if err != nil {
		return nil, err
	}
	e, err := h.s.trees.Find(h.ctx, root, h.path)
	if errors.Is(err, tree.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", quoted(h.path), err)
	}
	h.found = true
	return &e, nil
}

// tell reports the last checkpoint that was looked at if the path is another in it than
// before.
func (h *history) tell(before *tree.Entry) error {
	op, after := tree.Op(0), h.newer.entry
	switch {
	case before == nil && after == nil:
	case before == nil:
		op = tree.Added
	case after == nil:
		op = tree.Deleted
	case before.Kind != after.Kind:
		op = tree.Type
	case before.Hash != after.Hash || before.Size != after.Size || before.Target != after.Target:
		op = tree.Modified
	case metadataDiffers(before, after, DiffOptions{}):
		op = tree.Metadata
	}
	if op == 0 || h.newer.checkpoint.ID == "" {
		return nil
	}
	return h.fn(Revision{Op: op, Checkpoint: h.newer.checkpoint})
}
