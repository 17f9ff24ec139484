package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// applyDir does what the plan says in one open directory: what was prepared comes to its
// places. staged is the directory of what
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
		return removeAt(dir, name)
	}
	return err
}

// moveIn moves a new entry to its place. What is there goes first when there is no
// other way, else in the same moment.
func (w *writer) moveIn(dir, staged int, path, name string, a *aside, where place) error {
	var st unix.Stat_t
	err := unix.Fstatat(staged, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if absent(err) || staged < 0 { // the file system cannot hold it, which was noted
		if where != free {
			w.stayed++
		}
		return nil
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
	fd, err := openFile(dir, e.Name)
	back := func() {}
	if errors.Is(err, unix.EACCES) { // its mode keeps the caller out
		fd, back, err = letRead(dir, e.Name)
	}
	if err != nil {
		return w.at(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Dev != p.dev || st.Ino != p.ino) {
		err = errReplaced
	}
	switch {
	case err != nil:
		back()
		return w.at(path, err)
	case p.time:
		w.step()
		err = w.setTime(fd, "", path, e)
		back()
	default:
		if err = w.resetFile(fd, path, e); err != nil {
			back()
		}
	}
	return w.others(path, err)
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
