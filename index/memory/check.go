package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Check implements [index.Index].
func (ix *Index) Check(ctx context.Context) iter.Seq2[string, error] {
	return list(ctx, ix, func(s *State) ([]string, error) {
		var c checker
		for k, l := range s.places {
			c.want(k.NS.Valid() && !l.IsZero(), "location of %s is damaged", k)
		}
		ordered := 0
		for k, t := range s.threads {
			c.thread(s, k, t)
			ordered += len(t.order)
		}
		// The threads' checkpoints are all found by their ids (see thread), so
		// equal numbers mean that there are no others.
		c.want(ordered == len(s.checkpoints), "%d checkpoints, their threads list %d", len(s.checkpoints), ordered)
		for k := range s.deleting {
			c.want(s.checkpoints[k] != nil && s.checkpoints[k].Name == "", "checkpoint %q is being deleted, and is not there or has a name", k.id)
		}
		fences := map[uint64]bool{}
		for k, l := range s.leases {
			c.want(l.Fence > 0 && l.Fence <= s.seq && !fences[l.Fence] && l.Thread == k.id, "the lease of thread %q has the fence %d of %d", k.id, l.Fence, s.seq)
			fences[l.Fence] = true
		}
		slices.Sort(c.findings)
		return c.findings, nil
	})
}

// checker gathers what is wrong.
type checker struct{ findings []string }

func (c *checker) want(ok bool, format string, args ...any) {
	if !ok {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

// thread compares a thread with its checkpoints and artifacts.
func (c *checker) thread(s *State, k key, t *thread) {
	want := index.Thread{
		ID: k.id, Head: s.newest(k.org, t), Artifacts: len(t.artifacts), Created: t.Created, Updated: t.Updated,
	}
	names := map[string]bool{}
	seq := uint64(0)
	for _, cp := range t.order {
		if !s.deleting[key{k.org, cp.ID}] {
			want.Checkpoints++
			want.NewBytes += cp.NewBytes
		}
		c.want(s.checkpoints[key{k.org, cp.ID}] == cp, "checkpoint %q of thread %q is not found by its id", cp.ID, k.id)
		c.want(cp.Thread == k.id, "checkpoint %q of thread %q is listed in thread %q", cp.ID, cp.Thread, k.id)
		c.want(cp.Seq > seq, "checkpoint %q of thread %q is out of order", cp.ID, k.id)
		c.want(cp.Name == "" || !names[cp.Name], "thread %q has two checkpoints named %q", k.id, cp.Name)
		c.want(cp.Status == index.Ready, "checkpoint %q is not ready", cp.ID)
		data, err := index.Encode(cp.Record)
		c.want(err == nil && cas.Data.Sum(data) == cp.RecordHash, "checkpoint %q: its record does not hash to %s", cp.ID, cp.RecordHash)
		names[cp.Name], seq = true, cp.Seq
	}
	c.want(t.Thread == want, "thread %q says %+v, its checkpoints %+v", k.id, t.Thread, want)
	c.want(seq <= t.last && t.last <= s.seq, "thread %q was written to last by change %d of %d, its newest checkpoint by %d", k.id, t.last, s.seq, seq)
	for i, a := range t.artifacts {
		c.want(a.Validate() == nil, "artifact %q of thread %q is damaged", a.ID, k.id)
		c.want(i == 0 || t.artifacts[i-1].ID < a.ID, "artifact %q of thread %q is out of order", a.ID, k.id)
	}
}
