package restore

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// file restores one file: content, attributes, mode, times.
func (w *writer) file(t *target, path string, e *tree.Entry) (err error) {
	fd, kept, exact := -1, false, false
	if w.left != nil {
		fd, err = w.keep(t, path, e)
		kept = fd >= 0
	}
	if err == nil && !kept {
		if fd, exact, err = w.create(t, e); err != nil {
			err = w.unmakeable(t.fd, path, tree.File, err)
		}
	}
	if errors.Is(err, errUnmakeable) {
		return err
	}
	if err != nil {
		return w.at(path, cas.NoSpace(err))
	}
	defer func() {
		if cerr := unix.Close(fd); err == nil && cerr != nil {
			err = w.at(path, cas.NoSpace(cerr))
		}
	}()
	if e.Mode&0o200 == 0 && (kept || !e.XAttrs.IsZero()) {
		// Attributes need the right to write. The mode is set after them.
		exact = false
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return w.at(path, err)
		}
	}
	if kept {
		err = w.skip(fd, e)
	} else {
		err = w.content(fd, e)
	}
	if errors.Is(err, unix.EFBIG) {
		w.step()
		return errors.Join(w.unmakeable(t.fd, path, tree.File, err), unix.Unlinkat(t.fd, e.Name, 0))
	}
	if err != nil {
		return w.at(path, cas.NoSpace(err))
	}
	there := -1
	if kept {
		there = fd
	}
	return errors.Join(w.written(there, path, e), w.setFileMeta(fd, path, e, exact))
}

// setFileMeta sets owner, attributes, mode and time of an open file. exact says that it
// has its mode already, if nothing else changes that.
func (w *writer) setFileMeta(fd int, path string, e *tree.Entry, exact bool) error {
	if err := w.give(fd, path, e); err != nil {
		return w.at(path, err)
	}
	w.step()
	mode, err := w.setXattrs(fd, path, e)
	if err != nil {
		return err
	}
	if !exact || !e.XAttrs.IsZero() {
		w.step()
		err = w.chmod(fd, path, mode)
	}
	// Last of all: who resumes this restore takes the time for the proof that all
	// content is there.
	w.step()
	if err := errors.Join(err, w.setTime(fd, "", path, e)); err != nil {
		return w.at(path, err)
	}
	return nil
}

// skip does for a file that is there already what else happens on the way.
func (w *writer) skip(fd int, e *tree.Entry) error {
	w.meter.Add(0, int64(e.Size))
	w.again.take(e.Hash) // one less that needs it
	return w.stripTo(fd, e)
}

// create makes a new file; it never opens an existing one. exact tells that it has
// its mode already.
func (w *writer) create(t *target, e *tree.Entry) (fd int, exact bool, err error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	w.step()
	fd, err = ignoringEINTR(func() (int, error) { return unix.Openat(t.fd, e.Name, flags, e.Mode) })
	if err != nil {
		return -1, false, err
	}
	t.note(e.Name)
	return fd, w.modes.exact(fd, e.Mode), nil
}

// content writes a file's bytes; runs of zeros become holes.
func (w *writer) content(fd int, e *tree.Entry) error {
	if blob := (cas.Blob{Hash: e.Hash, Size: int64(e.Size)}); blob.Chunked() {
		return w.chunks(fd, blob)
	}
	data, kept := w.again.take(e.Hash)
	if !kept {
		buf := w.bufs.Get().(*[]byte)
		defer w.bufs.Put(buf)
		var err error
		if data, err = w.store.Read(w.ctx, cas.Key{NS: cas.Files, Hash: e.Hash}, (*buf)[:0]); err != nil {
			return err
		}
		*buf = data
		w.again.keep(e.Hash, data)
	}
	if uint64(len(data)) != e.Size {
		return corrupt("%d bytes where %d were saved", len(data), e.Size)
	}
	w.meter.Add(0, int64(len(data)))
	w.step()
	return writeAt(fd, data, 0)
}

// chunks writes a file of several chunks, on all processors.
func (w *writer) chunks(fd int, blob cas.Blob) error {
	chunks, err := cas.Chunks(w.ctx, w.store, cas.Files, blob)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, c := range chunks {
		if c.Zeros() {
			w.meter.Add(0, c.Len)
		}
		if c.Zeros() || ctx.Err() != nil {
			continue
		}
		group.Go(func() error {
			buf := w.bufs.Get().(*[]byte)
			defer w.bufs.Put(buf)
			data, err := w.store.Read(ctx, cas.Key{NS: cas.Files, Hash: c.Hash}, (*buf)[:0])
			if err != nil {
				return err
			}
			*buf = data
			if int64(len(data)) != c.Len {
				return corrupt("a chunk of %d bytes where %d were saved", len(data), c.Len)
			}
			w.meter.Add(0, c.Len)
			w.step()
			return writeAt(fd, data, c.Off)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.step()
	return unix.Ftruncate(fd, blob.Size)
}

// writeAt writes all of data at an offset.
func writeAt(fd int, data []byte, off int64) error {
	for len(data) > 0 {
		n, err := ignoringEINTR(func() (int, error) { return unix.Pwrite(fd, data, off) })
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		data, off = data[n:], off+int64(n)
	}
	return nil
}

// ignoringEINTR repeats a call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
