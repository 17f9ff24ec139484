package capture

import (
	"runtime"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// A task is a stretch of a directory's children that somebody has to look at: a
// directory below it alone, others together.
type task struct {
	dir      *directory
	from, to int
}

// stretch is how many files of one directory make a task.
const stretch = 64

// tasks is what is left to do. The last put comes first, so that few directories
// are open at a time.
type tasks struct {
	mu      sync.Mutex
	changed sync.Cond
	stack   []task
	open    int // in the stack, or taken and not done
	waiting int // workers that have nothing to do
}

// put adds tasks; the last of them is the next to be taken.
func (t *tasks) put(more ...task) {
	if len(more) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stack = append(t.stack, more...)
	t.open += len(more)
	for range min(len(more), t.waiting) {
		t.changed.Signal()
	}
}

// take returns the next task. With wait it waits for one until all are done;
// without, it returns false at once.
func (t *tasks) take(wait bool) (next task, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.stack) == 0 {
		if t.open == 0 || !wait {
			return task{}, false
		}
		t.waiting++
		t.changed.Wait()
		t.waiting--
	}
	next = t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
	return next, true
}

// done says that a task which was taken is over.
func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 {
		t.changed.Broadcast()
	}
}

// A worker does tasks. What it reads it gathers across directories, so that one
// lookup answers for many files however few of them a directory has.
type worker struct {
	*walker
	files   batch
	trees   []cas.Object // directories and attributes, not stored yet
	seen    []byte       // what it found, for the next capture
	builder tree.Builder
	names   []byte // buffer of readNames
}

// workers is how many there are: more than processors, since a disk that has to
// be read has several reads at once.
func workers() int { return 2 * runtime.GOMAXPROCS(0) }

// work does tasks until none is left. Before it waits for one it stores what it
// has read.
func (w *worker) work() {
	for {
		t, ok := w.tasks.take(false)
		if !ok {
			w.storeFiles()
			if t, ok = w.tasks.take(true); !ok {
				break
			}
		}
		w.do(t)
		w.tasks.done()
	}
	w.storeFiles()
	w.storeTrees()
}

// do looks at a stretch of children.
func (w *worker) do(t task) {
	defer t.dir.release()
	for i := t.from; i < t.to; i++ {
		if w.ctx.Err() != nil {
			return // nothing is made of the tree: who waits for it need not know
		}
		w.child(t.dir, &t.dir.children[i])
	}
}

// storeTrees stores directories and attributes, many at a time.
func (w *worker) storeTrees() {
	if len(w.trees) == 0 || w.ctx.Err() != nil {
		return
	}
	if err := w.w.Put(w.ctx, w.trees...); err != nil {
		w.cancel(err)
	}
	w.trees = w.trees[:0]
}

// addTrees takes objects of the trees namespace, to be stored with others.
func (w *worker) addTrees(objs ...cas.Object) {
	const many = 256
	if w.trees = append(w.trees, objs...); len(w.trees) >= many {
		w.storeTrees()
	}
}
