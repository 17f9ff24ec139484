package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// Files are written in groups of at most groupFiles and about groupBytes bytes,
// each group by one goroutine.
const (
	groupFiles = 64
	groupBytes = 1 << 20
)

// writer is the state of one restore.
type writer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // with the first error
	store  cas.Store
	reader *tree.Reader
	links  *linkGroups
	tokens chan struct{} // one for each goroutine beside the first; nil: there are none
	bufs   sync.Pool     // *[]byte

	mu      sync.Mutex
	result  Result
	dirs    []dirMeta // made so far; their modes and times are set at the end
	further []further // names to link once their files are there
}

// newWriter makes a writer that does all in one goroutine, until it gets tokens.
func newWriter(ctx context.Context, cancel context.CancelCauseFunc, store cas.Store, r *tree.Reader, links *linkGroups) *writer {
	return &writer{
		ctx: ctx, cancel: cancel, store: store, reader: r, links: links,
		bufs: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// dirMeta is a directory whose metadata waits until everything below it is there.
type dirMeta struct {
	path  string
	entry tree.Entry
}

// fill writes everything below the root; the root's own metadata is left to
// finishRoot.
func (w *writer) fill(root *target, src Source, files *policy.Files) error {
	w.dir(root, src.Root, files.Root())
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if err := w.linkAll(root); err != nil {
		return err
	}
	// Below before above: a mode may lock its owner out of what lies below.
	slices.SortFunc(w.dirs, func(a, b dirMeta) int { return strings.Compare(b.path, a.path) })
	for _, d := range w.dirs {
		if err := w.finishDir(root, d); err != nil {
			return err
		}
	}
	return context.Cause(w.ctx)
}

// fail ends the restore with its first error.
func (w *writer) fail(err error) {
	if err != nil {
		w.cancel(err)
	}
}

// at says where an error happened.
func (w *writer) at(path string, err error) error {
	return fmt.Errorf("restore %s: %w", tree.Quote(shown(path)), err)
}

// shown is a path as users know it: the root is ".", no directory ends in a
// slash.
func shown(path string) string {
	if path == "" {
		return "."
	}
	return strings.TrimSuffix(path, "/")
}

func (w *writer) incomplete(path string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Incomplete = append(w.result.Incomplete, Problem{Path: shown(path), Err: err})
}

func (w *writer) addDir(t *target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Dirs++
	w.dirs = append(w.dirs, dirMeta{path: t.path, entry: t.entry})
}

func (w *writer) count(files, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Files += files
	w.result.Bytes += bytes
}

// spawn runs fn beside the caller if a token is free, else at once.
func (w *writer) spawn(wg *sync.WaitGroup, fn func()) {
	select {
	case w.tokens <- struct{}{}:
		wg.Go(func() {
			defer func() { <-w.tokens }()
			fn()
		})
	default:
		fn()
	}
}

// dir restores the entries of one directory object into t.
func (w *writer) dir(t *target, h cas.Hash, scope policy.Scope) {
	d, err := w.reader.Open(w.ctx, h)
	if err != nil {
		w.fail(w.at(t.path, err))
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var group []tree.Entry
	var bytes uint64
	flush := func() {
		files := group
		group, bytes = nil, 0
		w.spawn(&wg, func() { w.files(t, files) })
	}
	for e, err := range d.Entries(w.ctx, 0) {
		if err != nil {
			w.fail(w.at(t.path, err))
			return
		}
		if w.ctx.Err() != nil {
			return
		}
		decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
		if !decision.Keep && !decision.Descend {
			if decision.Rule.Pattern != "" {
				w.mu.Lock()
				w.result.Skipped++
				w.mu.Unlock()
			}
			continue
		}
		if e.Kind != tree.Dir || decision.Keep {
			if err := t.make(w); err != nil {
				w.fail(err)
				return
			}
		}
		switch e.Kind {
		case tree.Dir:
			w.spawn(&wg, func() { w.subdir(t, e, decision, sub) })
		case tree.Symlink:
			w.fail(w.symlink(t, &e))
		case tree.File:
			if group, bytes = append(group, e), bytes+e.Size; len(group) == groupFiles || bytes >= groupBytes {
				flush()
			}
		}
	}
	if len(group) > 0 {
		flush()
	}
}

// subdir restores a directory, which itself is made at once only if it is kept.
func (w *writer) subdir(t *target, e tree.Entry, decision policy.Decision, scope policy.Scope) {
	sub := &target{parent: t, path: t.path + e.Name + "/", entry: e}
	defer sub.close()
	if decision.Keep {
		if err := sub.make(w); err != nil {
			w.fail(err)
			return
		}
	}
	w.dir(sub, e.Hash, scope)
}

// symlink makes a link with the saved text, whatever that leads to.
func (w *writer) symlink(t *target, e *tree.Entry) error {
	if err := unix.Symlinkat(e.Target, t.fd, e.Name); err != nil {
		return w.at(t.path+e.Name, noSpace(err))
	}
	t.note(e.Name)
	if err := setTime(t.fd, e.Name, e); err != nil {
		return w.at(t.path+e.Name, err)
	}
	w.count(1, 0)
	return nil
}

// files restores some files of one directory.
func (w *writer) files(t *target, entries []tree.Entry) {
	for i := range entries {
		if w.ctx.Err() != nil {
			return
		}
		e := &entries[i]
		path := t.path + e.Name
		if first := w.links.claim(path); first != "" {
			w.mu.Lock()
			w.further = append(w.further, further{path: path, first: first})
			w.mu.Unlock()
			continue
		}
		if err := w.file(t, path, e); err != nil {
			w.fail(err)
			return
		}
		w.count(1, int64(e.Size))
	}
}

// file restores one file: content, attributes, mode, times.
func (w *writer) file(t *target, path string, e *tree.Entry) (err error) {
	f, err := t.create(e.Name)
	if err != nil {
		return w.at(path, noSpace(err))
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = w.at(path, noSpace(cerr))
		}
	}()
	if err := w.content(f, e); err != nil {
		return w.at(path, noSpace(err))
	}
	fd := int(f.Fd())
	mode, err := w.setXattrs(fd, path, e)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Fchmod(fd, mode), setTime(fd, "", e)); err != nil {
		return w.at(path, err)
	}
	return nil
}

// content writes a file's bytes; runs of zeros become holes.
func (w *writer) content(f *os.File, e *tree.Entry) error {
	blob := cas.Blob{Hash: e.Hash, Size: int64(e.Size)}
	if !blob.Chunked() {
		buf := w.bufs.Get().(*[]byte)
		defer w.bufs.Put(buf)
		data, err := w.store.Read(w.ctx, cas.Key{NS: cas.Files, Hash: e.Hash}, (*buf)[:0])
		if err != nil {
			return err
		}
		*buf = data
		if int64(len(data)) != blob.Size {
			return corrupt("%d bytes where %d were saved", len(data), blob.Size)
		}
		if len(data) > 0 {
			_, err = f.Write(data)
		}
		return err
	}
	err := cas.EachChunk(w.ctx, w.store, cas.Files, blob, func(c cas.Chunk, data []byte) error {
		if c.Zeros() {
			_, err := f.Seek(c.Len, io.SeekCurrent)
			return err
		}
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return f.Truncate(blob.Size)
}

// finishDir sets the metadata of a directory below the root.
func (w *writer) finishDir(root *target, d dirMeta) error {
	fd, err := root.openBelow(d.path)
	if err != nil {
		return w.at(d.path, err)
	}
	defer unix.Close(fd)
	if err := w.setDirMeta(fd, d.path, &d.entry); err != nil {
		return w.at(d.path, err)
	}
	return nil
}

// finishRoot sets the metadata of the target itself. A directory that was there
// before may belong to somebody else: then it keeps its own.
func (w *writer) finishRoot(root *target, e tree.Entry) {
	fd, err := root.openBelow("")
	if err == nil {
		defer unix.Close(fd)
		// An ACL that it had, or inherited, would grant what nobody saved.
		if err = unix.Fremovexattr(root.fd, tree.ACLAccess); errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		if err == nil {
			err = w.setDirMeta(fd, "", &e)
		}
	}
	if err != nil {
		w.incomplete("", fmt.Errorf("set mode and time: %w", err))
	}
}

// setDirMeta sets attributes, mode and time of the directory at an O_PATH
// descriptor.
func (w *writer) setDirMeta(pathFD int, path string, e *tree.Entry) error {
	fd, err := unix.Openat(pathFD, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode, err := w.setXattrs(fd, path, e)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fchmod(fd, mode), setTime(fd, "", e))
}
