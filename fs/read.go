package fs

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Read implements [fuse.RawFileSystem]. The connection calls read itself, which
// spares a copy.
func (f *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	var r reply
	defer r.done(f)
	if status := f.read(in, make([]byte, len(buf)), &r); status != fuse.OK {
		return nil, status
	}
	return fuse.ReadResultData(slices.Concat(r.parts...)), fuse.OK
}

// A reply to a read is parts of memory, one after the other, which are not to be
// changed until it is done.
type reply struct {
	parts   [][]byte
	objects []*object // that have some of the parts
}

func (r *reply) add(part []byte) { r.parts = append(r.parts, part) }

// done gives up the parts.
func (r *reply) done(f *FS) {
	for _, o := range r.objects {
		f.objects.release(o)
	}
	clear(r.parts)
	clear(r.objects)
	r.parts, r.objects = r.parts[:0], r.objects[:0]
}

// read adds the answer to a request for len(buf) bytes at most. It may use buf.
func (f *FS) read(in *fuse.ReadIn, buf []byte, r *reply) fuse.Status {
	f.count(opRead)
	var err error
	off := int64(in.Offset)
	switch n := f.reading(in.NodeId).(type) {
	case *treeNode:
		if n.kind != tree.File {
			return fuse.EINVAL
		}
		err = f.content(in.NodeId, cas.Files, cas.Blob{Hash: n.hash, Size: int64(n.size)}, off, buf, r)
		if err == nil && off == 0 && n.small() && f.conn != nil {
			f.follow(n, in.Caller.Pid)
		}
	case *blobFile:
		err = f.content(in.NodeId, n.ns, n.blob, off, buf, r)
	case *bytesFile:
		r.add(part(n.data, off, len(buf)))
	case nil:
		return staleNode
	default:
		return fuse.EINVAL
	}
	if err != nil {
		return f.fail("read", in.NodeId, err)
	}
	return fuse.OK
}

// part returns up to n bytes of data from off on.
func part(data []byte, off int64, n int) []byte {
	if off >= int64(len(data)) {
		return nil
	}
	data = data[off:]
	return data[:min(n, len(data))]
}

// zeros are for the chunks of which nothing is stored.
var zeros [maxRequest]byte

// content adds up to len(buf) bytes of a node's blob to a reply. Every object was
// verified whole before any of its bytes are shown.
func (f *FS) content(id uint64, ns cas.Namespace, blob cas.Blob, off int64, buf []byte, r *reply) error {
	size := blob.Size
	if off >= size {
		return nil
	}
	key := cas.Key{NS: ns, Hash: blob.Hash}
	if blob.Chunked() {
		return f.chunks(id, key, blob, off, min(int64(len(buf)), size-off), r)
	}
	if off > 0 || size > int64(len(buf)) {
		return f.stretch(key, size, off, min(int64(len(buf)), size-off), r)
	}
	// All of it at once: it will not be asked for again.
	data, ok := f.scout.take(key, size)
	if !ok {
		var err error
		if data, err = f.readObject(key, size, buf[:0]); err != nil {
			return err
		}
	}
	r.add(data)
	return nil
}

// chunks adds n bytes from off on of a blob that is a list of chunks.
func (f *FS) chunks(id uint64, key cas.Key, blob cas.Blob, off, n int64, r *reply) error {
	chunks, err := f.lists.Get(key, func() ([]cas.Chunk, error) {
		return cas.ReadList(f.ctx, f.blobs, key)
	})
	if err == nil {
		err = cas.CheckList(chunks, blob) // of two files with one list one may lie about its length
	}
	if err != nil {
		return err
	}
	inOrder := f.streams.inOrder(id, off, n)
	i := cas.ChunkAt(chunks, off)
	for ; n > 0; i++ {
		c := chunks[i]
		within := min(n, c.Off+c.Len-off)
		if c.Zeros() {
			for left := within; left > 0; left -= int64(len(zeros)) {
				r.add(zeros[:min(left, int64(len(zeros)))])
			}
		} else if err := f.stretch(cas.Key{NS: key.NS, Hash: c.Hash}, c.Len, off-c.Off, within, r); err != nil {
			return err
		}
		off, n = off+within, n-within
	}
	if inOrder {
		if i >= behind && !chunks[i-behind].Zeros() {
			f.objects.discard(cas.Key{NS: key.NS, Hash: chunks[i-behind].Hash}, chunks[i-behind].Len)
		}
		for _, c := range chunks[min(i, len(chunks)):min(i+runtime.GOMAXPROCS(0), len(chunks))] {
			if !c.Zeros() {
				f.ahead(cas.Key{NS: key.NS, Hash: c.Hash}, c.Len)
			}
		}
	}
	return nil
}

// behind is how many chunks behind a reader in order one is of no more use. Its
// memory, which is in the processor's cache, serves for one that is to come.
const behind = 4

// stretch adds n bytes from off on of an object, which is kept for the reads that
// follow.
func (f *FS) stretch(key cas.Key, size, off, n int64, r *reply) error {
	o, err := f.objects.get(key, size)
	if err != nil {
		return err
	}
	r.objects = append(r.objects, o)
	r.add(o.data[off : off+n])
	return nil
}

// longObject is how long an object is whose decoding takes so long that others
// should be answered beside it, in bytes.
const longObject = 128 << 10

// loadObject reads an object that is going to be kept.
func (f *FS) loadObject(key cas.Key, size int64, buf []byte) ([]byte, error) {
	if size >= longObject {
		f.slow()
	}
	return f.readObject(key, size, buf)
}

// ahead decodes an object that will be read next, if it is not being done already.
func (f *FS) ahead(key cas.Key, size int64) {
	if f.objects.has(key, size) {
		return
	}
	if f.decoding.Add(1) > int32(runtime.GOMAXPROCS(0)) {
		f.decoding.Add(-1)
		return
	}
	go func() {
		defer f.decoding.Add(-1)
		if o, err := f.objects.get(key, size); err == nil { // who reads it is told of errors
			f.objects.release(o)
		}
	}()
}

// readObject appends an object of a known size to buf.
func (f *FS) readObject(key cas.Key, size int64, buf []byte) ([]byte, error) {
	return f.readObjectIn(f.ctx, key, size, buf)
}

func (f *FS) readObjectIn(ctx context.Context, key cas.Key, size int64, buf []byte) ([]byte, error) {
	data, err := f.blobs.Read(ctx, key, buf)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%d bytes where %d were saved: %w", len(data), size, cas.ErrCorrupt)
	}
	return data, nil
}

// streams remember where the last reads of long files ended.
type streams struct {
	mu   sync.Mutex
	ends [16]stream
	next int
}

// stream is how far a file was read.
type stream struct {
	id  uint64
	end int64
}

// inOrder notes a read and reports whether it goes on near where one of the last
// of the same file ended: the kernel asks for several stretches at once.
func (s *streams) inOrder(id uint64, off, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ends {
		e := &s.ends[i]
		if e.id == id && off-e.end <= 4*maxRequest && e.end-off <= 4*maxRequest {
			e.end = max(e.end, off+n)
			return true
		}
	}
	s.ends[s.next] = stream{id: id, end: off + n}
	s.next = (s.next + 1) % len(s.ends)
	return false
}
