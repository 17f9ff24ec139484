package restore

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// A saved file in which secrets were overwritten has zero bytes where a live one may have
// them still, or again. What differs from the saved content there alone is as good as
// that, and is never replaced by it: it would lose the secrets.

// onlySecrets is why such a file is kept.
const onlySecrets = "differs only where secrets were"

// maxRedacted is how many files with zero bytes in place of secrets a result names.
const maxRedacted = 10_000

// A likeness says how far a live file has the saved content.
type likeness uint8

const (
	unlike likeness = iota
	alike           // all of it but where secrets were overwritten
	same
)

// ranges returns where values were overwritten in a saved file. What the list of them
// does not have has none.
func (w *writer) ranges(path string, e *tree.Entry) ([]secrets.Range, error) {
	if e.Flags&tree.Redacted == 0 || w.redacted == nil {
		return nil, nil
	}
	all, err := w.redacted()
	return all[path], err
}

// compare tells how far an open file has the content of the saved one at path, by the
// hashes of its pieces: what the store has is not read, but for a long file's list of
// chunks.
func (w *writer) compare(fd int, path string, e *tree.Entry) (likeness, error) {
	hidden, err := w.ranges(path, e)
	if err != nil {
		return unlike, err
	}
	buf := w.bufs.Get().(*[]byte)
	defer w.bufs.Put(buf)
	return compareContent(w.ctx, w.store, fd, e, hidden, buf)
}

// OnlySecretsDiffer reports whether an open file has the content of a saved one but for
// ranges in which secrets were overwritten, where it has others. It is as long.
func OnlySecretsDiffer(ctx context.Context, store cas.Source, file *os.File, e *tree.Entry, hidden []secrets.Range) (bool, error) {
	var buf []byte
	is, err := compareContent(ctx, store, int(file.Fd()), e, hidden, &buf)
	return is == alike, err
}

// compareContent tells how far an open file has the content of a saved one. Its buffer
// is used.
func compareContent(ctx context.Context, store cas.Source, fd int, e *tree.Entry, hidden []secrets.Range, buf *[]byte) (likeness, error) {
	chunks, err := cas.Chunks(ctx, store, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
	if err != nil {
		return unlike, err
	}
	is := same
	read := func(n, off int64) bool {
		if !readAt(fd, buf, n, off) {
			return false
		}
		if hide(*buf, off, hidden) {
			is = alike
		}
		return true
	}
	for _, c := range chunks {
		if c.Zeros() {
			// A run may be longer than memory.
			for off := c.Off; off < c.Off+c.Len; off += cas.MaxChunk {
				if !read(min(cas.MaxChunk, c.Off+c.Len-off), off) || !zeros(*buf) {
					return unlike, ctx.Err()
				}
			}
			continue
		}
		if !read(c.Len, c.Off) || cas.Data.Sum(*buf) != c.Hash {
			return unlike, ctx.Err()
		}
	}
	return is, nil
}

// hide overwrites what of data, which begins at off of its file, lies in ranges, and
// tells whether that were not zero bytes already.
func hide(data []byte, off int64, ranges []secrets.Range) (some bool) {
	first, _ := slices.BinarySearchFunc(ranges, off, func(r secrets.Range, off int64) int {
		return cmp.Or(cmp.Compare(r.End(), off), -1) // one that ends there has nothing here
	})
	for _, r := range ranges[first:] {
		if r.Off-off >= int64(len(data)) {
			break
		}
		from, to := max(r.Off-off, 0), min(r.End()-off, int64(len(data)))
		if from >= to {
			continue
		}
		part := data[from:to]
		some = some || !zeros(part)
		clear(part)
	}
	return some
}

// zeros reports whether there are zero bytes only.
func zeros(data []byte) bool {
	for i := range data {
		if data[i] != 0 {
			return false
		}
	}
	return true
}

// lacking tells whether an open file with the content of the saved one at path has zero
// bytes where secrets were overwritten.
func (w *writer) lacking(fd int, path string, e *tree.Entry) (bool, error) {
	ranges, err := w.ranges(path, e)
	if err != nil {
		return false, err
	}
	buf := w.bufs.Get().(*[]byte)
	defer w.bufs.Put(buf)
	for _, r := range ranges {
		for off := r.Off; off < min(r.End(), int64(e.Size)); off += cas.MaxChunk {
			if !readAt(fd, buf, min(cas.MaxChunk, r.End()-off, int64(e.Size)-off), off) || !zeros(*buf) {
				return false, w.ctx.Err()
			}
		}
	}
	return true, nil
}

// written notes a file that has zero bytes in place of secrets. fd is one that is there
// already, where somebody may have put them back; else it is -1.
func (w *writer) written(fd int, path string, e *tree.Entry) error {
	if e.Flags&tree.Redacted == 0 {
		return nil
	}
	if fd >= 0 {
		if lacking, err := w.lacking(fd, path, e); !lacking {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zeroed.add(path)
	return nil
}

// linked notes a further name of a file, as written does. dir has the name.
func (w *writer) linked(dir int, name, path string, e *tree.Entry) error {
	if w.left == nil || e.Flags&tree.Redacted == 0 {
		return w.written(-1, path, e)
	}
	fd, err := openFile(dir, name)
	if err != nil {
		return nil // its mode keeps its owner out
	}
	defer unix.Close(fd)
	return w.written(fd, path, e)
}

// filled tells whether a name that an earlier restore of a hard link left is a file of
// its own in which somebody has put secrets back.
func (w *writer) filled(dir int, path string, e *tree.Entry) (bool, error) {
	if e.Flags&tree.Redacted == 0 {
		return false, nil
	}
	fd, err := openFile(dir, e.Name)
	if err != nil {
		return false, nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !w.ours(fd, path, &st, e) {
		return false, err
	}
	is, err := w.compare(fd, path, e)
	return is == alike, err
}

// firstPaths counts paths, and keeps the first of them in their order.
type firstPaths struct {
	list []string
	n    int64
}

func (f *firstPaths) add(paths ...string) {
	for _, path := range paths {
		f.n++
		if f.list = append(f.list, strings.Clone(path)); len(f.list) >= 2*maxRedacted {
			f.list = f.first()
		}
	}
}

// first returns the first paths.
func (f *firstPaths) first() []string {
	slices.Sort(f.list)
	return f.list[:min(len(f.list), maxRedacted)]
}

// name puts files with zero bytes in place of secrets into the result.
func (r *Result) name(all ...*firstPaths) {
	var sum firstPaths
	n := int64(0)
	for _, f := range all {
		sum.add(f.first()...)
		n += f.n
	}
	r.Redacted, r.RedactedFiles = sum.first(), n
}
