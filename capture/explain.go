package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// An Explanation says what a capture makes of one path, and why.
type Explanation struct {
	Path  string // relative to the workspace; "." is the workspace itself
	Kind  string // "file", "directory", "symlink", a special kind; "" when nothing is there
	IsDir bool   // what was decided about is a directory
	Size  int64  // of a file, in bytes
	// Trace holds the decision of the rules and where it was made.
	policy.Trace
	// Why says what decided when it was no rule; the entry is left out then.
	Why string
	// Warnings are those of ignore files that were read.
	Warnings []string
}

// Kept reports whether the entry gets into the tree, or, of a directory, something
// below it may.
func (e *Explanation) Kept() bool { return e.Why == "" && (e.Decision.Keep || e.Decision.Descend) }

// Explain tells what [Tree] would make of a path, relative to the directory dir, from
// what lies there now: it looks at the path's directories, their ignore files, whether a
// restore into them is unfinished, and at the database that a file may belong to. isDir
// says what the path is if nothing is there.
func Explain(dir, path string, isDir bool, opt Options) (Explanation, error) {
	root, err := openRoot(dir)
	if err != nil {
		return Explanation{}, fmt.Errorf("open workspace %s: %w", tree.Quote(dir), err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c := newWalker(ctx, cancel, discard{})
	c.opt = opt
	c.ignored = c.ignoreNames()
	x := explainer{worker: &worker{walker: c}, at: &directory{fd: root, scope: opt.Files.Root().Bounded(&c.budget)}}
	defer x.close()
	x.Path, x.Kind, x.IsDir = ".", "directory", true
	x.Decision = policy.Decision{Keep: true, Descend: true}
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	st, there := root.find(names)
	whole := x.whole()
	for i, name := range names {
		if !whole {
			break
		}
		more, err := x.enter(name, isDir || i < len(names)-1)
		if err != nil {
			return Explanation{}, err
		}
		if !more {
			break
		}
	}
	if len(names) > 0 {
		x.Path, x.Kind, x.IsDir, x.Size = strings.Join(names, "/"), "", isDir, 0
	}
	if there {
		x.Kind, x.IsDir, x.Size = kindNames[kindOf(&st)], kindOf(&st) == unix.DT_DIR, st.Size
	}
	x.Warnings = c.warned()
	return x.Explanation, nil
}

// find looks at an entry below d, and follows no link on the way. Directories on the
// way need not be readable.
func (d *dirFD) find(names []string) (st unix.Stat_t, found bool) {
	at := d.fd
	for i, name := range names {
		if i == len(names)-1 {
			return st, unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return st, false
		}
		defer unix.Close(next)
		at = next
	}
	return st, false
}

// explainer goes down a path. Below what is not there it goes by names alone.
type explainer struct {
	*worker
	Explanation
	at *directory // its fd is nil when it is not there
}

func (x *explainer) close() {
	if x.at.fd != nil {
		x.at.fd.close()
		x.at.fd = nil
	}
}

// enter decides about an entry of the directory that was reached, and reports whether
// what is below it has to be decided too.
func (x *explainer) enter(name string, isDir bool) (more bool, err error) {
	if x.Kind != "" && x.Kind != "directory" {
		x.Why = tree.Quote(x.Path) + " is a " + x.Kind + ", and nothing lies below it"
		return false, nil
	}
	d := x.at
	if d.fd != nil {
		if err := x.narrow(d, d.fd.some(x.ignored...), nil); err != nil {
			return false, fmt.Errorf("%s: %w", tree.Quote(d.pathOrDot()), err)
		}
	}
	path := d.path + name
	if d.fd != nil && x.opt.Settings.ExcludeCaches && name != CacheTag && d.fd.isCache(d.fd.some(CacheTag)) {
		x.Why = tree.Quote(d.pathOrDot()) + " is a cache directory"
	}
	x.Path, x.Kind, x.Size = path, "", 0
	kind := uint8(unix.DT_UNKNOWN)
	if d.fd != nil {
		st, err := d.fd.look(name)
		switch {
		case err == nil:
			kind = kindOf(&st)
			x.Size = st.Size
			isDir = kind == unix.DT_DIR
			x.Kind = kindNames[kind]
		case !errors.Is(err, unix.ENOENT):
			return false, fmt.Errorf("look at %s: %w", tree.Quote(path), err)
		}
	}
	decision, scope := d.scope.Decide(name, isDir)
	if err := x.budget.Err(); err != nil {
		return false, err
	}
	x.Next(path, decision)
	if x.Why != "" || !decision.Keep && !decision.Descend {
		return false, nil
	}
	switch what, special := specialKinds[kind]; {
	case special:
		x.Why = what
	case kind == unix.DT_DIR && d.fd.isLostFound(name):
		x.Why = "belongs to the file system"
	case kind == unix.DT_REG && x.isShm(d, name):
		x.Why = sharedMemory
	}
	if x.Why != "" {
		return false, nil
	}
	if kind == unix.DT_REG && x.opt.Settings.SkipOver {
		if err := x.fits(x.Size); err != nil {
			x.Why = "over the limit for files: " + err.Error()
		}
	}
	next := &directory{path: path + "/", scope: scope}
	if kind == unix.DT_DIR {
		if next.fd, err = d.fd.openDir(name); err != nil {
			return false, fmt.Errorf("open %s: %w", tree.Quote(path), vanished(err))
		}
	}
	x.close()
	x.at = next
	return x.whole(), nil
}

// whole reports whether no restore left the directory that was reached incomplete.
func (x *explainer) whole() bool {
	if x.at.fd != nil && len(x.at.fd.some(Marker)) > 0 {
		x.Why = tree.Quote(x.at.pathOrDot()) + ": " + ErrUnfinished.Error() + ", and a save fails"
	}
	return x.Why == "" || x.at.fd == nil
}

// isLostFound tells of what a file system keeps for itself in its root.
func (d *dirFD) isLostFound(name string) bool {
	var own unix.Stat_t
	if name != lostFound || unix.Fstat(d.fd, &own) != nil || !isMountRoot(d.fd, &own) {
		return false
	}
	return d.ownsLostFound()
}

// isShm reports whether a file is the shared memory of a database in its directory.
func (x *explainer) isShm(d *directory, name string) bool {
	if !strings.HasSuffix(name, shmSuffix) {
		return false
	}
	// What the file's name may belong to, and that in turn.
	names := []string{name}
	for base, suffix := companionOf(name); suffix != ""; base, suffix = companionOf(base) {
		names = append(names, base, base+walSuffix, base+journalSuffix)
	}
	slices.Sort(names)
	var children []child
	for _, n := range d.fd.some(slices.Compact(names)...) {
		if decision, _ := d.scope.Decide(n.name, n.kind == unix.DT_DIR); decision.Keep {
			children = append(children, child{entry: tree.Entry{Name: n.name}, kind: n.kind})
		}
	}
	findUnits(children)
	for i := range children {
		if c := &children[i]; c.entry.Name == name {
			return c.unit != nil && c.unit.shm == c && x.opensDatabase(d, c.unit)
		}
	}
	return false
}

var kindNames = map[uint8]string{unix.DT_REG: "file", unix.DT_DIR: "directory", unix.DT_LNK: "symlink", unix.DT_SOCK: "socket", unix.DT_FIFO: "fifo", unix.DT_BLK: "block device", unix.DT_CHR: "character device"}

// pathOrDot is the directory's path as messages show it.
func (d *directory) pathOrDot() string {
	if d.path == "" {
		return "."
	}
	return strings.TrimSuffix(d.path, "/")
}

// some returns those of the names, which are in order, that a directory has.
func (d *dirFD) some(names ...string) []dirName {
	var found []dirName
	for _, name := range names {
		if st, err := d.look(name); err == nil {
			found = append(found, dirName{name: name, kind: kindOf(&st)})
		}
	}
	return found
}
