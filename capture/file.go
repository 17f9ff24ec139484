package capture

import (
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
	held  stillness   // while it was read

	secrets screened // what was found in it
	whole   bool     // it is part of a database

	hash, xattrs cas.Hash
	counted      int64 // bytes that the meter has, while it is read or read again
}

// file captures one name of a file and settles it.
func (w *worker) file(d *directory, e *child) {
	if e.unit != nil {
		w.unit(d, e.unit)
		return
	}
	w.single(d, e)
}

// single captures a file that stands for itself.
func (w *worker) single(d *directory, e *child) {
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
		w.problem(d.pathOf(e), err)
		w.settle(d)
		return
	}
	if w.looked != nil {
		w.looked(d.pathOf(e))
	}
	if w.full(d, e.entry.Name, st.Size) {
		w.settle(d)
		return
	}
	group, done := w.claimed(d, e, &st)
	if done {
		return
	}
	f := foundFile{dir: d, e: e, st: st, group: group}
	if w.plan != nil {
		w.planFile(&f)
		return
	}
	if w.unchanged(&f) {
		w.settleFile(&f, f.secrets.left == noReason)
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
	case errors.Is(err, errOutgrown):
		w.storeLarge(&f)
	case errors.Is(err, errAccompanied):
		w.database(d, &unit{db: e}, group)
	case err != nil:
		w.problem(d.pathOf(e), vanished(err))
		w.settleFile(&f, false)
	case !w.screen(&f, data):
		w.files.buf = w.files.buf[:len(w.files.buf)-len(data)]
		w.settleFile(&f, false)
	default:
		w.files.files = append(w.files.files, pendingFile{f, data})
	}
}

// unchanged takes what the last capture knows of a file that has not changed.
func (w *worker) unchanged(f *foundFile) bool {
	known, ok := w.recall(f.dir.fd, &f.st, f.e.entry.Name)
	if !ok || !known.sameContent(&f.st) || !w.recallSecrets(f, known) {
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
		if xattrs, f.secrets.hides, err = w.xattrs(fd); err != nil {
			return false
		}
		f.st = now
	}
	f.hash, f.xattrs = known.hash(), xattrs
	return true
}

// settleFile says what became of a file. When it is in the store, ok is true, and its
// entry is completed.
func (w *worker) settleFile(f *foundFile, ok bool) {
	f.e.ok = ok
	left := f.secrets.left != noReason
	if left {
		w.see(f.dir.fd, f.e.entry.Name, &f.st, f.dir.since, cas.Hash{}, cas.Hash{}, &f.secrets)
	}
	if ok {
		w.lacks(f)
	}
	if ok || left {
		w.tellSecrets(f.dir.pathOf(f.e), f.secrets)
	}
	if ok {
		w.fill(&f.e.entry, f.dir.path, &f.st, tree.File)
		f.e.entry.Size, f.e.entry.Hash, f.e.entry.XAttrs = uint64(f.st.Size), f.hash, f.xattrs
		if len(f.secrets.report.Redacted) > 0 {
			f.e.entry.Flags |= tree.Redacted
		}
		if f.held == still {
			w.see(f.dir.fd, f.e.entry.Name, &f.st, f.dir.since, f.hash, f.xattrs, &f.secrets)
		}
		w.tellHeld(f)
		w.meter.Add(1, f.st.Size-f.counted)
	}
	if f.group != nil {
		for _, other := range w.links.settle(f.group, &f.st, ok, f.secrets) {
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
		f.hash = b.objs[i].Key.Hash
		w.settleFile(&f.foundFile, err == nil)
	}
	b.buf, b.files, b.objs = b.buf[:0], b.files[:0], b.objs[:0]
}

// storeLarge reads, stores and settles a file that goes alone.
func (w *worker) storeLarge(f *foundFile) {
	err := w.readStable(f, func(fd int, size int64) (taken, error) { return w.storeBlob(f, fd, size) })
	if errors.Is(err, errAccompanied) {
		w.database(f.dir, &unit{db: f.e}, f.group)
		return
	}
	if err != nil && f.secrets.left == noReason {
		w.problem(f.dir.pathOf(f.e), vanished(err))
	}
	w.settleFile(f, err == nil)
}

// storeBlob reads and stores size bytes of an open file, or as many as there are. A
// store that fails ends the capture.
func (w *worker) storeBlob(f *foundFile, fd int, size int64) (taken, error) {
	in := &fileReader{fd: fd, left: size, path: f.dir.pathOf(f.e), file: f, walker: w.walker}
	content, read := w.screening(f, in)
	blob, err := cas.WriteBlob(w.ctx, w.w, cas.Files, content)
	read(err)
	if err != nil && in.err == nil && f.secrets.left == noReason {
		w.cancel(fmt.Errorf("store %s: %w", tree.Quote(in.path), err))
	}
	f.hash = blob.Hash
	return in.got, err
}

// fileReader reads an open file, at most left bytes, and remembers whether it was
// the file that failed.
type fileReader struct {
	fd   int
	left int64
	path string
	got  taken
	err  error

	file   *foundFile
	walker *walker
}

// Read implements [io.Reader].
func (r *fileReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := ignoringEINTR(func() (int, error) { return unix.Pread(r.fd, p[:min(int64(len(p)), r.left)], r.got.size) })
	switch {
	case err != nil:
		r.err = &os.PathError{Op: "read", Path: tree.Quote(r.path), Err: err}
		return 0, r.err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	r.left -= int64(n)
	r.got.note(p[:n])
	r.walker.read.Add(int64(n))
	r.count()
	return n, nil
}

// SkipHole implements [cas.HoleSkipper].
func (r *fileReader) SkipHole() (int64, error) {
	next, err := unix.Seek(r.fd, r.got.size, unix.SEEK_DATA)
	n := (next - r.got.size) / cas.ZeroBlock * cas.ZeroBlock
	switch {
	case err == unix.ENXIO: // there are no more data; what was cut off is no hole
		var st unix.Stat_t
		if unix.Fstat(r.fd, &st) == nil {
			n = min(r.left, max(st.Size-r.got.size, 0))
		}
	case err != nil || n < 0: // the file system does not tell
		n = 0
	}
	n = min(n, r.left)
	r.left -= n
	r.got.size += n
	r.count()
	return n, nil
}

// count shows bytes of the file on the meter. What is read again shows once.
func (r *fileReader) count() {
	if more := r.got.size - r.file.counted; more > 0 {
		r.walker.meter.Add(0, more)
		r.file.counted = r.got.size
	}
}

// errOutgrown: a small file no longer fits into its batch.
var errOutgrown = errors.New("grew while it was read")

// readSmall reads a small file into the batch's buffer.
func (w *worker) readSmall(f *foundFile) (data []byte, err error) {
	b := &w.files
	if b.buf == nil {
		b.buf = make([]byte, 0, batchBytes+1)
	}
	start := len(b.buf)
	err = w.readStable(f, func(fd int, size int64) (taken, error) {
		if size > int64(cap(b.buf)-start-1) {
			return taken{}, errOutgrown
		}
		// One byte more than it is long: a file that grew shows at once.
		data = b.buf[start : start+int(size)+1]
		n := 0
		for {
			got, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[n:]) })
			if err != nil {
				return taken{}, err
			}
			if n += got; n >= int(size) || got == 0 {
				break // whether more than size were there, its new size tells
			}
		}
		data = data[:n]
		w.read.Add(int64(n))
		return taken{int64(n), data[:min(headBytes, n)]}, nil
	})
	if err == nil {
		data = data[:f.st.Size]
		b.buf = b.buf[:start+len(data)]
	}
	return data, err
}
