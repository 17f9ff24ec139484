package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Small files are read and stored in batches: one lookup answers for all files
// of a batch. A file longer than batchBytes goes alone.
const (
	batchFiles = 128
	batchBytes = cas.ChunkedSize
)

// tries is how often a file that changes under the reader is read.
const tries = 3

var errChanging = errors.New("changed each time it was read (tried 3 times)")

// pendingFile is a small file that was read and not stored yet.
type pendingFile struct {
	e   *child
	obj cas.Object
	own *linked // the link group that waits for this file; nil for most
}

// smallFiles captures files that together are at most batchBytes long.
func (c *walker) smallFiles(d *dirFD, files []*child) {
	if len(files) == 0 || c.ctx.Err() != nil {
		return
	}
	buf := c.bufs.Get().(*[]byte)
	defer c.bufs.Put(buf)
	data := (*buf)[:0]
	pending := make([]pendingFile, 0, len(files))
	var waiting []waitingLink
	for _, e := range files {
		group, first := c.links.claim(e)
		if group != nil && !first {
			waiting = append(waiting, waitingLink{e, group})
			continue
		}
		rest, err := c.readSmall(d, e, data)
		if errors.Is(err, errGrown) {
			c.storeLarge(d, e, group)
			continue
		}
		if err != nil {
			group.settle(false)
			c.problem(e.path, vanished(err))
			continue
		}
		pending = append(pending, pendingFile{e, cas.NewObject(cas.Files, cas.Data, rest[len(data):]), group})
		data = rest
	}
	objs := make([]cas.Object, len(pending))
	for i, p := range pending {
		objs[i] = p.obj
	}
	err := c.w.Put(c.ctx, objs...)
	if err != nil {
		c.cancel(fmt.Errorf("store files: %w", err))
	}
	for _, p := range pending {
		p.e.entry.Hash = p.obj.Key.Hash
		p.e.ok = err == nil
		p.own.settle(err == nil)
	}
	// All that others may wait for is settled: now this batch may wait itself.
	for _, l := range waiting {
		c.takeLink(l)
	}
}

// largeFile captures a file that goes alone.
func (c *walker) largeFile(d *dirFD, e *child) {
	if c.ctx.Err() != nil {
		return
	}
	group, first := c.links.claim(e)
	if group != nil && !first {
		c.takeLink(waitingLink{e, group})
		return
	}
	c.storeLarge(d, e, group)
}

// storeLarge reads and stores e, for which group (nil for most) may wait.
func (c *walker) storeLarge(d *dirFD, e *child, group *linked) {
	err := c.readStable(d, e, func(f *os.File, size int64) (int64, error) {
		// One byte more than it is long: one that grows without end is not
		// followed.
		in := &fileReader{f: io.LimitReader(f, size+1)}
		blob, err := cas.WriteBlob(c.ctx, c.w, cas.Files, in)
		if err != nil && in.err == nil {
			c.cancel(fmt.Errorf("store %s: %w", tree.Quote(e.path), err))
		}
		e.entry.Hash = blob.Hash
		return blob.Size, err
	})
	e.ok = err == nil
	group.settle(e.ok)
	if err != nil {
		c.problem(e.path, vanished(err))
	}
}

// fileReader remembers whether it was the file that failed, and not the store.
type fileReader struct {
	f   io.Reader
	err error
}

func (r *fileReader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// errGrown: a small file no longer fits into its batch.
var errGrown = errors.New("grew while it was being saved")

// readSmall appends the content of a small file to data and fills in e's
// entry.
func (c *walker) readSmall(d *dirFD, e *child, data []byte) (out []byte, err error) {
	start := len(data)
	err = c.readStable(d, e, func(f *os.File, size int64) (int64, error) {
		if size > int64(cap(data)-start-1) {
			return 0, errGrown
		}
		// One byte more than it is long: a file that grew shows at once.
		n, err := io.ReadFull(f, data[start:start+int(size)+1])
		out = data[:start+n]
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return int64(n), err
	})
	return out, err
}

// readStable opens a file, has read take its content, and looks whether it
// held still meanwhile, else it begins anew. read gets the length to expect
// and returns how many bytes it took.
func (c *walker) readStable(d *dirFD, e *child, read func(f *os.File, size int64) (int64, error)) error {
	for range tries {
		stable, err := c.readOnce(d, e, read)
		if stable || err != nil {
			return err
		}
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
	}
	return errChanging
}

func (c *walker) readOnce(d *dirFD, e *child, read func(f *os.File, size int64) (int64, error)) (stable bool, err error) {
	fd, err := d.open(e.name, 0)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), e.path)
	defer f.Close()
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return false, err
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, errors.New("is no regular file any more")
	}
	n, err := read(f, before.Size)
	if err != nil {
		return false, err
	}
	xattrs, err := c.xattrs(fd)
	if err != nil {
		return false, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return false, err
	}
	if n != before.Size || before.Size != after.Size || before.Mtim != after.Mtim || before.Ctim != after.Ctim {
		return false, nil
	}
	hash := e.entry.Hash
	e.st = after
	e.entry = c.entry(e.name, e.path, &after, tree.File)
	e.entry.Size, e.entry.XAttrs, e.entry.Hash = uint64(after.Size), xattrs, hash
	return true, nil
}
