package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
)

// records reads the records of packs.
type records struct {
	opened func(id cas.PackID) (*pack, error)
	bufs   sync.Pool // *[]byte: encoded records on their way to the decoder
}

func newRecords(opened func(id cas.PackID) (*pack, error)) records {
	return records{opened: opened, bufs: sync.Pool{New: func() any { return new([]byte) }}}
}

// longRaw is how long a payload is that is read to where it is wanted, in bytes.
const longRaw = 32 << 10

// read reads an object that may lie at a place.
func (r *records) read(ctx context.Context, key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	if at.Stored > maxPack { // before memory is taken for what an index says
		return nil, fmt.Errorf("%s: a record of %d bytes: %w", key, at.Stored, cas.ErrCorrupt)
	}
	if at.Encoding == cas.Raw && at.Stored >= longRaw {
		return r.readRaw(ctx, key, at, dst)
	}
	buf := r.bufs.Get().(*[]byte)
	defer r.bufs.Put(buf)
	n := recordHeader + int(at.Stored)
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	b := (*buf)[:n]
	if err := r.readPack(ctx, at, b); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return decodeRecord(key, at, b, dst, byChecksum(ctx))
}

// readRaw is read for a payload that is the object itself.
func (r *records) readRaw(ctx context.Context, key cas.Key, at cas.Location, dst []byte) ([]byte, error) {
	start, end := len(dst), len(dst)+int(at.Stored)
	dst = slices.Grow(dst, int(at.Stored))[:end]
	var head [recordHeader]byte
	if err := r.readPack(ctx, at, head[:], dst[start:]); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	rec, err := parseHeader(head[:])
	rec.payload = dst[start:]
	if err == nil && (rec.key != key || rec.encoding != cas.Raw || rec.plain != at.Stored) {
		err = fmt.Errorf("another object lies in its place: %w", cas.ErrCorrupt)
	}
	switch {
	case err != nil:
	case byChecksum(ctx):
		err = checkSum(head[:], rec.payload)
	default:
		err = rec.prove(rec.payload)
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

// readPack fills the parts from a pack, one after the other. A file that was
// closed under the read because others were needed more is opened again.
func (r *records) readPack(ctx context.Context, at cas.Location, parts ...[]byte) error {
	size := 0
	for _, b := range parts {
		size += len(b)
	}
	for {
		p, err := r.opened(at.Pack)
		if err != nil {
			return err
		}
		n, err := p.readAt(ctx, parts, int64(at.Offset))
		switch {
		case n == size:
			return nil
		case errors.Is(err, os.ErrClosed):
			continue
		case errors.Is(err, ErrWouldWait):
			return err
		default:
			return fmt.Errorf("pack %s at %d: %v: %w", at.Pack, at.Offset, err, cas.ErrCorrupt)
		}
	}
}
