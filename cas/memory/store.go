// Package memory keeps objects in the memory of the process: for tests, and for
// stores that need not outlive it.
//
// Everything that [cas.Store] promises holds, except that nothing is durable.
// Objects are kept as they are, not compressed.
package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// A Store implements [cas.Store]. Its methods may be called concurrently.
type Store struct {
	mu      sync.RWMutex
	objects map[cas.Key]object
	bytes   int64 // sum of the objects' lengths
}

// An object's bytes never change, so they may be read without the lock.
type object struct {
	kind cas.Kind
	data []byte
}

var _ cas.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store { return &Store{objects: map[cas.Key]object{}} }

// Read implements [cas.Store]. [cas.ErrCorrupt] means that the object was put
// under a name that is not its own.
func (s *Store) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	o, ok := s.objects[key]
	s.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
	}
	if o.kind.Sum(o.data) != key.Hash {
		return nil, fmt.Errorf("%s: it does not hash to its name: %w", key, cas.ErrCorrupt)
	}
	return append(dst, o.data...), nil
}

// Has implements [cas.Store].
func (s *Store) Has(ctx context.Context, keys []cas.Key) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	has := make([]bool, len(keys))
	for i, k := range keys {
		_, has[i] = s.objects[k]
	}
	return has, nil
}

// NewWriter implements [cas.Store].
func (s *Store) NewWriter(ctx context.Context) (cas.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &writer{store: s, pending: map[cas.Key]object{}}, nil
}

// Objects returns all objects, in no order that means anything. Their places tell
// nothing but kind and length.
func (s *Store) Objects() []cas.Located {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]cas.Located, 0, len(s.objects))
	for key, o := range s.objects {
		all = append(all, cas.Located{Key: key, Location: o.location()})
	}
	return all
}

// Locate tells the places of objects as [Store.Objects] does; the zero Location is nowhere.
func (s *Store) Locate(keys []cas.Key) []cas.Location {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]cas.Location, len(keys))
	for i, key := range keys {
		all[i] = s.objects[key].location()
	}
	return all
}

func (o object) location() cas.Location {
	n := uint32(len(o.data))
	return cas.Location{Kind: o.kind, Stored: n, Plain: n}
}

// Size returns the number of objects and the sum of their lengths in bytes.
func (s *Store) Size() (objects int, bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects), s.bytes
}

// Delete removes those of the objects that the store has. A writer that was
// given one of them before relies on the store's copy and does not bring it
// back: the caller sees to it that nobody needs them.
func (s *Store) Delete(keys ...cas.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.bytes -= int64(len(s.objects[k].data)) // 0 when it is not there
		delete(s.objects, k)
	}
}
