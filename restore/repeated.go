package restore

import (
	"bytes"
	"maps"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// repeatedBytes bounds the contents that are kept because they are needed again.
const repeatedBytes = 32 << 20

// repeated keeps the contents that several files of a tree have, from the first of
// them to the last: they are read and decoded once.
type repeated struct {
	mu   sync.Mutex
	left map[cas.Hash]int // files to come
	kept map[cas.Hash][]byte
	used int // bytes of kept
}

// newRepeated takes how many files have each content, of which it keeps those that
// count.
func newRepeated(times map[cas.Hash]int) *repeated {
	maps.DeleteFunc(times, func(_ cas.Hash, n int) bool { return n < 2 })
	return &repeated{left: times, kept: map[cas.Hash][]byte{}}
}

// take returns a content if it was kept. It may be read, not written to.
func (r *repeated) take(h cas.Hash) (data []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, repeats := r.left[h]
	if !repeats {
		return nil, false
	}
	data, ok = r.kept[h]
	if n--; n > 0 {
		r.left[h] = n
		return data, ok
	}
	delete(r.left, h)
	if ok {
		delete(r.kept, h)
		r.used -= len(data)
	}
	return data, ok
}

// keep copies a content that was not kept, if it is needed again and there is room.
func (r *repeated) keep(h cas.Hash, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, repeats := r.left[h]; !repeats || r.kept[h] != nil || r.used+len(data) > repeatedBytes {
		return
	}
	r.kept[h] = bytes.Clone(data)
	r.used += len(data)
}
