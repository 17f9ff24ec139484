package fs

import (
	"container/list"
	"math/bits"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// objects keeps the decoded objects that were read last, for files that take
// several reads. Memory that nobody reads from any more is used again: to get and
// clear a megabyte for each chunk of a long file takes a fourth of the time that
// reading it does.
type objects struct {
	max  int64 // bytes
	load func(key cas.Key, size int64, buf []byte) ([]byte, error)

	mu   sync.Mutex
	kept map[sizedKey]*object
	used list.List // of *object, the last used first
	size int64     // of those in kept
	free [][]byte  // the one given up last is the last
}

// object is a decoded object. What it has may be read until it is released.
type object struct {
	data []byte
	err  error

	sizedKey
	done  chan struct{} // closed once data or err is there
	users int
	gone  bool // not in kept any more
	place *list.Element
}

// sizedKey is what somebody takes an object to be. Who is wrong about its size gets
// an error, and nobody else does.
type sizedKey struct {
	key  cas.Key
	size int64 // in bytes
}

// maxFreeObjects bounds the buffers that wait to be used again.
const maxFreeObjects = 8

func newObjects(max int64, load func(key cas.Key, size int64, buf []byte) ([]byte, error)) *objects {
	return &objects{max: max, load: load, kept: map[sizedKey]*object{}}
}

// get returns an object of size bytes, for which somebody else may be waiting too.
// It must be released.
func (o *objects) get(key cas.Key, size int64) (*object, error) {
	o.mu.Lock()
	as := sizedKey{key, size}
	v, ok := o.kept[as]
	if ok {
		v.users++
		o.used.MoveToFront(v.place)
		o.mu.Unlock()
		<-v.done
	} else {
		v = &object{sizedKey: as, done: make(chan struct{}), users: 1}
		v.place = o.used.PushFront(v)
		o.kept[as] = v
		o.size += size
		buf := o.buffer(int(size))
		o.mu.Unlock()
		v.data, v.err = o.load(key, size, buf)
		close(v.done)
		o.mu.Lock()
		if v.err != nil {
			o.drop(v) // the next one tries again
		}
		for o.size > o.max {
			o.drop(o.used.Back().Value.(*object))
		}
		o.mu.Unlock()
	}
	if v.err != nil {
		o.release(v)
		return nil, v.err
	}
	return v, nil
}

// has reports whether an object is there or on its way.
func (o *objects) has(key cas.Key, size int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.kept[sizedKey{key, size}]
	return ok
}

// discard forgets an object that nobody uses now.
func (o *objects) discard(key cas.Key, size int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v, ok := o.kept[sizedKey{key, size}]; ok && v.users == 0 {
		o.drop(v)
	}
}

// drop forgets an object; mu is held.
func (o *objects) drop(v *object) {
	if v.gone {
		return
	}
	v.gone = true
	delete(o.kept, v.sizedKey)
	o.used.Remove(v.place)
	o.size -= v.size
	o.recycle(v)
}

// release ends a use of an object.
func (o *objects) release(v *object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v.users--
	o.recycle(v)
}

// recycle keeps the memory of an object that nobody has any more; mu is held.
func (o *objects) recycle(v *object) {
	if v.gone && v.users == 0 && v.data != nil && len(o.free) < maxFreeObjects {
		o.free = append(o.free, v.data[:0])
		v.data = nil
	}
}

// buffer returns an empty buffer for size bytes; mu is held.
func (o *objects) buffer(size int) []byte {
	for i, b := range slices.Backward(o.free) { // the last one is in the processor's cache
		if cap(b) >= size {
			o.free = slices.Delete(o.free, i, i+1)
			return b
		}
	}
	return make([]byte, 0, 1<<bits.Len(uint(max(size, 1)-1))) // so that it fits another one
}
