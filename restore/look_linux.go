package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// A planner decides about one entry after the other, in order of paths. Looking at them,
// which takes the time, is done ahead of it on all processors.

// lookWindow is how many directories of one are looked at before it is their turn.
const lookWindow = 8

// A look is what is found in one directory that the checkpoint has and that is there. Who
// takes it first looks; then it stands.
type look struct {
	planner *planner
	parent  int    // the open directory that it is in; for the root, itself
	path    string // "" or ends in a slash
	entry   *tree.Entry
	st      *unix.Stat_t
	do      policy.Scope // which of its entries are asked for

	once    sync.Once
	dir     entered // open until it is left, once it was looked at
	items   []item
	clashes [][]string // paths of which the file system would make one
	differs string     // what of its own metadata is not the saved one
	err     error
}

// item is a name of a directory of the checkpoint, of the live one, or of both.
type item struct {
	name   string
	listed bool // by the live directory
	saved  *tree.Entry
	st     *unix.Stat_t // nil: nothing is there
	is     likeness     // of a file with the saved content
	look   *look        // into a directory of both
	meta   string       // what metadata differs
	err    error
}

func (p *planner) newLook(parent int, path string, e *tree.Entry, st *unix.Stat_t, do policy.Scope) *look {
	return &look{planner: p, parent: parent, path: path, entry: e, st: st, do: do, dir: entered{fd: -1}}
}

// lookers starts those who look ahead. stop waits for their end.
func (p *planner) lookers() (stop func()) {
	p.ahead = make(chan *look, 4*lookWindow)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for l := range p.ahead {
				l.take()
			}
		})
	}
	return func() { close(p.ahead); wg.Wait() }
}

// lookAhead makes looks for the directories of one whose entries are planned by and by.
// begin is called with the number of each item before its turn. drop ends those whose turn
// did not come; then the directory may be left.
func (p *planner) lookAhead(l *look, do policy.Scope) (begin func(i int), drop func()) {
	next, dirs := 0, []int{} // items that have a look, of which the turn has not come
	begin = func(i int) {
		if len(dirs) > 0 && dirs[0] < i {
			dirs = dirs[1:]
		}
		for ; next < len(l.items) && len(dirs) < lookWindow; next++ {
			it := &l.items[next]
			if it.saved == nil || it.st == nil || it.saved.Kind != tree.Dir || !isKind(it.st, tree.Dir) {
				continue
			}
			decision, sub := do.Decide(it.name, true)
			if !decision.Descend {
				continue
			}
			it.look = p.newLook(l.dir.fd, l.path+it.name+"/", it.saved, it.st, sub)
			dirs = append(dirs, next)
			select {
			case p.ahead <- it.look:
			default: // they have enough to do
			}
		}
	}
	return begin, func() {
		for _, i := range dirs {
			l.items[i].look.leave()
		}
	}
}

// take looks at the directory, unless that was done.
func (l *look) take() {
	l.once.Do(func() {
		if err := l.look(); err != nil {
			l.err = l.planner.at(l.path, err)
		}
	})
}

// leave ends a look, taken or not.
func (l *look) leave() {
	l.once.Do(func() {}) // whoever is at it comes to the end
	if l.dir.fd >= 0 && l.path != "" {
		l.dir.leave()
	}
	l.dir.fd = -1
}

func (l *look) look() error {
	p := l.planner
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	var err error
	if l.dir.fd = l.parent; l.path != "" {
		if l.dir, err = enter(l.parent, l.entry.Name); err != nil {
			l.dir.fd = -1
			return err
		}
	}
	if l.differs, err = p.metaDiffers(l.dir.fd, l.st, l.entry); err != nil {
		return err
	}
	if err := l.list(); err != nil {
		return err
	}
	return l.compare()
}

// list lists the directory of the checkpoint beside the live one, by name.
func (l *look) list() error {
	p := l.planner
	names, err := namesIn(l.dir.fd)
	if err != nil {
		return fmt.Errorf("look at the target: %w", err)
	}
	if l.path == "" {
		names = slices.DeleteFunc(names, p.ours)
	}
	d, err := p.reader.Open(p.ctx, l.entry.Hash)
	if err != nil {
		return err
	}
	for e, err := range d.Entries(p.ctx, 0) {
		if err != nil {
			return err
		}
		for len(names) > 0 && names[0] < e.Name {
			l.items, names = append(l.items, item{name: names[0], listed: true}), names[1:]
		}
		it := item{name: e.Name, saved: &e}
		if it.listed = len(names) > 0 && names[0] == e.Name; it.listed {
			names = names[1:]
		}
		l.items = append(l.items, it)
	}
	for _, n := range names {
		l.items = append(l.items, item{name: n, listed: true})
	}
	return nil
}

// ours reports whether a name in the target's root is that of a restore's own file, or
// of the file system.
func (p *planner) ours(name string) bool {
	return name == capture.Marker || name == p.root.stage || name == "lost+found" && p.root.isMountRoot()
}

// A directory with so many files or bytes to compare is divided among processors.
const (
	manyFiles = 64
	manyBytes = 4 << 20
)

// compare looks at the live entries, and compares the contents of files.
func (l *look) compare() error {
	var files []*item
	size, aliases := uint64(0), false
	for i := range l.items {
		it := &l.items[i]
		var st unix.Stat_t
		switch err := unix.Fstatat(l.dir.fd, it.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case absent(err):
			continue
		case err != nil:
			return err
		}
		it.st = &st
		aliases = aliases || !it.listed
		if it.saved == nil || it.saved.Kind != tree.File || !isKind(&st, tree.File) || st.Size != int64(it.saved.Size) {
			continue
		}
		if decision, _ := l.do.Decide(it.name, false); decision.Keep {
			files, size = append(files, it), size+it.saved.Size
		}
	}
	if aliases {
		l.findAliases()
	}
	if len(files) < manyFiles && size < manyBytes {
		for _, it := range files {
			if err := l.compareFile(it); err != nil {
				return err
			}
		}
		return nil
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, it := range files {
		group.Go(func() error { return l.compareFile(it) })
	}
	return group.Wait()
}

// findAliases notes the names of the checkpoint under which there is something that the
// directory lists by another name: its file system takes the two for one.
func (l *look) findAliases() {
	for i := range l.items {
		it := &l.items[i]
		if it.listed || it.st == nil {
			continue
		}
		for j := range l.items {
			if other := &l.items[j]; other.listed && folded(other.name, true) == folded(it.name, true) {
				l.clashes = append(l.clashes, []string{l.path + it.name, l.path + other.name})
			}
		}
	}
}

// compareFile compares a file's content and metadata. One that cannot be read is not
// the same.
func (l *look) compareFile(it *item) error {
	p := l.planner
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	fd, err := openFile(l.dir.fd, it.name)
	back := func() {}
	if errors.Is(err, unix.EACCES) {
		fd, back, err = letRead(l.dir.fd, it.name)
	}
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	defer back()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !isKind(&st, tree.File) {
		return err
	}
	st.Mode = it.st.Mode // as it was before it was opened
	it.st = &st
	if it.is, it.err = p.writer.compare(fd, l.path+it.name, it.saved); it.err == nil && it.is != unlike {
		it.meta, it.err = p.metaDiffers(fd, &st, it.saved)
	}
	return nil
}

// letRead opens a file of the caller's whose mode keeps the caller out. back gives it that
// mode again.
func letRead(dir int, name string) (fd int, back func(), err error) {
	at, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, nil, err
	}
	if !own(at, &st) || !isKind(&st, tree.File) {
		return -1, nil, unix.EACCES
	}
	self := fmt.Sprintf("/proc/self/fd/%d", at)
	if err := unix.Chmod(self, st.Mode&0o7777|0o400); err != nil {
		return -1, nil, err
	}
	fd, err = unix.Open(self, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, errors.Join(err, unix.Chmod(self, st.Mode&0o7777))
	}
	return fd, func() { _ = unix.Fchmod(fd, st.Mode&0o7777) }, nil
}

// differentTime is what metaDiffers says of the time.
const differentTime = "time"

// metaDiffers says what metadata of an open file or directory is not the saved one.
func (p *planner) metaDiffers(fd int, st *unix.Stat_t, e *tree.Entry) (string, error) {
	var differs []string
	if st.Mode&0o7777 != e.Mode {
		differs = append(differs, "mode")
	}
	if st.Mtim.Sec != e.MtimeSec || st.Mtim.Nsec != int64(e.MtimeNsec) {
		differs = append(differs, differentTime)
	}
	if p.owners.differs(st, e) {
		differs = append(differs, "owner")
	}
	var saved []tree.XAttr
	if !e.XAttrs.IsZero() {
		var err error
		if saved, err = p.reader.XAttrs(p.ctx, e.XAttrs); err != nil {
			return "", err
		}
	}
	same, err := sameXattrs(fd, saved)
	if err != nil {
		return "", err
	}
	if !same {
		differs = append(differs, "attributes")
	}
	return strings.Join(differs, ", "), nil
}

// sameXattrs reports whether an open file has the saved attributes and no others that a
// restore would set.
func sameXattrs(fd int, saved []tree.XAttr) (bool, error) {
	names, err := listXattrs(fd)
	if err != nil || len(names) != len(saved) {
		return false, err
	}
	if len(saved) == 0 {
		return true, nil
	}
	buf := make([]byte, tree.MaxXAttrValue)
	for _, x := range saved {
		n, err := unix.Fgetxattr(fd, x.Name, buf)
		if err != nil || !bytes.Equal(buf[:n], x.Value) {
			return false, nil
		}
	}
	return true, nil
}
