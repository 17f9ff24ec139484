// Package memory keeps the index in the memory of the process: for tests, and
// for stores that need not outlive it.
//
// It does what index/badger does, in the same order and with the same errors,
// without a journal: a change is committed when it is in the maps. So nothing
// is lost half, no method fails with [index.ErrCommitted], and every checkpoint
// is ready until it is deleted.
package memory

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Options are for [New] and [Open].
type Options struct {
	// Records reads one object of the records namespace; it fails with
	// [cas.ErrNotFound]. Publish calls it, whether or not the index knows a
	// location of the object. It may call the index. Its bytes are verified here. It
	// must be set.
	Records func(ctx context.Context, record cas.Hash) ([]byte, error)
	// Now tells when leases expire; nil: [time.Now].
	Now func() time.Time
}

// A State is what an index knows. It outlives the handle, as a directory does.
type State struct {
	mu   sync.Mutex // guards all below, and the fields of the open handle
	open bool       // a handle has it

	seq         uint64 // number of the last change
	places      map[cas.Key]cas.Location
	threads     map[key]*thread
	checkpoints map[key]*index.Checkpoint // each is in its thread's order, too
	published   map[uint64]published      // by number of the change
	deleting    map[key]bool              // checkpoints whose own deletion is decided; they have no name
	leases      map[key]index.HeldLease   // by thread: the last one, unless it was released
}

// published is a checkpoint that was published, whatever became of it.
type published struct {
	org, id string
	record  cas.Hash
}

// A key is the id of a thread or a checkpoint within an organization.
type key struct{ org, id string }

// A thread is one thread and what belongs to it.
type thread struct {
	index.Thread
	deleting  bool                // its deletion is decided
	last      uint64              // number of the last change that counts as activity
	order     []*index.Checkpoint // by Seq, oldest first
	artifacts []index.Artifact    // by id
}

// NewState returns the state of an empty index.
func NewState() *State {
	return &State{
		places: map[cas.Key]cas.Location{}, threads: map[key]*thread{}, checkpoints: map[key]*index.Checkpoint{},
		published: map[uint64]published{}, deleting: map[key]bool{}, leases: map[key]index.HeldLease{},
	}
}

// Index implements [index.Index].
type Index struct {
	s      *State
	opt    Options
	idle   sync.Cond // calls fell to 0
	calls  int       // under way
	closed bool
}

var _ index.Index = (*Index)(nil)

// New makes an empty index that is gone when it is closed.
func New(opt Options) *Index {
	ix, err := Open(NewState(), opt)
	if err != nil {
		panic(err) // nobody else has the state
	}
	return ix
}

// Open opens the index whose state is s. It fails with [index.ErrInUse] while
// another handle has it open.
func Open(s *State, opt Options) (*Index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return nil, fmt.Errorf("open index in memory: %w", index.ErrInUse)
	}
	s.open = true
	if opt.Now == nil {
		opt.Now = time.Now
	}
	ix := &Index{s: s, opt: opt}
	ix.idle.L = &s.mu
	return ix, nil
}

// enter counts a call in, unless the index is closed.
func (ix *Index) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ix.s.mu.Lock()
	defer ix.s.mu.Unlock()
	if ix.closed {
		return index.ErrClosed
	}
	ix.calls++
	return nil
}

func (ix *Index) leave() {
	ix.s.mu.Lock()
	defer ix.s.mu.Unlock()
	if ix.calls--; ix.calls == 0 {
		ix.idle.Broadcast()
	}
}

// do runs a whole call with the lock held.
func (ix *Index) do(ctx context.Context, fn func(s *State) error) error {
	if err := ix.enter(ctx); err != nil {
		return err
	}
	defer ix.leave()
	ix.s.mu.Lock()
	defer ix.s.mu.Unlock()
	return fn(ix.s)
}

// list runs a listing: snapshot copies what is to be listed, with the lock held;
// the consumer gets it without.
func list[T any](ctx context.Context, ix *Index, snapshot func(s *State) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := ix.enter(ctx); err != nil {
			yield(none, err)
			return
		}
		defer ix.leave()
		ix.s.mu.Lock()
		all, err := snapshot(ix.s)
		ix.s.mu.Unlock()
		for _, v := range all {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(v, nil) {
				return
			}
		}
		if err != nil {
			yield(none, err)
		}
	}
}

// Close implements [index.Index]. The state can be opened again.
func (ix *Index) Close() error {
	ix.s.mu.Lock()
	defer ix.s.mu.Unlock()
	if ix.closed {
		return nil
	}
	ix.closed = true
	for ix.calls > 0 {
		ix.idle.Wait()
	}
	ix.s.open = false
	return nil
}
