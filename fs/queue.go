package fs

import (
	"sync"

	"github.com/snapfs/snapfs/snapshot"
)

// A queue brings events to the kernel one after the other and in their order.
// Its goroutine lives as long as there is something to do.
type queue struct {
	mu      sync.Mutex
	pending []queued
	running bool
}

type queued struct {
	event snapshot.Event
	done  chan struct{}
}

// put adds an event and returns a channel that is closed when apply has returned
// from it.
func (q *queue) put(ev snapshot.Event, apply func(snapshot.Event)) <-chan struct{} {
	e := queued{event: ev, done: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, e)
	if !q.running {
		q.running = true
		go q.run(apply)
	}
	return e.done
}

func (q *queue) run(apply func(snapshot.Event)) {
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		e := q.pending[0]
		q.pending = q.pending[1:]
		q.mu.Unlock()
		apply(e.event)
		close(e.done)
	}
}
