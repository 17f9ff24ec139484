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
	switch n := f.reading(in.NodeId).(type) {
	case *treeNode:
		if n.kind != tree.File {
			return nil, fuse.EINVAL
		}
		result, status := f.readBlob(in.NodeId, cas.Files, cas.Blob{Hash: n.hash, Size: int64(n.size)}, off, buf)
		if status == fuse.OK && off == 0 && n.small() && f.conn != nil {
			f.follow(n, in.Caller.Pid)
		}
		return result, status
	case *blobFile:
		return f.readBlob(in.NodeId, n.ns, n.blob, off, buf)
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

// readBlob answers a read of a node's content.
func (f *FS) readBlob(id uint64, ns cas.Namespace, blob cas.Blob, off int64, buf []byte) (fuse.ReadResult, fuse.Status) {
	data, err := f.content(ns, blob, off, buf)
	if err != nil {
		return nil, f.fail("read", id, err)
	}
	return fuse.ReadResultData(data), fuse.OK
}

// content returns up to len(buf) bytes of a blob. Every object was verified
// whole before any of its bytes are shown.
func (f *FS) content(ns cas.Namespace, blob cas.Blob, off int64, buf []byte) ([]byte, error) {
	size := blob.Size
	if off >= size {
		return nil, nil
	}
	key := cas.Key{NS: ns, Hash: blob.Hash}
	if !blob.Chunked() {
		if off == 0 && size <= int64(len(buf)) {
			// All of it at once: it will not be asked for again.
			if data, ok := f.scout.take(key); ok {
				return data, nil
			}
			return f.readObject(key, size, buf[:0])
		}
		data, err := f.object(key, size)
		return part(data, off, len(buf)), err
	}
	chunks, err := f.lists.Get(key, func() ([]cas.Chunk, error) {
		return cas.Chunks(f.ctx, f.store.Blobs(), ns, blob)
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
		data, err := f.object(cas.Key{NS: ns, Hash: c.Hash}, c.Len)
		if err != nil {
			return nil, err
		}
		at += copy(buf[at:], data[within:])
	}
	return buf, nil
}

// object returns the whole content of an object, kept for the reads that follow.
func (f *FS) object(key cas.Key, size int64) ([]byte, error) {
	return f.objects.Get(key, func() ([]byte, error) { return f.readObject(key, size, make([]byte, 0, size)) })
}

// readObject appends an object of a known size to buf.
func (f *FS) readObject(key cas.Key, size int64, buf []byte) ([]byte, error) {
	data, err := f.store.Blobs().Read(f.ctx, key, buf)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%d bytes where %d were saved: %w", len(data), size, cas.ErrCorrupt)
	}
	return data, nil
}
