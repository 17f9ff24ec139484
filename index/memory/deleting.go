package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/index"
)

// liveThread is thread for everything but a deletion.
func (s *State) liveThread(org, id string) (*thread, error) {
	t, err := s.thread(org, id)
	if err == nil && t.deleting {
		return nil, fmt.Errorf("thread %q: %w: %w", id, index.ErrThreadNotFound, index.ErrDeleting)
	}
	return t, err
}

// isDeleting reports whether a checkpoint is being deleted, by itself or with its thread.
func (s *State) isDeleting(org string, cp *index.Checkpoint) bool {
	return s.deleting[key{org, cp.ID}] || s.threads[key{org, cp.Thread}].deleting
}

// public is a copy of a checkpoint as it is seen.
func (s *State) public(org string, cp *index.Checkpoint) index.Checkpoint {
	out := clone(cp)
	if s.isDeleting(org, cp) {
		out.Name, out.Status = "", index.Deleting
	}
	return out
}

// leave takes a checkpoint out of what its thread says of itself, once.
func (s *State) leave(org string, cp *index.Checkpoint) {
	k := key{org, cp.ID}
	if s.deleting[k] {
		return
	}
	t := s.threads[key{org, cp.Thread}]
	s.deleting[k] = true
	cp.Name = ""
	t.Checkpoints--
	t.NewBytes -= cp.NewBytes
	t.Head = s.newest(org, t)
}

// remove takes a checkpoint away that has left its thread.
func (s *State) remove(org string, cp *index.Checkpoint) {
	t := s.threads[key{org, cp.Thread}]
	i := t.findSeq(cp.Seq)
	t.order = slices.Delete(t.order, i, i+1)
	delete(s.checkpoints, key{org, cp.ID})
	delete(s.deleting, key{org, cp.ID})
}

// BeginDelete implements [index.Index].
func (ix *Index) BeginDelete(ctx context.Context, org, id string) (out index.Checkpoint, err error) {
	err = ix.do(ctx, func(s *State) error {
		cp, err := s.checkpoint(org, id)
		if err != nil {
			return err
		}
		if out = s.public(org, cp); out.Status != index.Deleting {
			s.seq++
			s.leave(org, cp)
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("delete checkpoint %q: %w", id, err)
	}
	return out, nil
}

// BeginDeleteThread implements [index.Index].
func (ix *Index) BeginDeleteThread(ctx context.Context, org, id string) error {
	err := ix.do(ctx, func(s *State) error {
		t, err := s.thread(org, id)
		if err == nil && !t.deleting {
			s.seq++
			t.deleting = true
			delete(s.leases, key{org, id})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete thread %q: %w", id, err)
	}
	return nil
}

// BeginForget implements [index.Index].
func (ix *Index) BeginForget(ctx context.Context, org, thread string, ids []string) (accepted []string, err error) {
	if err = index.ValidForget(ids); err == nil {
		err = ix.do(ctx, func(s *State) error {
			t, err := s.liveThread(org, thread)
			if err != nil {
				return err
			}
			head := t.Head
			for _, id := range ids {
				cp := s.checkpoints[key{org, id}]
				if cp != nil && cp.Thread == thread && !s.isDeleting(org, cp) && cp.Name == "" && id != head {
					s.leave(org, cp)
					accepted = append(accepted, id)
				}
			}
			if len(accepted) > 0 {
				s.seq++
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("forget checkpoints of thread %q: %w", thread, err)
	}
	return accepted, nil
}

// EndDelete implements [index.Index].
func (ix *Index) EndDelete(ctx context.Context, org string, ids []string) error {
	err := index.ValidForget(ids)
	if err == nil {
		err = ix.do(ctx, func(s *State) error {
			for _, id := range ids {
				if s.deleting[key{org, id}] {
					s.seq++
					s.remove(org, s.checkpoints[key{org, id}])
				}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("delete %d checkpoints: %w", len(ids), err)
	}
	return nil
}

// Deletions implements [index.Index].
func (ix *Index) Deletions(ctx context.Context) (all []index.Deletion, err error) {
	err = ix.do(ctx, func(s *State) error {
		for k, t := range s.threads {
			if t.deleting {
				all = append(all, index.Deletion{Org: k.org, Thread: k.id})
			}
		}
		for k := range s.deleting {
			all = append(all, index.Deletion{Org: k.org, Thread: s.checkpoints[k].Thread, Checkpoint: k.id})
		}
		slices.SortFunc(all, func(a, b index.Deletion) int {
			if a.Checkpoint == "" || b.Checkpoint == "" {
				if c := cmp.Compare(a.Checkpoint, b.Checkpoint); c != 0 {
					return c
				}
				return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.Thread, b.Thread))
			}
			return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.Checkpoint, b.Checkpoint))
		})
		return nil
	})
	return all, err
}
