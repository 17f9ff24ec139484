package capture

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/tree"
)

// inode is a file's identity while the walk goes on.
type inode struct{ dev, ino uint64 }

// linked is a file with several names. The walk reads it under the name that it
// meets first; the others wait for that.
type linked struct {
	done  chan struct{} // closed when first and ok are final
	first *child
	ok    bool
	paths []string // guarded by the table's mutex
}

// linkTable finds the names of one file.
type linkTable struct {
	mu     sync.Mutex
	inodes map[inode]*linked
}

// claim returns the group of a file with several names, and whether the caller
// is the one to read it and to settle the group. Most files have one name and
// no group.
func (t *linkTable) claim(e *child) (group *linked, first bool) {
	if e.st.Nlink < 2 {
		return nil, false
	}
	id := inode{uint64(e.st.Dev), e.st.Ino}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.inodes[id]; ok {
		return l, false
	}
	l := &linked{done: make(chan struct{}), first: e, paths: []string{e.path}}
	t.inodes[id] = l
	return l, true
}

// settle says what became of the file. A nil group has nobody waiting.
func (l *linked) settle(ok bool) {
	if l == nil {
		return
	}
	l.ok = ok
	close(l.done)
}

// waitingLink is a further name of a file that somebody else reads.
type waitingLink struct {
	e     *child
	group *linked
}

// takeLink gives a further name the entry of the first. Whoever calls it has
// settled all that it claimed, so no two can wait for each other.
func (c *walker) takeLink(l waitingLink) {
	<-l.group.done
	if !l.group.ok {
		if c.ctx.Err() == nil {
			c.problem(l.e.path, errors.New("is a hard link to "+tree.Quote(l.group.first.path)+", which could not be read"))
		}
		return
	}
	first := l.group.first
	if l.e.st.Ino != first.st.Ino {
		c.problem(l.e.path, errReplaced)
		return
	}
	l.e.entry = first.entry
	l.e.entry.Name = l.e.name
	l.e.ok = true
	c.links.mu.Lock()
	l.group.paths = append(l.group.paths, l.e.path)
	c.links.mu.Unlock()
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
