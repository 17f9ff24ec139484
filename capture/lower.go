package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// A Lower is the saved tree over which overlayfs keeps what was changed in a workspace. A
// capture that has one reads the changes, and of the tree the directories in which
// something changed.
//
// It relies on that the tree was captured with the same rules and settings, without declared
// secrets, and has no files that are torn or redacted; that what looks like a secret is not
// left out; that nothing is mounted in the workspace; and that overlayfs has
// index=off and metacopy=off.
type Lower struct {
	Upper    string       // directory with the changes (overlayfs' upperdir)
	Trees    *tree.Reader // has the tree
	Blobs    cas.Source   // has the contents of ignore files in it
	Root     cas.Hash
	UID, GID uint32              // its default owner
	Links    [][]string          // its groups of hard links
	Secrets  []SecretFile        // what was found in its files
	Ignore   []policy.IgnoreFile // that were in force
}

var (
	// ErrNeedsScan: what was changed, and the saved tree, do not tell what a capture of the
	// whole workspace would make of it.
	ErrNeedsScan = errors.New("all of the workspace has to be read")
	// ErrMetacopy: a file in overlayfs' upper directory has no content of its own.
	ErrMetacopy = errors.New("overlayfs keeps only metadata of it (metacopy)")
)

// Discard returns a writer that stores nothing.
func Discard() cas.Writer { return discard{} }

// A savedDir is a directory of the saved tree that shows below one of the upper directory.
type savedDir struct {
	hash cas.Hash
	path string // in the saved tree, as of [directory]
}

// lowerState is what a capture finds out about the saved tree.
type lowerState struct {
	*Lower
	mounted string // the workspace
	mu      sync.Mutex
	shown   map[string]*shownDir // by path in the saved tree, as of [directory]
	moved   bool                 // one of them shows elsewhere
}

// shownDir is where a directory of the saved tree shows, together with one of the upper
// directory, and which of its names do not, or show in a directory of their own.
type shownDir struct {
	path   string // in the workspace, as of [directory]
	hidden map[string]bool
}

// openMounted opens a file of the workspace itself; -1: it cannot, as when that is not
// mounted now.
func (l *lowerState) openMounted(path string) int {
	root, err := OpenRoot(l.mounted)
	if err != nil {
		return -1
	}
	defer root.Close()
	f, err := root.open(path)
	if err != nil {
		return -1
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// needsScan ends the capture: it takes all of the workspace.
func (c *walker) needsScan(format string, args ...any) {
	c.cancel(fmt.Errorf("%w: %s", ErrNeedsScan, fmt.Sprintf(format, args...)))
}

// begin looks at what keeps a lower from being of use at all.
func (l *lowerState) begin(c *walker, root *directory) error {
	needs := func(why string) error { return fmt.Errorf("%w: %s", ErrNeedsScan, why) }
	switch {
	case c.opt.Files.Restricted():
		return needs("the policy has includes")
	case c.opt.Settings.ExcludeCaches:
		return needs("the policy leaves out cache directories")
	case len(c.opt.Screen.Before) > 0, c.opt.Screen.Declared.Len() > 0:
		return needs("secrets are declared, or were")
	case root.st.Uid != l.UID || root.st.Gid != l.GID:
		return needs("the workspace's root has another owner")
	case c.opt.Settings.MaxSize > 0:
		return needs("the policy has a limit for all files together")
	}
	if mark, err := overlayAttr(root.fd.fd, LowerMark); err != nil {
		return err
	} else if mark == "" {
		return needs("this process may not see what overlayfs notes about its files (CAP_SYS_ADMIN)")
	}
	saved, err := c.overlaid(root.fd, nil, "")
	if err != nil {
		return err
	}
	if saved == nil {
		return needs("the workspace's root is opaque")
	}
	dir, err := l.Trees.Open(c.ctx, l.Root)
	if err != nil {
		return err
	}
	if _, err := dir.Lookup(c.ctx, lostFound); !errors.Is(err, tree.ErrNotFound) {
		if err == nil {
			err = needs("the checkpoint has a " + lostFound)
		}
		return err
	}
	root.saved = saved
	l.foresee(c, root.fd)
	return nil
}

// mostForeseen bounds the directories that are looked for ahead.
const mostForeseen = 4096

// foresee asks for the places of the saved directories that will be listed, those of one
// level at once: the store may be at the other end of a connection. It is no matter if that
// fails, or if something moves meanwhile.
func (l *lowerState) foresee(c *walker, root *dirFD) {
	type both struct {
		path string
		hash cas.Hash
	}
	w := &worker{walker: c}
	seen := 0
	for level := []both{{"", l.Root}}; len(level) > 0 && seen < mostForeseen; {
		seen += len(level)
		hashes := make([]cas.Hash, len(level))
		for i, b := range level {
			hashes[i] = b.hash
		}
		l.Trees.Expect(c.ctx, hashes)
		var next []both
		for _, b := range level {
			dir, err := l.Trees.Open(c.ctx, b.hash)
			if err != nil {
				return
			}
			dir.ExpectLeaves(c.ctx)
			fd, err := root.openDir(b.path + ".")
			if err != nil {
				continue
			}
			names, err := w.readNames(fd)
			fd.close()
			if err != nil {
				continue
			}
			for _, n := range names {
				if n.kind != unix.DT_DIR {
					continue
				}
				if e, err := dir.Lookup(c.ctx, n.name); err == nil && e.Kind == tree.Dir {
					next = append(next, both{b.path + n.name + "/", e.Hash})
				}
			}
		}
		level = next
	}
}

// withSaved adds to the names of a directory those that only the saved one has, and takes
// away whiteouts. It returns the entries of those that it added, by name.
func (w *worker) withSaved(d *directory, names []dirName) ([]dirName, map[string]tree.Entry, error) {
	if w.lower == nil {
		return names, nil, nil
	}
	hidden := make(map[string]bool, len(names))
	kept := names[:0]
	for _, n := range names {
		if n.kind == unix.DT_UNKNOWN {
			st, err := d.fd.look(n.name)
			if err != nil {
				return nil, nil, err
			}
			n.kind = kindOf(&st)
		}
		if slices.Contains(w.ignored, n.name) {
			w.needsScan("the ignore file %s was changed", tree.Quote(d.path+n.name))
		}
		hidden[n.name] = true
		white := false
		if d.saved != nil { // else the kernel shows it as the device that it is
			var err error
			if white, err = d.fd.isWhiteout(n); err != nil {
				return nil, nil, err
			}
		}
		if !white {
			kept = append(kept, n)
		}
	}
	if d.saved == nil {
		return kept, nil, nil
	}
	// Before the kernel removes a directory with whiteouts it puts another one in its place.
	// Only then it takes the whiteouts away, and what they hide is seen by who lists it.
	if d.parent != nil {
		st, err := d.parent.fd.look(d.name())
		if err == nil && (st.Ino != d.st.Ino || st.Dev != d.st.Dev) {
			err = errReplaced
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if !w.lower.note(d, hidden) {
		w.needsScan("a directory of the checkpoint shows twice: %s", tree.Quote(d.saved.path))
		return kept, nil, nil
	}
	dir, err := w.lower.Trees.Open(w.ctx, d.saved.hash)
	if err != nil {
		return nil, nil, err
	}
	entries := map[string]tree.Entry{}
	own := kept
	kept = make([]dirName, 0, len(own)+dir.Len())
	var soon []cas.Hash // directories that will be listed
	for leaf, err := range dir.Leaves(w.ctx) {
		if err != nil {
			return nil, nil, err
		}
		for _, e := range leaf.Entries {
			if hidden[e.Name] {
				if e.Kind == tree.Dir {
					soon = append(soon, e.Hash)
				}
				continue
			}
			for len(own) > 0 && own[0].name < e.Name {
				kept, own = append(kept, own[0]), own[1:]
			}
			kept = append(kept, dirName{name: e.Name, kind: kindNumbers[e.Kind], saved: true})
			entries[e.Name] = e
		}
	}
	w.lower.Trees.Expect(w.ctx, soon)
	return append(kept, own...), entries, nil
}

// kindNumbers are the kinds of saved entries as DT_...
var kindNumbers = [...]uint8{tree.File: unix.DT_REG, tree.Dir: unix.DT_DIR, tree.Symlink: unix.DT_LNK}

// note says where a directory of the saved tree shows. It reports false if it shows
// somewhere else, too.
func (l *lowerState) note(d *directory, hidden map[string]bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[d.saved.path] != nil {
		return false
	}
	l.shown[d.saved.path] = &shownDir{path: d.path, hidden: hidden}
	l.moved = l.moved || d.path != d.saved.path
	return true
}

// where returns the path at which a file of the saved tree shows; false: it does not.
func (l *lowerState) where(path string) (string, bool) {
	dir := path[:strings.LastIndexByte(path, '/')+1]
	for {
		if s := l.shown[dir]; s != nil {
			rest := path[len(dir):]
			name, _, _ := strings.Cut(rest, "/")
			return s.path + rest, !s.hidden[name]
		}
		if dir == "" {
			return "", false // the root is not there: the capture failed
		}
		dir = dir[:strings.LastIndexByte(dir[:len(dir)-1], '/')+1]
	}
}
