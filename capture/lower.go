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

// What overlayfs keeps in the upper directory, see Documentation/filesystems/overlayfs.rst
// of the kernel: a whiteout is a character device with the number 0, or an empty file with
// an attribute in a directory that is marked so.
const (
	overlayOpaque   = "trusted.overlay.opaque"
	overlayRedirect = "trusted.overlay.redirect"
	overlayWhiteout = "trusted.overlay.whiteout"
	overlayMetacopy = "trusted.overlay.metacopy"

	// LowerMark is the attribute that whoever makes an upper directory gives it. Who cannot
	// see it cannot see overlayfs' own either, and would take what was deleted for there.
	LowerMark = "trusted.overlay.snapfs"

	opaqueAll       = "y" // nothing of the saved directory shows
	opaqueWhiteouts = "x" // there are whiteouts that are files
)

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

// overlaid returns the directory of the saved tree that shows in one of the upper
// directory, of which up is the directory above, and nil for the root; nil: none does.
func (c *walker) overlaid(fd *dirFD, up *directory, name string) (*savedDir, error) {
	opaque, err := overlayAttr(fd.fd, overlayOpaque)
	if err != nil {
		return nil, err
	}
	fd.whiteouts = opaque == opaqueWhiteouts
	redirect, err := overlayAttr(fd.fd, overlayRedirect)
	if err != nil || opaque == opaqueAll {
		return nil, err
	}
	l := c.lower
	if up == nil {
		if redirect != "" {
			return nil, fmt.Errorf("%w: the workspace's root is redirected", ErrNeedsScan)
		}
		return &savedDir{hash: l.Root}, nil
	}
	from, path := up.saved, name
	if redirect != "" {
		if absolute, ok := strings.CutPrefix(redirect, "/"); ok {
			from, path = &savedDir{hash: l.Root}, absolute
		} else {
			path = redirect
		}
		if tree.CheckPath(path) != nil || from == up.saved && strings.Contains(path, "/") {
			return nil, fmt.Errorf("%w: %s is redirected to %s", ErrNeedsScan, tree.Quote(up.path+name), tree.Quote(redirect))
		}
	}
	if from == nil {
		return nil, nil
	}
	e, err := l.Trees.Find(c.ctx, from.hash, path)
	switch {
	case errors.Is(err, tree.ErrNotFound) && redirect != "":
		return nil, fmt.Errorf("%w: %s is redirected to %s, which is not in the checkpoint", ErrNeedsScan, tree.Quote(up.path+name), tree.Quote(redirect))
	case errors.Is(err, tree.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case e.Kind != tree.Dir:
		return nil, nil
	}
	return &savedDir{hash: e.Hash, path: from.path + path + "/"}, nil
}

// overlayAttr reads an attribute of overlayfs' own; empty: there is none. The kernel writes
// none without a value, and refuses an entry that has one.
func overlayAttr(fd int, name string) (string, error) {
	value, err := getXattr(fd, name)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err == nil && len(value) == 0 {
		err = fmt.Errorf("%w: the attribute %s is empty", ErrNeedsScan, name)
	}
	return string(value), err
}

// checkOverlaid refuses a file without content of its own, and one that the kernel does not
// show, being a whiteout, although it is in no directory that is marked so.
func (w *worker) checkOverlaid(fd int, size int64) error {
	if w.lower == nil {
		return nil
	}
	has := func(name string) (bool, error) {
		_, err := getXattr(fd, name)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			return false, nil
		}
		return err == nil, err
	}
	copied, err := has(overlayMetacopy)
	if err == nil && copied {
		err = ErrMetacopy
	}
	if err == nil && size == 0 {
		var white bool
		if white, err = has(overlayWhiteout); white {
			err = errVanished
		}
	}
	return err
}

// isWhiteout reports whether an entry of the upper directory only says that the saved one
// of its name is gone.
func (d *dirFD) isWhiteout(n dirName) (bool, error) {
	if n.kind != unix.DT_CHR && (n.kind != unix.DT_REG || !d.whiteouts) {
		return false, nil
	}
	st, err := d.look(n.name)
	if err != nil {
		return false, err
	}
	if kindOf(&st) == unix.DT_CHR {
		return st.Rdev == 0, nil
	}
	if st.Size != 0 || kindOf(&st) != unix.DT_REG {
		return false, nil
	}
	fd, err := d.open(n.name, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	_, err = getXattr(fd, overlayWhiteout)
	if errors.Is(err, unix.ENODATA) {
		return false, nil
	}
	return err == nil, err
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

// takeSaved takes an entry that only the saved tree has, with all below it.
func (w *worker) takeSaved(d *directory, e *child) {
	if d.path != d.saved.path {
		if err := w.movable(d.scope, e.entry, d.path); err != nil {
			w.cancel(err)
			return
		}
	}
	if e.entry.Kind != tree.Dir {
		w.meter.Add(1, int64(e.entry.Size))
	}
	e.ok = true
}

// belowSaved finds out what lies below the directories that only the saved tree has. An
// object of a directory has the sum of that for all directories in it. So where the new
// directory is cut into objects as the saved one is, it is enough to know what lies below
// those that changed, and the others share the rest in whatever way. Else each is looked at.
func (w *worker) belowSaved(d *directory) error {
	if d.saved == nil {
		return nil
	}
	saved, err := w.lower.Trees.Open(w.ctx, d.saved.hash)
	if err != nil {
		return err
	}
	below := func(e tree.Entry) (tree.Totals, error) {
		dir, err := w.lower.Trees.Open(w.ctx, e.Hash)
		if err != nil {
			return tree.Totals{}, err
		}
		return dir.Root().Totals, nil
	}
	children := map[string]*child{}
	for i := range d.children {
		if e := &d.children[i]; e.ok {
			children[e.entry.Name] = e
		}
	}
	same := len(children) == saved.Len()
	w.lower.mu.Lock()
	hidden := w.lower.shown[d.saved.path].hidden
	w.lower.mu.Unlock()
	for name := range hidden {
		if !same {
			break
		}
		_, err := saved.Lookup(w.ctx, name)
		if errors.Is(err, tree.ErrNotFound) || children[name] == nil {
			same = false
		} else if err != nil {
			return err
		}
	}
	if !saved.AsCut(len(children), same) {
		for _, e := range children {
			if e.saved && e.kind == unix.DT_DIR {
				if e.below, err = below(e.entry); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for leaf, err := range saved.Leaves(w.ctx) {
		if err != nil {
			return err
		}
		var first *child
		rest := leaf.Below
		for _, entry := range leaf.Entries {
			if entry.Kind != tree.Dir {
				continue
			}
			if e := children[entry.Name]; e != nil && e.saved {
				if first == nil {
					first = e
				}
				continue
			}
			known, err := below(entry)
			if err == nil {
				err = rest.Sub(known)
			}
			if err != nil {
				return err
			}
		}
		if first != nil {
			first.below = rest
			w.meter.Add(int64(rest.Files), int64(rest.Bytes))
		}
	}
	return nil
}

// movable goes through what has another path than it was saved at: the rules, which go by
// paths, must let it in there, too.
func (w *worker) movable(scope policy.Scope, e tree.Entry, dir string) error {
	path := dir + e.Name
	decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
	if !decision.Keep {
		return fmt.Errorf("%w: the policy leaves out %s, which was moved", ErrNeedsScan, tree.Quote(path))
	}
	if n := len(path); n > tree.MaxPath {
		w.problem(path, fmt.Errorf("its path has %d bytes, at most %d can be saved", n, tree.MaxPath))
		return nil
	}
	if slices.Contains(w.ignored, e.Name) {
		return fmt.Errorf("%w: the ignore file %s was moved", ErrNeedsScan, tree.Quote(path))
	}
	if e.Kind != tree.Dir {
		return nil
	}
	below, err := w.lower.Trees.Open(w.ctx, e.Hash)
	if err != nil {
		return err
	}
	for e, err := range below.Entries(w.ctx, 0) {
		if err != nil {
			return err
		}
		if err := w.movable(sub, e, path+"/"); err != nil {
			return err
		}
	}
	return nil
}

// savedIgnore reads an ignore file that only the saved tree has.
func (w *worker) savedIgnore(e tree.Entry) (content []byte, is bool, err error) {
	if e.Kind != tree.File {
		return nil, false, nil
	}
	if e.Size > maxIgnoreFile {
		return nil, false, fmt.Errorf("%w: an ignore file is longer than it may be", ErrNeedsScan)
	}
	content, err = w.lower.Blobs.Read(w.ctx, cas.Key{NS: cas.Files, Hash: e.Hash}, nil)
	return content, true, err
}

// carry takes over what was found out about files of the saved tree that still show.
func (c *walker) carry(groups [][]string) ([][]string, error) {
	l := c.lower
	if l == nil {
		return groups, nil
	}
	for _, group := range l.Links {
		var now []string
		for _, path := range group {
			if at, ok := l.where(path); ok {
				now = append(now, at)
			}
		}
		if len(now) > 1 {
			slices.Sort(now)
			groups = append(groups, now)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	if l.moved && !c.opt.Screen.Allowed.Empty() {
		return nil, fmt.Errorf("%w: directories were moved, and what looks like a secret may be none by where it is", ErrNeedsScan)
	}
	for _, s := range l.Secrets {
		if at, ok := l.where(s.Path); ok {
			c.secrets = append(c.secrets, SecretFile{Path: at, Report: s.Report})
		}
	}
	for _, f := range l.Ignore {
		at, ok := l.where(f.Path)
		if !ok {
			continue
		}
		if _, err := l.Trees.Find(c.ctx, l.Root, f.Path); errors.Is(err, tree.ErrNotFound) {
			continue // it was no content itself, and is not in the workspace
		} else if err != nil {
			return nil, err
		}
		if at != f.Path {
			return nil, fmt.Errorf("%w: the ignore file %s was moved", ErrNeedsScan, tree.Quote(f.Path))
		}
		c.ignoreFiles = append(c.ignoreFiles, f)
	}
	return groups, nil
}
