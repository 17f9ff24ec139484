package local

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// opened are packs that can be read from.
type opened interface {
	// readPack fills the parts from where a record lies in its pack, one after the other.
	readPack(ctx context.Context, at cas.Location, parts ...[]byte) error
}

// buffers are for encoded records on their way to the decoder.
type buffers struct{ *sync.Pool }

func newBuffers() buffers { return buffers{&sync.Pool{New: func() any { return new([]byte) }}} }

// longRaw is how long a payload is that is read to where it is wanted, in bytes.
const longRaw = 32 << 10

// read reads an object that may lie at a place.
func (b buffers) read(ctx context.Context, from opened, key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	if at.Stored > maxPack { // before memory is taken for what an index says
		return nil, fmt.Errorf("%s: a record of %d bytes: %w", key, at.Stored, cas.ErrCorrupt)
	}
	if at.Encoding == cas.Raw && at.Stored >= longRaw {
		return readRaw(ctx, from, key, at, dst)
	}
	buf := b.Get().(*[]byte)
	defer b.Put(buf)
	n := recordHeader + int(at.Stored)
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	record := (*buf)[:n]
	if err := from.readPack(ctx, at, record); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return decodeRecord(key, at, record, dst, byChecksum(ctx))
}

// readRaw is read for a payload that is the object itself.
func readRaw(ctx context.Context, from opened, key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	start, end := len(dst), len(dst)+int(at.Stored)
	dst = slices.Grow(dst, int(at.Stored))[:end]
	var head [recordHeader]byte
	if err := from.readPack(ctx, at, head[:], dst[start:]); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	r, err := parseHeader(head[:])
	r.payload = dst[start:]
	if err == nil && (r.key != key || r.encoding != cas.Raw || r.plain != at.Stored) {
		err = fmt.Errorf("another object lies in its place: %w", cas.ErrCorrupt)
	}
	switch {
	case err != nil:
	case byChecksum(ctx):
		err = checkSum(head[:], r.payload)
	default:
		err = r.prove(r.payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return dst, nil
}

// decodeRecord appends the object of the record in b to dst. It is proved by the
// record's checksum or by its own name.
func decodeRecord(key cas.Key, at cas.Location, b, dst []byte, checksum bool) ([]byte, error) {
	r, err := parseRecord(b, checksum)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if r.key != key || len(r.payload) != int(at.Stored) {
		return nil, fmt.Errorf("%s: another object lies in its place: %w", key, cas.ErrCorrupt)
	}
	if checksum {
		return r.unpack(dst)
	}
	return r.decode(dst)
}
