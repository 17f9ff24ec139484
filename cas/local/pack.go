package local

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// waitKey is for [OnWait].
type waitKey struct{}

// OnWait returns a context whose reads call fn before they wait for a disk. Who
// answers many requests in one thread needs to know.
func OnWait(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, waitKey{}, fn)
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

// readAt is [os.File.ReadAt] that calls the function of [OnWait] if the kernel
// does not have the bytes, or cannot tell.
func (p *pack) readAt(ctx context.Context, b []byte, off int64) (int, error) {
	wait, ok := ctx.Value(waitKey{}).(func())
	if !ok {
		return p.ReadAt(b, off)
	}
	n := 0
	var err error
	if cerr := p.raw.Control(func(fd uintptr) { n, err = unix.Preadv2(int(fd), [][]byte{b}, off, unix.RWF_NOWAIT) }); cerr != nil {
		return 0, cerr
	}
	if err == nil && n == len(b) {
		return n, nil
	}
	wait()
	n = max(n, 0)
	more, err := p.ReadAt(b[n:], off+int64(n))
	return n + more, err
}
