package capture

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// inode is a file's identity while the walk goes on. Names of one file for which other
// findings are allowed are read apart: some may have to stay out.
type inode struct {
	dev, ino uint64
	allowed  string
}

// linked is a file with several names. The walk reads it under the name that it
// meets first; the others wait for that.
type linked struct {
	ino   uint64
	first string // path of the first name
	entry *tree.Entry

	// Guarded by the table's mutex.
	settled bool
	ok      bool
	dropped bool // setuid or setgid bits, of every name
	secrets screened
	waiting []waitingLink
	paths   []string
}

// waitingLink is a further name of a file that is being read.
type waitingLink struct {
	dir *directory
	e   *child
}

// linkTable finds the names of one file.
type linkTable struct {
	mu     sync.Mutex
	inodes map[inode]*linked
}

// claim returns the group of a file with several names, and whether the caller
// is the one to read it and to settle the group.
func (t *linkTable) claim(path string, e *child, id inode) (group *linked, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.inodes[id]; ok {
		return l, false
	}
	l := &linked{ino: id.ino, first: path, entry: &e.entry, paths: []string{path}}
	t.inodes[id] = l
	return l, true
}

// wait leaves a further name to whoever settles its group, or returns the group if
// that has been done.
func (t *linkTable) wait(l *linked, d *directory, e *child) *linked {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.settled {
		return l
	}
	l.waiting = append(l.waiting, waitingLink{d, e})
	return nil
}

// settle says what became of the file, and how it was when it was read. It returns
// who has waited.
func (t *linkTable) settle(l *linked, st *unix.Stat_t, ok bool, found screened) []waitingLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.secrets = found
	l.dropped = st.Mode&droppedBits != 0
	if l.settled = true; ok && st.Ino != l.ino {
		l.ino = 0 // the name led to another file by then: the others are not that
	}
	// The entry goes with its directory.
	entry := *l.entry
	l.entry, l.ok = &entry, ok
	waiting := l.waiting
	l.waiting = nil
	return waiting
}

// add notes a further name that got into the tree.
func (t *linkTable) add(l *linked, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.paths = append(l.paths, path)
}

// claimed returns the group of a name that was looked at. done: somebody else reads the
// file under another name, who settles this one too.
func (w *worker) claimed(d *directory, e *child, st *unix.Stat_t) (group *linked, done bool) {
	if st.Nlink < 2 { // most have one name, and no group
		return nil, false
	}
	path := d.pathOf(e)
	group, first := w.links.claim(path, e, inode{uint64(st.Dev), st.Ino, w.opt.Screen.class(path)})
	if first {
		return group, false
	}
	if group = w.links.wait(group, d, e); group != nil {
		w.takeLink(group, d, e)
	}
	return nil, true
}

// takeLink gives a further name the entry of the first, which is settled, and
// settles it.
func (w *worker) takeLink(l *linked, d *directory, e *child) {
	path := d.pathOf(e)
	switch {
	case l.secrets.left != noReason:
		w.tellSecrets(path, l.secrets)
	case !l.ok:
		w.problem(path, errors.New("is a hard link to "+tree.Quote(l.first)+", which could not be read"))
	case l.ino == 0:
		w.problem(path, errReplaced)
	default:
		name := e.entry.Name
		e.entry = *l.entry
		e.entry.Name, e.ok = name, true
		if l.dropped {
			w.omitBits(path)
		}
		w.links.add(l, path)
		w.tellSecrets(path, l.secrets)
	}
	w.settle(d)
}

// groups returns the groups of two or more saved names, sorted.
func (t *linkTable) groups() [][]string {
	// Names that were read apart and have the same content are one file still.
	type file struct {
		dev, ino uint64
		hash     cas.Hash
	}
	paths := map[file][]string{}
	for id, l := range t.inodes {
		if l.ok && l.ino != 0 {
			f := file{id.dev, l.ino, l.entry.Hash}
			paths[f] = append(paths[f], l.paths...)
		}
	}
	var groups [][]string
	for _, group := range paths {
		if len(group) > 1 {
			slices.Sort(group)
			groups = append(groups, group)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return groups
}
