package snapshot

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
)

// scrubbed are the contents of files and artifacts that were searched. It is written by
// several goroutines.
type scrubbed struct {
	mu      sync.Mutex
	seen    map[cas.Key]struct{}
	hits    map[cas.Key]int
	faults  map[cas.Key]error
	clean   map[cas.Key]struct{}     // chunks that hold no value
	borders map[[2]cas.Hash]struct{} // and neighbours, over whose border none lies
	bytes   atomic.Int64             // that were read
	buffers sync.Pool                // of *[]byte
}

// contents are searched by several goroutines.
func (sc *scrubber) contents(each func(search func(cas.Namespace, cas.Blob)) error) error {
	group, ctx := errgroup.WithContext(sc.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1)
	err := each(func(ns cas.Namespace, b cas.Blob) {
		key := cas.Key{NS: ns, Hash: b.Hash}
		sc.mu.Lock()
		_, seen := sc.seen[key]
		sc.seen[key] = struct{}{}
		sc.mu.Unlock()
		if !seen {
			group.Go(func() error { return sc.content(ctx, key, b) })
		}
	})
	if werr := group.Wait(); werr != nil {
		return werr
	}
	return err
}

// content searches one content and notes what it has found.
func (sc *scrubber) content(ctx context.Context, key cas.Key, b cas.Blob) error {
	count := sc.countOne
	if b.Chunked() {
		count = sc.countChunked
	}
	n, err := count(ctx, key, b)
	if err != nil && (ctx.Err() != nil || !isFinding(err)) {
		return err
	}
	sc.meter.Add(1, 0)
	if n == 0 && err == nil {
		return nil
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if err != nil {
		sc.faults[key] = err
	} else {
		sc.hits[key] = n
	}
	return nil
}

// borrow lends a buffer.
func (sc *scrubber) borrow() (buf *[]byte, back func()) {
	buf = sc.buffers.Get().(*[]byte)
	return buf, func() { sc.buffers.Put(buf) }
}

// read reads an object of a length into a buffer.
func (sc *scrubber) read(ctx context.Context, key cas.Key, size int64, buf *[]byte) error {
	data, err := sc.s.blobs.Read(ctx, key, (*buf)[:0])
	if err != nil {
		return err
	}
	*buf = data
	sc.bytes.Add(int64(len(data)))
	sc.meter.Add(0, int64(len(data)))
	if int64(len(data)) != size {
		return fmt.Errorf("%s: object of %d bytes where %d were expected: %w", key, len(data), size, cas.ErrCorrupt)
	}
	return nil
}

// countOne counts the values in a content that is one object.
func (sc *scrubber) countOne(ctx context.Context, key cas.Key, b cas.Blob) (int, error) {
	buf, back := sc.borrow()
	defer back()
	if err := sc.read(ctx, key, b.Size, buf); err != nil {
		return 0, err
	}
	return sc.set.Count(*buf), nil
}

// countChunked counts the values in a content of chunks. Chunks and borders between them
// that other contents have, too, are not looked at again; where a value is found, all
// are.
func (sc *scrubber) countChunked(ctx context.Context, key cas.Key, b cas.Blob) (int, error) {
	chunks, err := cas.Chunks(ctx, sc.s.blobs, key.NS, b)
	if err != nil {
		return 0, err
	}
	clean := false
	if sc.set.Longest() <= cas.MinChunk {
		clean, err = sc.cleanChunks(ctx, key.NS, chunks)
	}
	if err != nil || clean {
		return 0, err
	}
	search := sc.set.Search()
	buf, back := sc.borrow()
	defer back()
	for _, c := range chunks {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if c.Zeros() {
			search.Skip(c.Len)
			continue
		}
		if err := sc.read(ctx, cas.Key{NS: key.NS, Hash: c.Hash}, c.Len, buf); err != nil {
			return 0, err
		}
		_, _ = search.Write(*buf)
	}
	return search.Count(), nil
}

// cleanChunks reports whether a content holds no value, and reads what of it is not
// known. A value lies in one chunk, or over the border of two: only the last one of a
// stretch can be shorter than [cas.MinChunk], and no value is longer.
func (sc *scrubber) cleanChunks(ctx context.Context, ns cas.Namespace, chunks []cas.Chunk) (bool, error) {
	inside, border := make([]bool, len(chunks)), make([]bool, len(chunks)+1) // known, the border in front of each
	border[0], border[len(chunks)] = true, true
	sc.mu.Lock()
	for i, c := range chunks {
		_, inside[i] = sc.clean[cas.Key{NS: ns, Hash: c.Hash}]
		inside[i] = inside[i] || c.Zeros()
		if i > 0 {
			_, border[i] = sc.borders[[2]cas.Hash{chunks[i-1].Hash, c.Hash}]
		}
	}
	sc.mu.Unlock()
	most := sc.set.Longest() - 1
	buf, back := sc.borrow()
	defer back()
	var tail []byte // of the chunk before
	zeros := make([]byte, most)
	for i, c := range chunks {
		if inside[i] && border[i] && border[i+1] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		data := zeros[:min(int64(most), c.Len)]
		if !c.Zeros() {
			if err := sc.read(ctx, cas.Key{NS: ns, Hash: c.Hash}, c.Len, buf); err != nil {
				return false, err
			}
			data = *buf
		}
		if !inside[i] && sc.set.Count(data) > 0 {
			return false, nil
		}
		if !border[i] && sc.set.Count(append(tail, data[:min(most, len(data))]...)) > 0 {
			return false, nil
		}
		tail = append(tail[:0], data[max(0, len(data)-most):]...)
		sc.mu.Lock()
		if !c.Zeros() {
			sc.clean[cas.Key{NS: ns, Hash: c.Hash}] = struct{}{}
		}
		if i > 0 {
			sc.borders[[2]cas.Hash{chunks[i-1].Hash, c.Hash}] = struct{}{}
		}
		sc.mu.Unlock()
	}
	return true, nil
}
