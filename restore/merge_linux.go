package restore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

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
func (w *writer) merge(root *target, l *lock, m marker, src Source, dir string, p *planner) (res Result, err error) {
	plan := p.todo
	if l == nil && plan == nil {
		res := p.counts
		res.name(&p.already)
		return res, nil
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
	if plan != nil {
		if err := w.applyDir(root.fd, aside.tree.fd, "", aside, plan); err != nil {
			return Result{}, &PartialError{Dir: shown, Err: err}
		}
	}
	if err := errors.Join(root.sync(), aside.drop(root)); err != nil {
		return Result{}, &PartialError{Dir: shown, Err: err}
	}
	if kept {
		w.step()
		err = root.unmark(shown)
	} else {
		err = w.finishRoot(root, src.Stat, 0o700, func() error { return root.unmark(shown) })
	}
	if err != nil {
		return Result{}, err
	}
	res = p.counts
	res.Created -= w.unmade - w.stayed
	res.Replaced -= w.stayed
	res.Kept += w.stayed
	res.Files, res.Dirs, res.Bytes, res.Incomplete = w.result.Files, w.result.Dirs, w.result.Bytes, w.result.Incomplete
	res.name(&w.zeroed, &p.already)
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
	if plan == nil {
		return a, nil
	}
	if folds, full := root.folds(); folds {
		if err := w.checkNames(full, src, p.opt.Files, plan); err != nil {
			return a, err
		}
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
	if filepath.Base(name) != name || !strings.HasPrefix(name, stagePrefix) {
		return fmt.Errorf("the marker names %s, which is no directory of a restore: %w", tree.Quote(name), ErrUnfinished)
	}
	return removeAt(t.fd, name)
}
