package capture

import (
	"runtime"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// A task is a stretch of a directory's children that somebody has to look at: a
// directory below it alone, others together. An empty one is the root, which has to
// be listed.
type task struct {
	dir      *directory
	children []child // which the directory itself may have given up by now: see [worker.children]
}

// stretch is how many files of one directory make a task.
const stretch = 64

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
		t, ok := w.tasks.Take(false)
		if !ok {
			w.storeFiles()
			if t, ok = w.tasks.Take(true); !ok {
				break
			}
		}
		w.do(t)
		w.tasks.Done()
	}
	w.storeFiles()
	w.storeTrees()
}

// do looks at a stretch of children, or lists the root.
func (w *worker) do(t task) {
	if t.children == nil {
		w.enter(t.dir, w.opt.Files.Root().Bounded(&w.budget))
		return
	}
	w.children(t)
}

// children looks at a stretch of children. Those that belong to a database may have
// settled with it, and if they were the last the directory is a tree already.
func (w *worker) children(t task) {
	defer t.dir.release()
	for i := range t.children {
		if w.ctx.Err() != nil {
			return // nothing is made of the tree: who waits for it need not know
		}
		w.child(t.dir, &t.children[i])
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
