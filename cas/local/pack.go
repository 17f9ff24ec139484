package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// Keys of contexts.
type (
	waitKey     struct{} // for [OnWait] and [WithoutWait]
	checksumKey struct{} // for [ByChecksum]
)

// ByChecksum returns a context whose reads prove that an object's bytes are those
// that were stored by the checksum of its record (CRC32C, which has the object's
// name in it too), not by hashing them again, which takes ten times as long. What
// has become damaged shows either way.
func ByChecksum(ctx context.Context) context.Context {
	return context.WithValue(ctx, checksumKey{}, true)
}

// ByHash returns a context whose reads hash objects, also where ctx was made by
// [ByChecksum].
func ByHash(ctx context.Context) context.Context {
	if !byChecksum(ctx) {
		return ctx
	}
	return context.WithValue(ctx, checksumKey{}, false)
}

// byChecksum reports whether ctx was made by [ByChecksum].
func byChecksum(ctx context.Context) bool {
	by, _ := ctx.Value(checksumKey{}).(bool)
	return by
}

// OnWait returns a context whose reads call fn before they wait for a disk. Who
// answers many requests in one thread needs to know.
func OnWait(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, waitKey{}, func() error { fn(); return nil })
}

// ErrWouldWait: the kernel does not have the bytes at hand.
var ErrWouldWait = errors.New("the read would wait for the disk")

// WithoutWait returns a context whose reads fail with [ErrWouldWait] rather than
// wait for a disk.
func WithoutWait(ctx context.Context) context.Context {
	return context.WithValue(ctx, waitKey{}, func() error { return ErrWouldWait })
}

// pack is an open pack.
type pack struct {
	*os.File
	raw syscall.RawConn
}

func openRead(dir string, id cas.PackID) (*pack, error) {
	f, err := os.Open(packPath(dir, id))
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &pack{File: f, raw: raw}, nil
}

// readPack implements [opened].
func (p *pack) readPack(ctx context.Context, at cas.Location, parts ...[]byte) error {
	size := 0
	for _, b := range parts {
		size += len(b)
	}
	n, err := p.readAt(ctx, parts, int64(at.Offset))
	switch {
	case n == size:
		return nil
	case errors.Is(err, os.ErrClosed), errors.Is(err, ErrWouldWait):
		return err
	default:
		return fmt.Errorf("pack %s at %d: %v: %w", at.Pack, at.Offset, err, cas.ErrCorrupt)
	}
}

// readAt fills the parts, one after the other, like [os.File.ReadAt]. It calls the function of [OnWait] if the kernel
// does not have the bytes, or cannot tell.
func (p *pack) readAt(ctx context.Context, parts [][]byte, off int64) (n int, err error) {
	if wait, ok := ctx.Value(waitKey{}).(func() error); ok {
		if cerr := p.raw.Control(func(fd uintptr) { n, err = unix.Preadv2(int(fd), parts, off, unix.RWF_NOWAIT) }); cerr != nil {
			return 0, os.ErrClosed // that is all that it can say
		}
		size := 0
		for _, b := range parts {
			size += len(b)
		}
		if err == nil && n == size {
			return n, nil
		}
		if err := wait(); err != nil {
			return 0, err
		}
	}
	n = 0
	for _, b := range parts {
		more, err := p.ReadAt(b, off+int64(n))
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}
