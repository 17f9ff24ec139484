package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

var errWriterClosed = errors.New("writer is closed")

// A writer gathers objects until Flush moves them into the store.
//
// Lock order: writer.mu, then Store.mu.
type writer struct {
	store *Store

	mu      sync.Mutex
	pending map[cas.Key]object // put and not flushed
	stats   cas.WriterStats
	closed  bool
}

// Put implements [cas.Writer]. When it fails, it took none of the objects, and
// the writer can go on.
func (w *writer) Put(ctx context.Context, objs ...cas.Object) error {
	for _, o := range objs {
		switch {
		case len(o.Data) > cas.MaxObject:
			return fmt.Errorf("%s: object of %d bytes: %w", o.Key, len(o.Data), cas.ErrTooLarge)
		case !o.Key.NS.Valid() || o.Kind != cas.Data && o.Kind != cas.List:
			return fmt.Errorf("%s: object of kind %d: there is no such namespace or kind", o.Key, o.Kind)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(ctx); err != nil {
		return err
	}
	for _, o := range objs {
		if _, put := w.pending[o.Key]; put || w.store.has(o.Key) {
			continue
		}
		w.pending[o.Key] = object{kind: o.Kind, data: bytes.Clone(o.Data)}
		w.stats.Objects++
		w.stats.Plain += int64(len(o.Data))
		w.stats.Stored += int64(len(o.Data))
	}
	return nil
}

func (s *Store) has(key cas.Key) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.objects[key]
	return ok
}

func (w *writer) usable(ctx context.Context) error {
	if w.closed {
		return errWriterClosed
	}
	return ctx.Err()
}

// Flush implements [cas.Writer]. All of the batch becomes visible at once.
func (w *writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(ctx); err != nil {
		return err
	}
	w.store.add(w.pending)
	clear(w.pending)
	return nil
}

// add takes in what a writer gathered. Of an object that another one flushed
// meanwhile the first copy stays.
func (s *Store) add(objects map[cas.Key]object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range objects {
		if _, ok := s.objects[k]; !ok {
			s.objects[k] = o
			s.bytes += int64(len(o.data))
		}
	}
}

// Stats implements [cas.Writer]. An object counts from its Put on; it takes its
// own length in the store and nothing more. One that two writers put at the
// same time counts for both.
func (w *writer) Stats() cas.WriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Close implements [cas.Writer].
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.pending = true, nil
	return nil
}
