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

// Small files are stored in batches: one lookup answers for all files of a batch.
// A file longer than batchBytes goes alone.
const (
	batchFiles = 128
	batchBytes = cas.ChunkedSize
)

// tries is how often a file that changes under the reader is read.
const tries = 3

var (
	errChanging   = errors.New("changed each time it was read (tried 3 times)")
	errNotRegular = errors.New("is no regular file any more")
)

// batch is files that were read and not stored yet.
type batch struct {
	buf   []byte // their contents
	files []pendingFile
	objs  []cas.Object
}

// pendingFile is a file of a batch.
type pendingFile struct {
	foundFile
	data []byte // part of the batch's buffer
}

// foundFile is a file that is being captured.
type foundFile struct {
	dir   *directory
	e     *child
	st    unix.Stat_t // as it was when it was read
	group *linked     // of its names; nil for most
}

// file captures one name of a file and settles it.
func (w *worker) file(d *directory, e *child) {
	path := d.pathOf(e)
	st, err := d.fd.look(e.entry.Name)
	switch {
	case err != nil:
		err = vanished(err)
	case kindOf(&st) != unix.DT_REG:
		err = errReplaced
	default:
		err = w.fits(st.Size)
	}
	if err != nil {
		w.problem(path, err)
		w.settle(d)
		return
	}
	if w.looked != nil {
		w.looked(path)
	}
	group, first := w.links.claim(d, e, &st)
	if group != nil && !first {
		if group = w.links.wait(group, d, e); group != nil {
			w.takeLink(group, d, e)
		}
		return
	}
	f := foundFile{dir: d, e: e, st: st, group: group}
	if w.unchanged(&f) {
		w.settleFile(&f, true)
		return
	}
	if st.Size > batchBytes {
		w.storeLarge(&f)
		return
	}
	if len(w.files.files) == batchFiles || len(w.files.buf)+int(st.Size) > batchBytes {
		w.storeFiles()
	}
	data, err := w.readSmall(&f)
	switch {
	case errors.Is(err, errGrown):
		w.storeLarge(&f)
	case err != nil:
		w.problem(path, vanished(err))
		w.settleFile(&f, false)
	default:
		w.files.files = append(w.files.files, pendingFile{f, data})
	}
}

// fits refuses a file that is longer than the user allows.
func (w *worker) fits(size int64) error {
	if limit := w.opt.MaxFileSize; limit > 0 && size > limit {
		return fmt.Errorf("%d bytes long, the limit is %d: %w", size, limit, cas.ErrTooLarge)
	}
	return nil
}

// unchanged completes the entry of a file that the last capture knows.
func (w *worker) unchanged(f *foundFile) bool {
	known, ok := w.known.find(f.st.Ino)
	if !ok || !known.sameContent(&f.st) {
		return false
	}
	xattrs := known.xattrs()
	if !known.same(&f.st) {
		// Its metadata were changed, and attributes may be among them.
		fd, err := f.dir.fd.open(f.e.entry.Name, 0)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		var now unix.Stat_t
		if err := unix.Fstat(fd, &now); err != nil || !known.sameContent(&now) {
			return false
		}
		if xattrs, err = w.xattrs(fd); err != nil {
			return false
		}
		f.st = now
	}
	w.complete(f, xattrs)
	f.e.entry.Hash = known.hash()
	return true
}

// complete makes the entry of a file, but for its hash.
func (w *worker) complete(f *foundFile, xattrs cas.Hash) {
	w.fill(&f.e.entry, f.dir.pathOf(f.e), &f.st, tree.File)
	f.e.entry.Size, f.e.entry.XAttrs = uint64(f.st.Size), xattrs
}

// settleFile says what became of a file. When it is in the store and its entry is
// complete, ok is true.
func (w *worker) settleFile(f *foundFile, ok bool) {
	f.e.ok = ok
	if ok {
		w.see(&f.st, f.dir.since, f.e.entry.Hash, f.e.entry.XAttrs)
	}
	if f.group != nil {
		for _, other := range w.links.settle(f.group, f.st.Ino, ok) {
			w.takeLink(f.group, other.dir, other.e)
		}
	}
	w.settle(f.dir)
}

// storeFiles stores what the batch has.
func (w *worker) storeFiles() {
	b := &w.files
	if len(b.files) == 0 || w.ctx.Err() != nil {
		return
	}
	for i := range b.files {
		b.objs = append(b.objs, cas.NewObject(cas.Files, cas.Data, b.files[i].data))
	}
	err := w.w.Put(w.ctx, b.objs...)
	if err != nil {
		w.cancel(fmt.Errorf("store files: %w", err))
	}
	for i := range b.files {
		f := &b.files[i]
		f.e.entry.Hash = b.objs[i].Key.Hash
		w.settleFile(&f.foundFile, err == nil)
	}
	b.buf, b.files, b.objs = b.buf[:0], b.files[:0], b.objs[:0]
}

// storeLarge reads, stores and settles a file that goes alone.
func (w *worker) storeLarge(f *foundFile) {
	path := f.dir.pathOf(f.e)
	var blob cas.Blob
	err := w.readStable(f, func(fd int, size int64) (int64, error) {
		// One byte more than it is long: one that grows without end is not
		// followed.
		in := &fileReader{fd: fd, left: size + 1, path: path}
		var err error
		blob, err = cas.WriteBlob(w.ctx, w.w, cas.Files, in)
		if err != nil && in.err == nil {
			w.cancel(fmt.Errorf("store %s: %w", tree.Quote(path), err))
		}
		return blob.Size, err
	})
	if err != nil {
		w.problem(path, vanished(err))
	}
	f.e.entry.Hash = blob.Hash
	w.settleFile(f, err == nil)
}

// fileReader reads an open file, at most left bytes, and remembers whether it was
// the file that failed.
type fileReader struct {
	fd   int
	left int64
	path string
	err  error
}

// Read implements [io.Reader].
func (r *fileReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(r.fd, p[:min(int64(len(p)), r.left)]) })
	switch {
	case err != nil:
		r.err = &os.PathError{Op: "read", Path: tree.Quote(r.path), Err: err}
		return 0, r.err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	r.left -= int64(n)
	return n, nil
}

// errGrown: a small file no longer fits into its batch.
var errGrown = errors.New("grew while it was being saved")

// readSmall reads a small file into the batch's buffer and completes its entry.
func (w *worker) readSmall(f *foundFile) (data []byte, err error) {
	b := &w.files
	if b.buf == nil {
		b.buf = make([]byte, 0, batchBytes+1)
	}
	start := len(b.buf)
	err = w.readStable(f, func(fd int, size int64) (int64, error) {
		if size > int64(cap(b.buf)-start-1) {
			return 0, errGrown
		}
		// One byte more than it is long: a file that grew shows at once.
		data = b.buf[start : start+int(size)+1]
		n := 0
		for {
			got, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[n:]) })
			if err != nil {
				return 0, err
			}
			if n += got; n >= int(size) || got == 0 {
				break // whether more than size were there, its new size tells
			}
		}
		data = data[:n]
		return int64(n), nil
	})
	if err == nil {
		b.buf = b.buf[:start+len(data)]
	}
	return data, err
}

// readStable opens a file, has read take its content, looks whether it held still
// meanwhile, else begins anew, and completes its entry. read gets the length to
// expect and returns how many bytes it took.
func (w *worker) readStable(f *foundFile, read func(fd int, size int64) (int64, error)) error {
	for try := range tries {
		stable, err := w.readOnce(f, try > 0, read)
		if stable || err != nil {
			return err
		}
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
	}
	return errChanging
}

// readOnce is one try. The first goes by what the name was when it was looked at,
// further ones by the open file.
func (w *worker) readOnce(f *foundFile, again bool, read func(fd int, size int64) (int64, error)) (stable bool, err error) {
	fd, err := f.dir.fd.open(f.e.entry.Name, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if again {
		if err := unix.Fstat(fd, &f.st); err != nil {
			return false, err
		}
		if kindOf(&f.st) != unix.DT_REG {
			return false, errNotRegular
		}
	}
	before := f.st
	n, err := read(fd, before.Size)
	if err != nil {
		if !again && unix.Fstat(fd, &f.st) == nil && kindOf(&f.st) != unix.DT_REG {
			err = errNotRegular
		}
		return false, err
	}
	xattrs, err := w.xattrs(fd)
	if err != nil {
		return false, err
	}
	if err := unix.Fstat(fd, &f.st); err != nil {
		return false, err
	}
	after := &f.st
	if n != before.Size || before.Ino != after.Ino || before.Dev != after.Dev ||
		before.Size != after.Size || before.Mtim != after.Mtim || before.Ctim != after.Ctim {
		return false, nil
	}
	w.complete(f, xattrs)
	return true, nil
}
