package capture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// A directory is open until all its children have been looked at, and known
// until all of them are settled: then it becomes an entry of its parent.
type directory struct {
	fd       *dirFD
	path     string     // "" is the root, else it ends in a slash
	parent   *directory // nil: the root
	entry    *child     // in the parent; nil: the root
	saved    *savedDir  // what shows below it of a saved tree; nil: nothing
	st       unix.Stat_t
	since    time.Time // all of it was looked at after that
	scope    policy.Scope
	narrowed bool     // by ignore files here or above
	secrets  screened // attributes that are left out for a declared secret in them
	children []child
	late     []*child     // that were not listed: see [worker.adopt]
	open     atomic.Int32 // tasks that need fd
	left     atomic.Int32 // children that are not settled, and one more until all were listed
}

// release gives up the open directory for one task.
func (d *directory) release() {
	if d.open.Add(-1) == 0 {
		d.fd.close()
	}
}

// child is one entry of a directory on its way into the tree.
type child struct {
	entry tree.Entry // its name from the beginning, the rest when ok
	below tree.Totals
	sub   policy.Scope // of a directory
	unit  *unit        // that a file is part of; nil: it stands for itself
	kind  uint8        // DT_...
	keep  bool         // a directory that stays even when nothing below it does
	saved bool         // only the saved tree has it: entry is complete but for ok
	ok    bool         // entry is complete
}

// name is the last of the directory's path; the root has none.
func (d *directory) name() string {
	if d.entry == nil {
		return ""
	}
	return d.entry.entry.Name
}

// pathOf is a child's path in the workspace.
func (d *directory) pathOf(e *child) string { return d.path + e.entry.Name }

// enter lists an open directory and begins with what is in it. The directory is
// the callee's to close. Errors are noted, and the walk goes on without it.
func (w *worker) enter(d *directory, scope policy.Scope) {
	d.open.Store(1)
	d.left.Store(1)
	d.since, d.scope = time.Now(), scope
	d.narrowed = d.parent != nil && d.parent.narrowed
	if err := w.list(d); err != nil {
		w.problem(strings.TrimSuffix(d.path, "/"), vanished(err))
		d.release()
		w.gone(d)
		return
	}
	if w.looked != nil {
		w.looked(d.path)
	}
	d.left.Add(int32(len(d.children)))
	// The first stretch is this worker's own, who has the directory at hand. Files
	// come before what lies in directories, each in order of names.
	var dirs, files []task
	first := task{dir: d}
	for i := 0; i < len(d.children); {
		dir := func(c *child) bool { return c.kind == unix.DT_DIR && !c.saved }
		if dir(&d.children[i]) {
			dirs = append(dirs, task{d, d.children[i : i+1]})
			i++
			continue
		}
		from := i
		for i < len(d.children) && i < from+stretch && !dir(&d.children[i]) {
			i++
		}
		if t := (task{d, d.children[from:i]}); first.children == nil {
			first = t
		} else {
			files = append(files, t)
		}
	}
	later := make([]task, 0, len(dirs)+len(files))
	for _, some := range [][]task{dirs, files} {
		for i := range some {
			later = append(later, some[len(some)-1-i])
		}
	}
	d.open.Add(int32(len(later)))
	w.tasks.Put(later...)
	w.children(first)
	w.settle(d)
}

// child looks at one entry.
func (w *worker) child(d *directory, e *child) {
	switch {
	case e.saved:
		w.takeSaved(d, e)
		w.settle(d)
	case e.kind == unix.DT_DIR:
		w.subdir(d, e)
	case e.kind == unix.DT_REG:
		w.file(d, e)
	default:
		w.symlink(d, e)
		w.settle(d)
	}
}

// settle says that nothing more will become of a child of d, or that d was listed.
// The last one makes d an entry itself.
func (w *worker) settle(d *directory) {
	for ; d != nil && d.left.Add(-1) == 0; d = d.parent {
		if w.ctx.Err() != nil {
			return
		}
		if err := w.finish(d); err != nil {
			w.cancel(err)
			return
		}
	}
}

// gone settles a directory of which nothing gets into the tree.
func (w *worker) gone(d *directory) {
	if d.parent != nil {
		w.settle(d.parent)
	}
}

// finish makes a tree of a directory whose children are settled.
func (w *worker) finish(d *directory) error {
	kept := 0
	if len(d.late) > 0 {
		d.children = slices.Clone(d.children) // somebody may look at a stretch of them still
		for _, e := range d.late {
			d.children = append(d.children, *e)
		}
		slices.SortFunc(d.children, func(a, b child) int { return strings.Compare(a.entry.Name, b.entry.Name) })
	}
	if err := w.belowSaved(d); err != nil {
		return err
	}
	for i := range d.children {
		e := &d.children[i]
		if !e.ok {
			continue
		}
		kept++
		if err := w.builder.Add(e.entry, e.below); err != nil {
			return fmt.Errorf("%s: %w", tree.Quote(d.pathOf(e)), err)
		}
	}
	root, objs, err := w.builder.Finish()
	if err != nil {
		return fmt.Errorf("directory %s: %w", tree.Quote(d.path), err)
	}
	w.plans(d)
	d.children = nil
	w.emptied(d, root.Totals.Files)
	known, found := w.recall(d.fd, &d.st, d.name())
	if !found || known.hash() != root.Hash {
		w.addTrees(objs...)
	}
	if d.parent == nil {
		w.root = root
		return nil
	}
	w.see(d.fd, d.name(), &d.st, d.since, root.Hash, d.entry.entry.XAttrs, &d.secrets)
	if kept == 0 && !d.entry.keep {
		return nil // only on the way to an include that matched nothing
	}
	d.entry.entry.Hash, d.entry.below, d.entry.ok = root.Hash, root.Totals, true
	return nil
}

// list reads the directory's names in byte order and keeps those that the policy
// lets in.
func (w *worker) list(d *directory) error {
	names, err := w.readNames(d.fd)
	if err != nil {
		return err
	}
	names, saved, err := w.withSaved(d, names)
	if err != nil {
		return err
	}
	if err := w.narrow(d, names, saved); err != nil {
		return err
	}
	cache, cached := w.opt.Settings.ExcludeCaches && d.fd.isCache(names), false
	d.children = make([]child, 0, len(names))
	for _, n := range names {
		if n.saved {
			d.children = append(d.children, child{entry: saved[n.name], kind: n.kind, keep: true, saved: true})
			continue
		}
		path := func() string { return d.path + n.name } // few are asked for
		if n.name == Marker {
			w.problem(strings.TrimSuffix(d.path, "/"), ErrUnfinished)
			continue
		}
		if cache && n.name != CacheTag {
			cached = true
			continue
		}
		if n.kind == unix.DT_UNKNOWN {
			st, err := d.fd.look(n.name)
			if err != nil {
				w.problem(path(), vanished(err))
				continue
			}
			n.kind = kindOf(&st)
		}
		if d.narrowed {
			if err := w.budget.Err(); err != nil {
				w.cancel(err)
				return err
			}
		}
		decision, sub := d.scope.Decide(n.name, n.kind == unix.DT_DIR)
		if !decision.Keep && !decision.Descend {
			if decision.Rule.Pattern != "" {
				w.omit(&w.excluded, path(), "excluded by "+decision.Rule.Pattern+" ("+decision.Rule.Source+")")
				w.suspect(d, decision)
			} else if !w.passed.Load() {
				w.passed.Store(true)
			}
			continue
		}
		if what, special := specialKinds[n.kind]; special {
			w.omit(&w.special, path(), what)
			continue
		}
		if n := len(d.path) + len(n.name); n > tree.MaxPath {
			w.problem(path(), fmt.Errorf("its path has %d bytes, at most %d can be saved", n, tree.MaxPath))
			continue
		}
		if w.opt.Screen.Declared != nil && w.declaredIn(path(), path(), inPath) {
			continue
		}
		if d.fd.fsRoot && n.name == lostFound && d.fd.ownsLostFound() {
			continue
		}
		d.children = append(d.children, child{entry: tree.Entry{Name: n.name}, kind: n.kind, sub: sub, keep: decision.Keep})
	}
	if cached {
		w.omit(&w.excluded, cmp.Or(strings.TrimSuffix(d.path, "/"), "."), "a cache directory: all but its "+CacheTag)
	}
	findUnits(d.children)
	if w.lower != nil {
		w.splitUnits(d)
	}
	return nil
}

// splitUnits takes saved files out of the units that they are in: nobody has them open for
// writing. Which files a database has in both layers, only the workspace shows.
func (w *worker) splitUnits(d *directory) {
	for i := range d.children {
		u := d.children[i].unit
		if u == nil {
			continue
		}
		saved, own := false, false
		for _, c := range []*child{u.db, u.wal, u.journal, u.shm} {
			if c != nil {
				saved, own = saved || c.saved, own || !c.saved
			}
		}
		if saved && own {
			w.needsScan("the files of a database lie in both layers: %s", tree.Quote(d.pathOf(u.db)))
		}
		if saved {
			d.children[i].unit = nil
		}
	}
}

// lostFound is what a file system has in its root for itself.
const lostFound = "lost+found"

// ownsLostFound reports whether that is there, and not a directory of the workspace's
// with its name.
func (d *dirFD) ownsLostFound() bool {
	st, err := d.look(lostFound)
	return err == nil && st.Uid == 0 && st.Mode&0o777 == 0o700
}

// specialKinds are the kinds of entries that are never opened and never saved.
var specialKinds = map[uint8]string{
	unix.DT_SOCK: "socket",
	unix.DT_FIFO: "fifo",
	unix.DT_BLK:  "block device",
	unix.DT_CHR:  "character device",
}

var (
	errVanished = errors.New("vanished while it was read")
	errReplaced = errors.New("was replaced while it was read")
)

// kindOf returns what an entry was when it was looked at, as DT_...: the constants
// are the file types of a mode, shifted.
func kindOf(st *unix.Stat_t) uint8 { return uint8(st.Mode & unix.S_IFMT >> 12) }

// vanished explains an entry that was listed and is gone, or is something else
// by now: a directory that is none, a file that is a link.
func vanished(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return errVanished
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return errReplaced
	}
	return err
}

// droppedBits would make who runs a restored file somebody else.
const droppedBits = unix.S_ISUID | unix.S_ISGID

const setuidDropped = "setuid and setgid bits dropped"

func (c *walker) omitBits(path string) { c.omit(&c.setuid, path, setuidDropped) }

// fill makes the tree entry of a stat, without content. dir is the path of the
// directory that it is in, as of [directory].
func (c *walker) fill(e *tree.Entry, dir string, st *unix.Stat_t, kind tree.Kind) {
	*e = tree.Entry{
		Name:      e.Name,
		Kind:      kind,
		Mode:      st.Mode & 0o1777,
		MtimeSec:  st.Mtim.Sec,
		MtimeNsec: uint32(st.Mtim.Nsec),
	}
	if kind == tree.Symlink {
		e.Mode = 0o777
	} else if st.Mode&droppedBits != 0 {
		c.omitBits(dir + e.Name)
	}
	if st.Uid != c.uid || st.Gid != c.gid {
		e.Owned, e.UID, e.GID = true, st.Uid, st.Gid
	}
}

// subdir captures a directory below d. It or what comes of it settles e.
func (w *worker) subdir(d *directory, e *child) {
	path := d.pathOf(e)
	sub, err := w.openSubdir(d, e, path)
	if err != nil {
		w.problem(path, vanished(err))
	}
	if sub == nil {
		w.settle(d)
		return
	}
	w.enter(sub, e.sub)
}

// openSubdir opens a directory and takes its metadata. It returns nil for one
// that is not content.
func (w *worker) openSubdir(d *directory, e *child, path string) (sub *directory, err error) {
	fd, err := d.fd.openDir(e.entry.Name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if sub == nil {
			fd.close()
		}
	}()
	since := time.Now()
	// From here on the open directory is what counts, whatever its name leads
	// to by now.
	var st unix.Stat_t
	if err := unix.Fstat(fd.fd, &st); err != nil {
		return nil, err
	}
	if w.opt.Skip != nil {
		if why := w.opt.Skip(st.Dev, st.Ino); why != "" {
			w.omit(&w.special, path, why)
			return nil, nil
		}
	}
	fd.dev, fd.fsRoot, fd.fine, fd.volume = st.Dev, st.Dev != d.fd.dev, d.fd.fine, d.fd.volume
	if fd.fsRoot {
		fd.fine, fd.volume = w.fineTimes(fd.fd), checksum(path)
	}
	w.fill(&e.entry, d.path, &st, tree.Dir)
	sub = &directory{fd: fd, path: path + "/", parent: d, entry: e, st: st, since: since}
	if w.lower != nil {
		if sub.saved, err = w.overlaid(fd, d, e.entry.Name); err != nil {
			if errors.Is(err, ErrNeedsScan) {
				w.cancel(err)
			}
			return nil, err
		}
	}
	known, ok := w.recall(fd, &st, e.entry.Name)
	if ok = ok && known.same(&st); ok {
		sub.secrets, ok = known.secrets()
		ok = ok && !(sub.secrets.hides && w.opt.Screen.Fewer)
	}
	if ok {
		e.entry.XAttrs = known.xattrs()
	} else if e.entry.XAttrs, sub.secrets.hides, err = w.xattrs(fd.fd); err != nil {
		return nil, err
	}
	w.tellSecrets(path, sub.secrets)
	return sub, nil
}

// symlink captures a link's own text.
func (w *worker) symlink(d *directory, e *child) {
	path := d.pathOf(e)
	st, err := d.fd.look(e.entry.Name)
	if err == nil && kindOf(&st) != unix.DT_LNK {
		err = errReplaced
	}
	target := ""
	if err == nil {
		target, err = d.fd.readlink(e.entry.Name)
	}
	if errors.Is(err, unix.EINVAL) { // no link any more
		err = errReplaced
	}
	if err != nil {
		w.problem(path, vanished(err))
		return
	}
	if w.declaredIn(target, path, inTarget) {
		return
	}
	w.fill(&e.entry, d.path, &st, tree.Symlink)
	e.entry.Target, e.entry.Size = target, uint64(len(target))
	e.ok = true
	w.meter.Add(1, 0)
}
