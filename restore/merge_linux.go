package restore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// A restore into a live directory writes all that is new into a directory of its own
// inside the target, and only when that is there, verified and durable, moves it to its
// places. What was there goes the other way. So what can go wrong, a damaged object or a
// full disk, does so while the target is as it was; what is left are renames and
// metadata. The marker stands meanwhile: whoever is killed in between leaves a directory
// that is known as unfinished, and the same restore goes on.

// trashName is what is moved away in the restore's own directory.
const trashName = "trash"

// A PartialError says that a restore into a live directory failed after its first
// change. The directory has its marker, and the same restore goes on.
type PartialError struct {
	Dir string // quoted
	Err error
}

// Error says what it means.
func (e *PartialError) Error() string { return fmt.Sprintf("%v; %s is unfinished", e.Err, e.Dir) }

// Unwrap returns the cause.
func (e *PartialError) Unwrap() error { return e.Err }

// merge carries out a plan for the live directory root. l is the marker of a killed
// restore that it goes on with.
func (w *writer) merge(root *target, l *lock, m marker, src Source, dir string, p *planner, plan *planDir) (res Result, err error) {
	if l == nil && plan == nil {
		return p.counts, nil
	}
	shown := tree.Quote(dir)
	kept := p.opt.Files.Restricted() // the target's own metadata
	var before unix.Stat_t
	if err := unix.Fstat(root.fd, &before); err != nil {
		return Result{}, err
	}
	m.Merge = p.opt.Mode.String()
	if l == nil {
		m.Aside = stagePrefix + rand.Text()
		if before.Mode&0o300 != 0o300 && own(root.fd, &before) { // its own owner must not write to it
			w.step()
			if err := unix.Fchmod(root.fd, before.Mode&0o7777|0o700); err != nil {
				return Result{}, fmt.Errorf("restore into %s: %w", shown, err)
			}
			defer func() {
				if kept || err != nil {
					_ = unix.Fchmod(root.fd, before.Mode&0o7777)
				}
			}()
		}
		w.step()
		made, err := root.mark(m, shown)
		if err != nil {
			return Result{}, fmt.Errorf("restore into %s: %w", shown, err)
		}
		defer made.release()
	} else {
		p.opt.resuming()
		w.step()
		m.Aside = l.Aside
		if err := root.dropAside(m.Aside); err != nil {
			return Result{}, err
		}
	}
	root.stage = m.Aside
	aside, err := w.prepare(root, l, m, src, p, plan)
	defer aside.close()
	if err != nil && l != nil {
		return Result{}, errors.Join(err, aside.drop(root))
	}
	if err != nil {
		err = errors.Join(err, aside.drop(root), unix.Unlinkat(root.fd, capture.Marker, 0))
		_ = setTime(root.fd, "", &tree.Entry{MtimeSec: before.Mtim.Sec, MtimeNsec: uint32(before.Mtim.Nsec)})
		return Result{}, err
	}
	w.ctx = context.WithoutCancel(w.ctx) // what has begun to change comes to its end
	if err := w.apply(root, aside, plan); err != nil {
		return Result{}, &PartialError{Dir: shown, Err: err}
	}
	if err := errors.Join(root.sync(), aside.drop(root)); err != nil {
		return Result{}, &PartialError{Dir: shown, Err: err}
	}
	unmark := func() error {
		if err := unix.Unlinkat(root.fd, capture.Marker, 0); err != nil {
			return fmt.Errorf("remove the marker in %s: %w", shown, err)
		}
		return nil
	}
	if kept {
		w.step()
		err = unmark()
	} else {
		err = w.finishRoot(root, src.Stat, 0o700, unmark)
	}
	if err != nil {
		return Result{}, err
	}
	res = p.counts
	res.Files, res.Dirs, res.Bytes, res.Incomplete = w.result.Files, w.result.Dirs, w.result.Bytes, w.result.Incomplete
	return res, nil
}

// aside is the restore's own directory in a live target.
type aside struct {
	name string
	dir  *target // the directory itself
	tree *target // what is to be moved into the target
	bin  int     // what was moved out of it
	n    int     // how much that is
}

// prepare makes all that is new, in a directory of its own inside the target.
// It leaves a marker that says what this restore makes, also where there was another's.
func (w *writer) prepare(root *target, l *lock, m marker, src Source, p *planner, plan *planDir) (*aside, error) {
	a := &aside{name: root.stage, bin: -1}
	open := func(in *target, name string) (*target, error) {
		w.step()
		if err := unix.Mkdirat(in.fd, name, 0o700); err != nil {
			return nil, cas.NoSpace(err)
		}
		fd, err := adopt(owners{}, in.fd, &tree.Entry{Name: name})
		if err != nil {
			return nil, err
		}
		// Whatever a default ACL of the target gave it.
		if err := freshen(fd); err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
		return &target{fd: fd, made: true}, nil
	}
	var err error
	if a.dir, err = open(root, a.name); err != nil {
		return a, fmt.Errorf("restore beside the target's content: %w", err)
	}
	if l != nil && (l.Restore != m.Restore || l.Merge != m.Merge) {
		w.step()
		if err := l.replace(root, a.dir, m); err != nil {
			return a, err
		}
	}
	trash, err := open(a.dir, trashName)
	if err != nil {
		return a, err
	}
	a.bin = trash.fd
	if a.tree, err = open(a.dir, stageTree); err != nil {
		return a, err
	}
	a.tree.scaffold = true
	if err := w.checkNames(root, src, p.opt.Files, plan); err != nil || plan == nil {
		return a, err
	}
	if err := w.fill(a.tree, src, within{scope: p.opt.Files.Root(), plan: plan}); err != nil {
		return a, err
	}
	if err := a.tree.sync(); err != nil {
		return a, err
	}
	return a, context.Cause(w.ctx)
}

func (a *aside) close() {
	for _, t := range []*target{a.tree, a.dir} {
		if t != nil {
			t.close()
		}
	}
	if a.bin >= 0 {
		_ = unix.Close(a.bin)
	}
	a.tree, a.dir, a.bin = nil, nil, -1
}

// drop removes the directory with all that is in it.
func (a *aside) drop(root *target) error { return root.dropAside(a.name) }

// dropAside removes a restore's own directory from a live target.
func (t *target) dropAside(name string) error {
	if filepath.Base(name) != name || len(name) <= len(stagePrefix) || name[:len(stagePrefix)] != stagePrefix {
		return fmt.Errorf("the marker names %s, which is no directory of a restore: %w", tree.Quote(name), ErrUnfinished)
	}
	return removeTree(filepath.Join(fmt.Sprintf("/proc/self/fd/%d", t.fd), name))
}

// apply moves what was prepared to its places.
func (w *writer) apply(root *target, a *aside, plan *planDir) error {
	if plan == nil {
		return nil
	}
	staged, err := unix.Openat(a.tree.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(staged)
	return w.applyDir(root.fd, staged, "", a, plan)
}

// applyDir does what the plan says in one open directory. staged is the directory of what
// is to be moved into it, or -1.
func (w *writer) applyDir(dir, staged int, path string, a *aside, d *planDir) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return w.at(path, err)
	}
	if st.Dev != d.dev || st.Ino != d.ino {
		return w.at(path, errReplaced)
	}
	locked := st.Mode&0o300 != 0o300 && !d.empty()
	if locked { // its own owner must not write to it
		if err := unix.Fchmod(dir, st.Mode&0o7777|0o700); err != nil {
			return w.at(path, err)
		}
	}
	for _, name := range d.remove {
		if err := w.moveAway(dir, name, a); err != nil {
			return w.at(path+name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.write)) {
		if err := w.moveIn(dir, staged, path, name, a, d.write[name]); err != nil {
			return w.at(path+name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.meta)) {
		if err := w.setMeta(dir, path+name, d.meta[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirs)) {
		if err := w.descend(dir, staged, path, name, a, d.dirs[name]); err != nil {
			return err
		}
	}
	switch {
	case path == "": // see finishRoot
	case d.entry != nil:
		return w.reset(dir, path, d.entry)
	case locked:
		if err := unix.Fchmod(dir, st.Mode&0o7777); err != nil {
			return w.at(path, err)
		}
	}
	return nil
}

func (w *writer) descend(dir, staged int, path, name string, a *aside, d *planDir) error {
	sub, err := enter(dir, name)
	if err != nil {
		return w.at(path+name, err)
	}
	defer sub.leave()
	from := entered{fd: -1}
	if staged >= 0 {
		from, err = enter(staged, name)
		switch {
		case errors.Is(err, unix.ENOENT):
			from.fd = -1
		case err != nil:
			return w.at(path+name, err)
		default:
			defer from.leave()
		}
	}
	if err := w.applyDir(sub.fd, from.fd, path+name+"/", a, d); err != nil {
		return err
	}
	sub.let = sub.let && d.entry == nil
	t := &target{parent: &target{fd: dir}, fd: sub.fd, entry: tree.Entry{Name: name}}
	if err := t.inPlace(); err != nil {
		return w.at(path+name, err)
	}
	return nil
}

// moveAway takes a live entry out of the target.
func (w *writer) moveAway(dir int, name string, a *aside) error {
	a.n++
	to := strconv.Itoa(a.n)
	w.step()
	err := unix.Renameat(dir, name, a.bin, to)
	if errors.Is(err, unix.EACCES) { // a directory whose own owner must not write to it
		if fd, ferr := adopt(owners{}, dir, &tree.Entry{Name: name}); ferr == nil {
			ferr = unix.Fchmod(fd, 0o700)
			_ = unix.Close(fd)
			if ferr == nil {
				err = unix.Renameat(dir, name, a.bin, to)
			}
		}
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV): // an overlayfs does not rename directories of its lower layers
		return removeTree(filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir), name))
	}
	return err
}

// moveIn moves a new entry to its place. What is there goes first when there is no
// other way, else in the same moment.
func (w *writer) moveIn(dir, staged int, path, name string, a *aside, where place) error {
	var st unix.Stat_t
	err := unix.Fstatat(staged, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || staged < 0 {
		return nil // the file system cannot hold it, which was noted
	}
	if err != nil {
		return err
	}
	if where == other {
		if err := w.moveAway(dir, name, a); err != nil {
			return err
		}
	}
	w.step()
	if where == taken {
		err = unix.Renameat(staged, name, dir, name)
	} else {
		err = RenameNew(staged, name, dir, name)
	}
	if err != nil {
		return err
	}
	e, late := w.late[path+name+"/"]
	if !late {
		return nil
	}
	sub, err := enter(dir, name)
	if err != nil {
		return err
	}
	defer sub.leave()
	w.step()
	return w.setDirMeta(sub.fd, path+name+"/", &e)
}

// setMeta gives a file or symlink with the right content its saved metadata.
func (w *writer) setMeta(dir int, path string, p *planMeta) error {
	e := &p.entry
	if e.Kind == tree.Symlink {
		var st unix.Stat_t
		err := unix.Fstatat(dir, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && (st.Dev != p.dev || st.Ino != p.ino) {
			err = errReplaced
		}
		if err == nil {
			err = w.giveLink(dir, path, e)
		}
		if err == nil {
			w.step()
			err = w.setTime(dir, e.Name, path, e)
		}
		return w.others(path, err)
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, e.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return w.at(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return w.at(path, err)
	}
	if st.Dev != p.dev || st.Ino != p.ino {
		return w.at(path, errReplaced)
	}
	if p.time {
		w.step()
		return w.others(path, w.setTime(fd, "", path, e))
	}
	return w.others(path, w.resetFile(fd, path, e))
}

// resetFile gives an open file the saved metadata and no other attributes.
func (w *writer) resetFile(fd int, path string, e *tree.Entry) error {
	w.step()
	if err := unix.Fchmod(fd, e.Mode|0o600); err != nil { // attributes need the right to write
		return err
	}
	if err := w.stripTo(fd, e); err != nil {
		return err
	}
	return w.setFileMeta(fd, path, e, false)
}

// reset gives an open directory the saved metadata and no other attributes.
func (w *writer) reset(fd int, path string, e *tree.Entry) error {
	w.step()
	err := unix.Fchmod(fd, e.Mode|0o700)
	if err == nil {
		err = w.stripTo(fd, e)
	}
	if err == nil {
		w.step()
		err = w.setDirMeta(fd, path, e)
	}
	return w.others(path, err)
}

// stripTo removes the attributes that a restore sets but that e does not have.
func (w *writer) stripTo(fd int, e *tree.Entry) error {
	var saved []tree.XAttr
	if !e.XAttrs.IsZero() {
		var err error
		if saved, err = w.reader.XAttrs(w.ctx, e.XAttrs); err != nil {
			return err
		}
	}
	return strip(fd, saved)
}

// others notes that the metadata of what is somebody else's cannot be set.
func (w *writer) others(path string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		w.incomplete(path, fmt.Errorf("set its metadata: %w", err))
		return nil
	case err != nil:
		return w.at(path, err)
	}
	return nil
}
