package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/internal/tasks"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// Files are written in groups of at most groupFiles and about groupBytes bytes,
// each group by one worker.
const (
	groupFiles = 64
	groupBytes = 1 << 20
)

// writer is the state of one restore.
type writer struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc // with the first error
	store   cas.Store
	reader  *tree.Reader
	links   *linkGroups
	again   *repeated
	workers int
	tasks   *tasks.Stack[task]
	bufs    sync.Pool // *[]byte
	modes   modes
	times   times
	owners  owners
	meter   *progress.Meter
	onStep  func() // of tests; nil: nothing
	left    *left  // what a killed restore left; nil: this one began with nothing
	// redacted tells, by path, where values were overwritten; nil: nobody knows.
	redacted func() (map[string][]secrets.Range, error)

	mu      sync.Mutex
	result  Result
	dirs    []dirMeta             // made so far; their modes and times are set at the end
	late    map[string]tree.Entry // by path: directories that get theirs when they have been moved
	further []further             // names to link once their files are there
	unmade  int64                 // entries that the file system cannot hold, with what is in them
	stayed  int64                 // of these, where something else is left
	zeroed  firstPaths            // files with zero bytes in place of secrets
}

// A task is a directory to be restored, or some files of one.
type task struct {
	dir   *target
	files []tree.Entry // none: the directory itself
	keep  bool         // it is made whatever becomes of what is below it
	in    within
}

func newWriter(ctx context.Context, cancel context.CancelCauseFunc, store cas.Store, r *tree.Reader, links *linkGroups, workers int) *writer {
	return &writer{
		ctx: ctx, cancel: cancel, store: store, reader: r, links: links, workers: workers, meter: progress.From(ctx),
		late: map[string]tree.Entry{},
		bufs: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// step comes before each change of the file system, which is where a test kills us.
func (w *writer) step() {
	if w.onStep != nil {
		w.onStep()
	}
}

// dirMeta is a directory whose metadata waits until everything below it is there.
type dirMeta struct {
	path  string
	entry tree.Entry
}

// fill writes everything below the root; the root's own metadata is left to
// finishRoot.
func (w *writer) fill(root *target, src Source, in within) error {
	root.entry.Hash = src.Root
	root.left.Store(2) // one for the caller
	w.tasks = tasks.New(task{dir: root, in: in})
	synced := w.syncMeanwhile(root)
	var wg sync.WaitGroup
	for range w.workers - 1 {
		wg.Go(w.work)
	}
	w.work()
	wg.Wait()
	synced()
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if err := w.linkAll(root); err != nil {
		return err
	}
	// Below before above: a mode may lock its owner out of what lies below.
	slices.SortFunc(w.dirs, func(a, b dirMeta) int { return strings.Compare(b.path, a.path) })
	for _, d := range w.dirs {
		if err := w.finishAt(root, d); err != nil {
			return err
		}
	}
	return context.Cause(w.ctx)
}

// syncPause is how long the disk has nothing to do before it is told to write what
// was made so far. Then the sync at the end has less to wait for.
const syncPause = 200 * time.Millisecond

// syncMeanwhile syncs what is below root now and then until done is called. The
// kernel tells of a failure once, so it counts as one of the sync at the end.
func (w *writer) syncMeanwhile(root *target) (done func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(syncPause):
				w.fail(root.sync())
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// work does tasks until none is left.
func (w *writer) work() {
	w.tasks.Each(func(t task) {
		switch {
		case w.ctx.Err() != nil:
		case t.files != nil:
			w.files(t.dir, t.files)
		default:
			w.dir(t)
		}
		w.release(t.dir)
	})
}

// release says that a task of t is done. After the last one the directory gets its
// metadata and is closed, and is one thing less to do for its parent.
func (w *writer) release(t *target) {
	for ; t != nil && t.left.Add(-1) == 0; t = t.parent {
		if t.made && w.ctx.Err() == nil {
			w.fail(w.finishDir(t))
		}
		t.close()
	}
}

// finishDir sets a directory's metadata, or leaves them for later: a further name
// of a file that comes into it will change its time.
func (w *writer) finishDir(t *target) error {
	if t.scaffold {
		return nil
	}
	w.mu.Lock()
	w.result.Dirs++
	switch {
	case t.late:
		w.late[t.path] = t.entry
	case w.links.any():
		w.dirs = append(w.dirs, dirMeta{path: t.path, entry: t.entry})
	}
	w.mu.Unlock()
	if t.late || w.links.any() {
		return nil
	}
	err := t.inPlace()
	if err == nil {
		w.step()
		err = w.setDirMeta(t.fd, t.path, &t.entry)
	}
	if err != nil {
		return w.at(t.path, err)
	}
	return nil
}

// fail ends the restore with its first error.
func (w *writer) fail(err error) {
	if err != nil {
		w.cancel(err)
	}
}

// failUnless ends the restore with an error that is not harmless.
func (w *writer) failUnless(harmless, err error) {
	if !errors.Is(err, harmless) {
		w.fail(err)
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

func (w *writer) count(files, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Files += files
	w.result.Bytes += bytes
	w.meter.Add(files, 0)
}

// dir restores the entries of a directory: its links and some of its files at once,
// the rest by tasks.
func (w *writer) dir(do task) {
	t := do.dir
	if do.keep {
		if err := t.make(w); err != nil {
			w.failUnless(errUnmakeable, err)
			return
		}
	}
	d, err := w.reader.Open(w.ctx, t.entry.Hash)
	if err != nil {
		w.fail(w.at(t.path, err))
		return
	}
	var later []task
	var first, group []tree.Entry
	var bytes uint64
	flush := func() {
		if first == nil {
			first = group
		} else if len(group) > 0 {
			later = append(later, task{dir: t, files: group})
		}
		group, bytes = nil, 0
	}
	for e, err := range d.Entries(w.ctx, 0) {
		if err != nil {
			w.fail(w.at(t.path, err))
			return
		}
		decision, sub := do.in.decide(&e)
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
				w.failUnless(errUnmakeable, err)
				return
			}
		}
		switch e.Kind {
		case tree.Dir:
			below := &target{parent: t, path: t.path + e.Name + "/", entry: e, scaffold: sub.plan != nil}
			below.late = do.in.plan != nil && !below.scaffold
			below.left.Store(1)
			later = append(later, task{dir: below, keep: decision.Keep, in: sub})
		case tree.Symlink:
			if err := w.symlink(t, &e); err != nil {
				w.fail(err)
				return
			}
		case tree.File:
			if group, bytes = append(group, e), bytes+e.Size; len(group) == groupFiles || bytes >= groupBytes {
				flush()
			}
		}
	}
	flush()
	slices.Reverse(later) // the last that is put is the first to be taken
	t.left.Add(int32(len(later)))
	w.tasks.Put(later...)
	w.files(t, first)
}

// symlink makes a link with the saved text, whatever that leads to.
func (w *writer) symlink(t *target, e *tree.Entry) error {
	kept, err := false, error(nil)
	if w.left != nil {
		kept, err = w.keepLink(t, e)
	}
	if err == nil && !kept {
		w.step()
		if err = unix.Symlinkat(e.Target, t.fd, e.Name); err == nil {
			t.note(e.Name)
		}
	}
	path := t.path + e.Name
	if err = w.unmakeable(t.fd, path, tree.Symlink, err); err != nil {
		if errors.Is(err, errUnmakeable) {
			return nil
		}
		return w.at(path, cas.NoSpace(err))
	}
	if err := w.giveLink(t.fd, path, e); err != nil {
		return w.at(path, err)
	}
	w.step()
	if err := w.setTime(t.fd, e.Name, path, e); err != nil {
		return w.at(path, err)
	}
	w.count(1, 0)
	return nil
}

// files restores some files of one directory.
func (w *writer) files(t *target, entries []tree.Entry) {
	var files, bytes int64
	defer func() { w.count(files, bytes) }()
	for i := range entries {
		if w.ctx.Err() != nil {
			return
		}
		e := &entries[i]
		path := t.path + e.Name
		if first := w.links.claim(path); first != "" {
			w.mu.Lock()
			w.further = append(w.further, further{path: path, first: first, entry: *e})
			w.mu.Unlock()
			continue
		}
		if err := w.file(t, path, e); errors.Is(err, errUnmakeable) {
			continue
		} else if err != nil {
			w.fail(err)
			return
		}
		files, bytes = files+1, bytes+int64(e.Size)
	}
}

// finishAt sets the metadata of a directory below the root that is closed already.
func (w *writer) finishAt(root *target, d dirMeta) error {
	fd, err := root.reopenBelow(d.path)
	if err != nil {
		return w.at(d.path, err)
	}
	defer unix.Close(fd)
	w.step()
	if err := w.setDirMeta(fd, d.path, &d.entry); err != nil {
		return w.at(d.path, err)
	}
	return nil
}

// finishRoot sets the metadata of the target itself and calls last, which takes the
// restore's own trace away; until then the mode has open as well. A directory that was
// there before may belong to somebody else: then it keeps its own.
func (w *writer) finishRoot(root *target, e tree.Entry, open uint32, last func() error) error {
	mode := e.Mode
	fd, err := root.reopenBelow("")
	if err == nil {
		defer unix.Close(fd)
		// An ACL that it had, or inherited, would grant what nobody saved.
		if err = unix.Fremovexattr(root.fd, tree.ACLAccess); errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		if err == nil {
			err = w.give(fd, "", &e)
		}
		if err == nil {
			w.step()
			mode, err = w.setXattrs(fd, "", &e)
		}
		if err == nil {
			err = w.stripTo(fd, &e)
		}
		if err == nil {
			w.step()
			err = errors.Join(unix.Fchmod(fd, mode|open), setTime(fd, "", &e))
		}
	}
	w.step()
	if err := last(); err != nil {
		return err
	}
	if fd >= 0 {
		// What was taken out of it has changed its time.
		w.step()
		again := w.setTime(fd, "", "", &e)
		if err == nil {
			err = errors.Join(w.chmod(fd, "", mode), again)
		}
	}
	if err != nil {
		w.incomplete("", fmt.Errorf("set mode and time: %w", err))
	}
	return nil
}

// setDirMeta sets owner, attributes, mode and time of an open directory.
func (w *writer) setDirMeta(fd int, path string, e *tree.Entry) error {
	if err := w.give(fd, path, e); err != nil {
		return err
	}
	mode, err := w.setXattrs(fd, path, e)
	if err != nil {
		return err
	}
	return errors.Join(w.chmod(fd, path, mode), w.setTime(fd, "", path, e))
}
