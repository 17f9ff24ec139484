package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/index"
)

// touch returns the thread that the next change writes to, made new if it is
// not there, as the one written to last.
func (s *State) touch(org, id string) *thread {
	now := time.Now().UTC().Round(0) // Round: without the monotonic clock
	t := s.threads[key{org, id}]
	if t == nil {
		t = &thread{Thread: index.Thread{ID: id, Created: now}}
		s.threads[key{org, id}] = t
	}
	s.seq++
	t.last, t.Updated = s.seq, now
	return t
}

// findArtifact finds an artifact's position in its thread, or where it would be.
func (t *thread) findArtifact(id string) (int, bool) {
	return slices.BinarySearchFunc(t.artifacts, id, func(a index.Artifact, id string) int { return strings.Compare(a.ID, id) })
}

func (t *thread) addArtifact(a index.Artifact) {
	i, _ := t.findArtifact(a.ID)
	t.artifacts = slices.Insert(t.artifacts, i, a)
	t.Artifacts++
}

// findSeq finds a checkpoint's position in its thread by its number.
func (t *thread) findSeq(seq uint64) int {
	i, _ := slices.BinarySearchFunc(t.order, seq, func(cp *index.Checkpoint, seq uint64) int { return cmp.Compare(cp.Seq, seq) })
	return i
}

// named returns the thread's checkpoint of that name; nil: there is none, or the
// name is empty.
func (t *thread) named(name string) *index.Checkpoint {
	if name == "" {
		return nil
	}
	i := slices.IndexFunc(t.order, func(cp *index.Checkpoint) bool { return cp.Name == name })
	if i < 0 {
		return nil
	}
	return t.order[i]
}

// newest returns the id that must be a thread's head; "": none.
func (s *State) newest(org string, t *thread) string {
	for _, cp := range slices.Backward(t.order) {
		if !s.deleting[key{org, cp.ID}] {
			return cp.ID
		}
	}
	return ""
}

// nameIsFree fails with [index.ErrDuplicateName] when the thread has the name.
func (t *thread) nameIsFree(name string) error {
	if t.named(name) != nil {
		return fmt.Errorf("name %q in thread %q: %w", name, t.ID, index.ErrDuplicateName)
	}
	return nil
}

// Rename implements [index.Index].
func (ix *Index) Rename(ctx context.Context, org, id, name string) (out index.Checkpoint, err error) {
	if name != "" {
		if err := index.ValidName(name); err != nil {
			return out, fmt.Errorf("rename: %w", err)
		}
	}
	err = ix.do(ctx, func(s *State) error {
		cp, err := s.checkpoint(org, id)
		if err != nil {
			return err
		}
		if s.isDeleting(org, cp) {
			return index.ErrDeleting
		}
		if cp.Name != name {
			if err := s.threads[key{org, cp.Thread}].nameIsFree(name); err != nil {
				return err
			}
			s.seq++
			cp.Name = name
		}
		out = clone(cp)
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("rename checkpoint %q: %w", id, err)
	}
	return out, nil
}

// Delete implements [index.Index].
func (ix *Index) Delete(ctx context.Context, org, id string) (out index.Checkpoint, left index.Thread, err error) {
	err = ix.do(ctx, func(s *State) error {
		cp, err := s.checkpoint(org, id)
		if err != nil {
			return err
		}
		t := s.threads[key{org, cp.Thread}]
		s.seq++
		out = s.public(org, cp)
		s.leave(org, cp)
		s.remove(org, cp)
		left = t.Thread
		return nil
	})
	if err != nil {
		return out, left, fmt.Errorf("delete checkpoint %q: %w", id, err)
	}
	return out, left, nil
}

// DeleteThread implements [index.Index].
func (ix *Index) DeleteThread(ctx context.Context, org, id string) error {
	err := ix.do(ctx, func(s *State) error {
		t, err := s.thread(org, id)
		if err != nil {
			return err
		}
		s.seq++
		for _, cp := range t.order {
			delete(s.checkpoints, key{org, cp.ID})
			delete(s.deleting, key{org, cp.ID})
		}
		delete(s.threads, key{org, id})
		delete(s.leases, key{org, id})
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete thread %q: %w", id, err)
	}
	return nil
}

// AddArtifact implements [index.Index].
func (ix *Index) AddArtifact(ctx context.Context, org, thread string, a index.Artifact) error {
	err := errors.Join(index.ValidID("organization", org), index.ValidID("thread id", thread), a.Validate())
	if err == nil {
		err = ix.do(ctx, func(s *State) error {
			if t := s.threads[key{org, thread}]; t != nil {
				if t.deleting {
					return fmt.Errorf("thread %q: %w", thread, index.ErrDeleting)
				}
				if _, taken := t.findArtifact(a.ID); taken {
					return fmt.Errorf("it is in thread %q already: %w", thread, index.ErrDuplicateID)
				}
			}
			s.touch(org, thread).addArtifact(a)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("add artifact %q: %w", a.ID, err)
	}
	return nil
}

// RemoveArtifact implements [index.Index].
func (ix *Index) RemoveArtifact(ctx context.Context, org, thread, id string) error {
	err := ix.do(ctx, func(s *State) error {
		t, err := s.liveThread(org, thread)
		if err != nil {
			return err
		}
		i, ok := t.findArtifact(id)
		if !ok {
			return fmt.Errorf("thread %q: %w", thread, index.ErrArtifactNotFound)
		}
		s.seq++
		t.artifacts = slices.Delete(t.artifacts, i, i+1)
		t.Artifacts--
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove artifact %q: %w", id, err)
	}
	return nil
}
