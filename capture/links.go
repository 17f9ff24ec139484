package capture

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// inode is a file's identity while the walk goes on.
type inode struct{ dev, ino uint64 }

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
// is the one to read it and to settle the group. Most files have one name and
// no group.
func (t *linkTable) claim(d *directory, e *child, st *unix.Stat_t) (group *linked, first bool) {
	if st.Nlink < 2 {
		return nil, false
	}
	id := inode{uint64(st.Dev), st.Ino}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.inodes[id]; ok {
		return l, false
	}
	path := d.pathOf(e)
	l := &linked{ino: st.Ino, first: path, entry: &e.entry, paths: []string{path}}
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
	group, first := w.links.claim(d, e, st)
	if group == nil || first {
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
	var groups [][]string
	for _, l := range t.inodes {
		if l.ok && len(l.paths) > 1 {
			slices.Sort(l.paths)
			groups = append(groups, l.paths)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return groups
}
