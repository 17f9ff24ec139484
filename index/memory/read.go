package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/cas"

	"github.com/snapfs/snapfs/index"
)

func (s *State) thread(org, id string) (*thread, error) {
	if t := s.threads[key{org, id}]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("thread %q: %w", id, index.ErrThreadNotFound)
}

func (s *State) checkpoint(org, id string) (*index.Checkpoint, error) {
	if cp := s.checkpoints[key{org, id}]; cp != nil {
		return cp, nil
	}
	return nil, fmt.Errorf("checkpoint %q: %w", id, index.ErrCheckpointNotFound)
}

// clone makes a copy that the caller may change: all that a record points to is
// copied, too.
func clone(cp *index.Checkpoint) index.Checkpoint {
	out := *cp
	if cp.Origin != nil {
		origin := *cp.Origin
		out.Origin = &origin
	}
	out.Labels = maps.Clone(cp.Labels)
	out.Extra = maps.Clone(cp.Extra)
	for k, v := range out.Extra {
		out.Extra[k] = bytes.Clone(v)
	}
	return out
}

// Checkpoint implements [index.Index].
func (ix *Index) Checkpoint(ctx context.Context, org, id string) (out index.Checkpoint, err error) {
	err = ix.do(ctx, func(s *State) error {
		cp, err := s.checkpoint(org, id)
		if err == nil {
			out = s.public(org, cp)
		}
		return err
	})
	return out, err
}

// Named implements [index.Index].
func (ix *Index) Named(ctx context.Context, org, thread, name string) (out index.Checkpoint, err error) {
	err = ix.do(ctx, func(s *State) error {
		t, err := s.liveThread(org, thread)
		if err != nil {
			return err
		}
		cp := t.named(name)
		if cp == nil {
			return fmt.Errorf("name %q in thread %q: %w", name, thread, index.ErrCheckpointNotFound)
		}
		out = clone(cp)
		return nil
	})
	return out, err
}

// Thread implements [index.Index].
func (ix *Index) Thread(ctx context.Context, org, id string) (out index.Thread, err error) {
	err = ix.do(ctx, func(s *State) error {
		t, err := s.liveThread(org, id)
		if err == nil {
			out = t.Thread
		}
		return err
	})
	return out, err
}

// Artifacts implements [index.Index].
func (ix *Index) Artifacts(ctx context.Context, org, thread string) (all []index.Artifact, err error) {
	err = ix.do(ctx, func(s *State) error {
		t, err := s.liveThread(org, thread)
		if err == nil {
			all = append(all, t.artifacts...)
		}
		return err
	})
	return all, err
}

// cut returns what a page may have.
func cut[T any](all []T, limit int) []T {
	if limit > 0 && len(all) > limit {
		return all[:limit]
	}
	return all
}

// Threads implements [index.Index].
func (ix *Index) Threads(ctx context.Context, org string, p index.Page) iter.Seq2[index.Thread, error] {
	return list(ctx, ix, func(s *State) ([]index.Thread, error) {
		before := s.seq + 1
		if p.Before != "" {
			t, err := s.liveThread(org, p.Before)
			if err != nil {
				return nil, err
			}
			before = t.last
		}
		var found []*thread
		for k, t := range s.threads {
			if k.org == org && t.last < before && !t.deleting {
				found = append(found, t)
			}
		}
		slices.SortFunc(found, func(a, b *thread) int { return cmp.Compare(b.last, a.last) })
		var page []index.Thread
		for _, t := range cut(found, p.Limit) {
			page = append(page, t.Thread)
		}
		return page, nil
	})
}

// Checkpoints implements [index.Index].
func (ix *Index) Checkpoints(ctx context.Context, org, thread string, p index.Page) iter.Seq2[index.Checkpoint, error] {
	return list(ctx, ix, func(s *State) ([]index.Checkpoint, error) {
		t, err := s.thread(org, thread)
		if err == nil && !p.Deleting {
			_, err = s.liveThread(org, thread)
		}
		if err != nil {
			return nil, err
		}
		older := t.order
		if p.Before != "" {
			cp, err := s.checkpoint(org, p.Before)
			if err != nil {
				return nil, err
			}
			if cp.Thread != thread {
				return nil, fmt.Errorf("checkpoint %q in thread %q: %w", p.Before, thread, index.ErrCheckpointNotFound)
			}
			older = older[:t.findSeq(cp.Seq)]
		}
		var page []index.Checkpoint
		for _, cp := range slices.Backward(older) {
			if p.Limit > 0 && len(page) == p.Limit {
				break
			}
			if p.Deleting || !s.deleting[key{org, cp.ID}] {
				page = append(page, s.public(org, cp))
			}
		}
		return page, nil
	})
}

// ByPrefix implements [index.Index].
func (ix *Index) ByPrefix(ctx context.Context, org, prefix string, limit int) (page []index.Checkpoint, err error) {
	err = ix.do(ctx, func(s *State) error {
		var found []*index.Checkpoint
		for k, cp := range s.checkpoints {
			dash := strings.LastIndexByte(k.id, '-')
			if k.org == org && !s.isDeleting(org, cp) && (strings.HasPrefix(k.id, prefix) || dash >= 0 && strings.HasPrefix(k.id[dash+1:], prefix)) {
				found = append(found, cp)
			}
		}
		slices.SortFunc(found, func(a, b *index.Checkpoint) int { return strings.Compare(a.ID, b.ID) })
		for _, cp := range cut(found, limit) {
			page = append(page, clone(cp))
		}
		return nil
	})
	return page, err
}

// Organizations implements [index.Index]. They come sorted.
func (ix *Index) Organizations(ctx context.Context) (orgs []string, err error) {
	err = ix.do(ctx, func(s *State) error {
		for k := range s.threads {
			orgs = append(orgs, k.org)
		}
		slices.Sort(orgs)
		orgs = slices.Compact(orgs)
		return nil
	})
	return orgs, err
}

// Published implements [index.Index].
func (ix *Index) Published(ctx context.Context, org string, seq uint64) (id string, record cas.Hash, err error) {
	if err := ix.enter(ctx); err != nil {
		return "", record, err
	}
	defer ix.leave()
	ix.s.mu.Lock()
	defer ix.s.mu.Unlock()
	p, ok := ix.s.published[seq]
	if !ok || p.org != org {
		return "", record, fmt.Errorf("change %d publishes none: %w", seq, index.ErrCheckpointNotFound)
	}
	return p.id, p.record, nil
}
