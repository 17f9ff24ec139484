// Package tasks shares out work that finds more work while it is done: the walk of
// a tree.
package tasks

import "sync"

// A Stack is what is left to do. The last task put is the first to be taken, so that
// a walk goes deep before it goes wide, and has few directories open at a time.
type Stack[T any] struct {
	mu      sync.Mutex
	changed sync.Cond
	stack   []T
	open    int // in the stack, or taken and not done
	waiting int // who wait for a task
}

// New returns a stack with one task.
func New[T any](first T) *Stack[T] {
	s := &Stack[T]{stack: []T{first}, open: 1}
	s.changed.L = &s.mu
	return s
}

// Put adds tasks; the last of them is the next to be taken. Only who has a task that
// is not done may add more.
func (s *Stack[T]) Put(more ...T) {
	if len(more) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stack = append(s.stack, more...)
	s.open += len(more)
	for range min(len(more), s.waiting) {
		s.changed.Signal()
	}
}

// Take returns the next task, or false. With wait it is false when all are done;
// without, when there is none at the moment.
func (s *Stack[T]) Take(wait bool) (next T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.stack) == 0 {
		if s.open == 0 || !wait {
			return next, false
		}
		s.waiting++
		s.changed.Wait()
		s.waiting--
	}
	last := len(s.stack) - 1
	next, s.stack[last] = s.stack[last], next
	s.stack = s.stack[:last]
	return next, true
}

// Each does tasks until all are done.
func (s *Stack[T]) Each(do func(T)) {
	for {
		t, ok := s.Take(true)
		if !ok {
			return
		}
		do(t)
		s.Done()
	}
}

// Done says that a task which was taken is over.
func (s *Stack[T]) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 {
		s.changed.Broadcast()
	}
}
