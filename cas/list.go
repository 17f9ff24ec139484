package cas

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"
)

// Constants of the chunking. They are part of the format: two stores dedup
// against each other only while they cut alike.
const (
	// ChunkedSize is the longest blob in bytes that is one object.
	ChunkedSize = 1 << 20
	// ZeroBlock is the alignment and granularity in bytes of zero chunks.
	ZeroBlock = 64 << 10
	// MinChunk, AvgChunk and MaxChunk bound a content-defined chunk in bytes;
	// the last one before a run of zeros or the end may be shorter.
	MinChunk = 256 << 10
	AvgChunk = 1 << 20
	MaxChunk = 4 << 20
)

// The chunk list's encoding: a header, then one entry a chunk. Integers are
// little-endian.
//
//	header: magic "SFCL", version (1 byte), zero (3), blob length (8)
//	data:   1 (1 byte), length (4), hash (32)
//	zeros:  2 (1 byte), length (8)
const (
	listMagic    = "SFCL"
	listVersion  = 1
	listHeader   = 16
	listData     = 1
	listDataLen  = 37
	listZeros    = 2
	listZerosLen = 9
)

// A Chunk is one stretch of a blob: an object, or zeros that are not stored.
type Chunk struct {
	Off  int64 // where it begins in the blob, in bytes
	Len  int64 // in bytes
	Hash Hash  // zero: the stretch is all zero bytes
}

// Zeros reports whether the chunk is a run of zero bytes without an object.
func (c Chunk) Zeros() bool { return c.Hash.IsZero() }

// A Blob names the content of one file.
type Blob struct {
	Hash Hash
	Size int64 // in bytes; above ChunkedSize, Hash names a chunk list
}

// Chunked reports whether the blob's hash names a chunk list.
func (b Blob) Chunked() bool { return b.Size > ChunkedSize }

// EncodeList returns the canonical encoding of a blob's chunks, which must be
// consecutive from offset 0 and have their zeros in maximal runs.
func EncodeList(chunks []Chunk) ([]byte, error) {
	var size int64
	for _, c := range chunks {
		size += c.Len
	}
	b := make([]byte, listHeader, listHeader+len(chunks)*listDataLen)
	copy(b, listMagic)
	b[4] = listVersion
	binary.LittleEndian.PutUint64(b[8:], uint64(size))
	for _, c := range chunks {
		if c.Zeros() {
			b = append(b, listZeros)
			b = binary.LittleEndian.AppendUint64(b, uint64(c.Len))
			continue
		}
		b = append(b, listData)
		b = binary.LittleEndian.AppendUint32(b, uint32(c.Len))
		b = append(b, c.Hash[:]...)
	}
	if len(b) > MaxObject {
		return nil, fmt.Errorf("blob of %d bytes in %d chunks: %w", size, len(chunks), ErrTooLarge)
	}
	return b, nil
}

// DecodeList reads what [EncodeList] wrote and refuses everything else with
// [ErrCorrupt].
func DecodeList(b []byte) ([]Chunk, error) {
	bad := func(what string) ([]Chunk, error) { return nil, fmt.Errorf("chunk list: %s: %w", what, ErrCorrupt) }
	if len(b) < listHeader || string(b[:4]) != listMagic || b[4] != listVersion || b[5]|b[6]|b[7] != 0 {
		return bad("bad header")
	}
	size := binary.LittleEndian.Uint64(b[8:])
	if size <= ChunkedSize || size > 1<<62 {
		return bad("bad length")
	}
	rest := b[listHeader:]
	chunks := make([]Chunk, 0, len(rest)/listDataLen+1)
	var off uint64
	for len(rest) > 0 {
		c := Chunk{Off: int64(off)}
		switch {
		case rest[0] == listData && len(rest) >= listDataLen:
			c.Len = int64(binary.LittleEndian.Uint32(rest[1:]))
			c.Hash = Hash(rest[5:listDataLen])
			if c.Len == 0 || c.Len > MaxChunk || c.Hash.IsZero() {
				return bad("bad data chunk")
			}
			rest = rest[listDataLen:]
		case rest[0] == listZeros && len(rest) >= listZerosLen:
			n := binary.LittleEndian.Uint64(rest[1:])
			afterZeros := len(chunks) > 0 && chunks[len(chunks)-1].Zeros()
			if n == 0 || n > size-off || off%ZeroBlock != 0 || afterZeros || (n%ZeroBlock != 0 && off+n != size) {
				return bad("bad run of zeros")
			}
			c.Len = int64(n)
			rest = rest[listZerosLen:]
		default:
			return bad("bad entry")
		}
		off += uint64(c.Len)
		if off > size {
			return bad("chunks longer than the blob")
		}
		chunks = append(chunks, c)
	}
	if off != size {
		return bad("chunks shorter than the blob")
	}
	return chunks, nil
}

// A Source reads objects; every [Store] is one.
type Source interface {
	Read(ctx context.Context, key Key, dst []byte) ([]byte, error)
}

// An Expecter is a [Source] that is faster with many objects when it knows of them
// before they are read.
type Expecter interface {
	// Expect tells that objects will be read soon. It is no matter if they are not.
	Expect(ctx context.Context, keys []Key)
}

// Chunks returns the stretches of a blob in order: for one that is a single
// object, that object. It fails with [ErrCorrupt] when the list's length is not
// the blob's.
func Chunks(ctx context.Context, s Source, ns Namespace, b Blob) ([]Chunk, error) {
	if !b.Chunked() {
		return []Chunk{{Len: b.Size, Hash: b.Hash}}, nil
	}
	chunks, err := ReadList(ctx, s, Key{NS: ns, Hash: b.Hash})
	if err != nil {
		return nil, err
	}
	return chunks, CheckList(chunks, b)
}

// ReadList reads the chunk list of that name. Who knows of a blob that has it asks
// [CheckList], too.
func ReadList(ctx context.Context, s Source, key Key) ([]Chunk, error) {
	data, err := s.Read(ctx, key, nil)
	if err != nil {
		return nil, fmt.Errorf("chunk list: %w", err)
	}
	return DecodeList(data)
}

// CheckList fails with [ErrCorrupt] when a list's length is not the blob's: whoever
// names a list may say of its length what he likes.
func CheckList(chunks []Chunk, b Blob) error {
	if last := chunks[len(chunks)-1]; last.Off+last.Len != b.Size {
		return fmt.Errorf("chunk list of %d bytes for a blob of %d: %w", last.Off+last.Len, b.Size, ErrCorrupt)
	}
	return nil
}

// ChunkAt returns the index of the chunk that holds the byte at off, or
// len(chunks) when off is beyond the end.
func ChunkAt(chunks []Chunk, off int64) int {
	return sort.Search(len(chunks), func(i int) bool { return chunks[i].Off+chunks[i].Len > off })
}
