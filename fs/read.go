package fs

import (
	"fmt"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Read implements [fuse.RawFileSystem].
func (f *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f.count(opRead)
	off := int64(in.Offset)
	switch n := f.node(in.NodeId).(type) {
	case *file:
		data, err := f.readFile(n, off, buf)
		if err != nil {
			return nil, f.fail("read", in.NodeId, err)
		}
		return fuse.ReadResultData(data), fuse.OK
	case *bytesFile:
		return fuse.ReadResultData(part(n.data, off, len(buf))), fuse.OK
	case nil:
		return nil, staleNode
	}
	return nil, fuse.EINVAL
}

// part returns up to n bytes of data from off on.
func part(data []byte, off int64, n int) []byte {
	if off >= int64(len(data)) {
		return nil
	}
	data = data[off:]
	return data[:min(n, len(data))]
}

// readFile returns up to len(buf) bytes of a file. Every object was verified
// whole before any of its bytes are shown.
func (f *FS) readFile(n *file, off int64, buf []byte) ([]byte, error) {
	size := int64(n.Size)
	if n.Kind != tree.File || off >= size {
		return nil, nil
	}
	blob := cas.Blob{Hash: n.Hash, Size: size}
	if !blob.Chunked() {
		if off == 0 && size <= int64(len(buf)) {
			// All of it at once: it will not be asked for again.
			return f.readObject(n.Hash, size, buf[:0])
		}
		data, err := f.object(n.Hash, size)
		return part(data, off, len(buf)), err
	}
	chunks, err := f.lists.Get(cas.Key{NS: cas.Files, Hash: blob.Hash}, func() ([]cas.Chunk, error) {
		return cas.Chunks(background(), f.store.Blobs(), cas.Files, blob)
	})
	if err != nil {
		return nil, err
	}
	if left := size - off; int64(len(buf)) > left {
		buf = buf[:left]
	}
	for i, at := cas.ChunkAt(chunks, off), 0; at < len(buf); i++ {
		c := chunks[i]
		within := off + int64(at) - c.Off
		if c.Zeros() {
			n := min(int64(len(buf)-at), c.Len-within)
			clear(buf[at : at+int(n)])
			at += int(n)
			continue
		}
		data, err := f.object(c.Hash, c.Len)
		if err != nil {
			return nil, err
		}
		at += copy(buf[at:], data[within:])
	}
	return buf, nil
}

// object returns the whole content of an object, kept for the reads that follow.
func (f *FS) object(h cas.Hash, size int64) ([]byte, error) {
	return f.objects.Get(cas.Key{NS: cas.Files, Hash: h}, func() ([]byte, error) {
		return f.readObject(h, size, make([]byte, 0, size))
	})
}

// readObject appends an object of a known size to buf.
func (f *FS) readObject(h cas.Hash, size int64, buf []byte) ([]byte, error) {
	data, err := f.store.Blobs().Read(background(), cas.Key{NS: cas.Files, Hash: h}, buf)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%d bytes where %d were saved: %w", len(data), size, cas.ErrCorrupt)
	}
	return data, nil
}
