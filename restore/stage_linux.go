package restore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// stagePrefix begins the name of every directory of a restore's own; AsidePattern is what
// it has moved away in a live directory.
const (
	stagePrefix  = ".snapfs-restore-"
	AsidePattern = stagePrefix + "*/" + trashName
)

// stageTree is what the tree is called in it, beside the marker. So the marker stands
// until the tree has left as a whole.
const stageTree = "tree"

// stage is the private directory beside a missing target in which it is made.
type stage struct {
	parent int    // the directory around both
	name   string // of the stage
	base   string // of the target
	dir    *target
	lock   *lock
}

// staged restores into a private directory beside the target and renames it.
func (w *writer) staged(m marker, src Source, dir string, opt Options) (res Result, err error) {
	beside := func(err error) error {
		if errors.Is(err, ErrUnfinished) {
			return err
		}
		return fmt.Errorf("restore beside %s: %w", tree.Quote(dir), cas.NoSpace(err))
	}
	made, err := MakeParents(filepath.Dir(dir))
	defer func() {
		if err != nil {
			for _, d := range made {
				_ = os.Remove(d) // only if still empty
			}
		}
	}()
	if err != nil {
		return Result{}, err
	}
	s, err := w.openStage(m, dir)
	if err != nil {
		return Result{}, beside(err)
	}
	defer s.close()
	keep := false
	defer func() {
		if err != nil && !keep {
			err = errors.Join(err, s.remove())
		}
	}()
	root, resumed, err := w.openTree(s, src)
	if err != nil {
		return Result{}, beside(err)
	}
	defer root.close()
	if resumed {
		where := tree.Quote(filepath.Join(filepath.Dir(dir), s.name, stageTree))
		if err := w.survey(root, s.lock, src, opt.Files, where); err != nil {
			keep = true
			return Result{}, err
		}
		opt.resuming()
	}
	if err := freshen(root.fd); err != nil {
		return Result{}, beside(err)
	}
	if folds, full := s.dir.folds(); folds {
		if err := w.checkNames(full, src, opt.Files, nil); err != nil {
			return Result{}, err
		}
	}
	if err := w.fill(root, src, within{scope: opt.Files.Root()}); err != nil {
		return Result{}, err
	}
	if err := root.sync(); err != nil {
		return Result{}, err
	}
	if err := w.finishRoot(root, src.Stat, 0, func() error { return s.publish(root, dir) }); err != nil {
		return Result{}, err
	}
	w.step()
	// The target is there. What is left of the stage now is empty, and in nobody's way.
	_ = s.remove()
	return w.result, nil
}

// stageName follows from the target's name, so that the same restore finds it again.
func stageName(base string) string {
	return stagePrefix + cas.Data.Sum([]byte(base)).String()[:16]
}

// openStage makes the staging directory for dir, or takes the one that a killed
// restore of the same left. That of another dead restore goes; while its restore lives
// it is an [UnfinishedError]. Where the name leads to anything that is not surely a
// stage of the caller's, another one is taken.
func (w *writer) openStage(m marker, dir string) (_ *stage, err error) {
	parent, err := unix.Open(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(dir), Err: err}
	}
	defer func() {
		if err != nil {
			_ = unix.Close(parent)
		}
	}()
	name := stageName(filepath.Base(dir))
	for {
		if err := context.Cause(w.ctx); err != nil { // somebody may play with the name
			return nil, err
		}
		s := &stage{parent: parent, name: name, base: filepath.Base(dir)}
		m.Stage = name
		w.step()
		err := unix.Mkdirat(parent, name, 0o700)
		switch {
		case err == nil:
			again, err := s.begin(w, m, dir)
			if err != nil {
				return nil, err
			}
			if !again {
				return s, nil
			}
		case errors.Is(err, unix.EEXIST):
			free, err := s.take(dir)
			if err != nil {
				return nil, err
			}
			if s.lock != nil && s.lock.Restore == m.Restore {
				return s, nil
			}
			if s.lock != nil { // of a dead restore
				w.step()
				err = s.remove()
				s.closeDir()
				if err != nil {
					return nil, err
				}
			}
			if !free {
				name = stagePrefix + rand.Text()
			}
		default:
			return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(filepath.Dir(dir), name), Err: err}
		}
	}
}

// begin makes a new directory a stage. again says that somebody took it away in the
// moment before it had its marker.
func (s *stage) begin(w *writer, m marker, dir string) (again bool, err error) {
	fd, err := unix.Openat(s.parent, s.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) { // a default ACL of the parent kept us out of our own directory
		fd, err = adopt(owners{}, s.parent, &tree.Entry{Name: s.name})
	}
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.dir = &target{fd: fd, made: true}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !own(fd, &st) {
		err = errReplaced
	}
	if err == nil {
		err = s.dir.clearDefaultACL()
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o700)
	}
	if err == nil {
		w.step()
		// If we are killed, nobody takes what is left for whole, nor saves it.
		s.lock, err = s.dir.mark(m, tree.Quote(dir))
	}
	if err == nil {
		return false, nil
	}
	s.closeDir()
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	_ = unix.Unlinkat(s.parent, s.name, unix.AT_REMOVEDIR)
	return false, err
}

// take opens and locks a stage that is there. Without a lock there is none, or not any
// more; free says that nothing else has its name.
func (s *stage) take(dir string) (free bool, err error) {
	fd, err := unix.Openat(s.parent, s.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.ENOENT), nil
	}
	s.dir = &target{fd: fd, made: true}
	defer func() {
		if s.lock == nil {
			s.closeDir()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !own(fd, &st) {
		return false, nil
	}
	if st.Mode&0o7777 == 0o700 {
		l, err := s.dir.locked(tree.Quote(dir))
		var busy *UnfinishedError
		if errors.As(err, &busy) && busy.Living {
			return false, err
		}
		if err == nil && l != nil && l.Stage == s.name {
			s.lock = l
			return true, nil
		}
		l.release()
		if err != nil || l != nil {
			return false, nil
		}
	}
	// One that was killed before it had a marker is empty, and so is one that another
	// process has just begun: it notices.
	return unix.Unlinkat(s.parent, s.name, unix.AT_REMOVEDIR) == nil, nil
}

// openTree makes the directory that becomes the target, or opens the one that is there.
func (w *writer) openTree(s *stage, src Source) (root *target, resumed bool, err error) {
	w.step()
	err = unix.Mkdirat(s.dir.fd, stageTree, 0o700)
	resumed = errors.Is(err, unix.EEXIST)
	if err != nil && !resumed {
		return nil, false, err
	}
	at := src.Stat
	at.Name = stageTree
	fd, err := adopt(w.owners, s.dir.fd, &at)
	if err != nil {
		return nil, false, err
	}
	// In the target's own parent it may have had another group.
	var around unix.Stat_t
	if !resumed && unix.Fstat(s.dir.fd, &around) == nil {
		_ = unix.Fchown(fd, -1, int(around.Gid))
	}
	return &target{fd: fd, made: true}, resumed, nil
}

// publish moves the tree to the target's place, never over something that appeared
// there meanwhile.
func (s *stage) publish(root *target, dir string) error {
	err := s.rename()
	if errors.Is(err, iofs.ErrPermission) {
		// A directory that its owner cannot write to cannot go to another one.
		var st unix.Stat_t
		if ferr := unix.Fstat(root.fd, &st); ferr == nil && st.Mode&0o200 == 0 {
			if ferr = unix.Fchmod(root.fd, st.Mode&0o7777|0o200); ferr == nil {
				err = s.rename()
			}
		}
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s appeared meanwhile: %w", tree.Quote(dir), ErrNotEmpty)
	}
	if err != nil {
		return fmt.Errorf("move the restored tree to %s: %w", tree.Quote(dir), err)
	}
	return nil
}

func (s *stage) rename() error {
	return RenameNew(s.dir.fd, stageTree, s.parent, s.base)
}

// RenameNew renames name in the open directory from to as in the open directory to. It
// fails with EEXIST when that is taken, where the file system can make sure of it.
func RenameNew(from int, name string, to int, as string) error {
	err := unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system without the flag
		err = unix.Renameat(from, name, to, as)
	}
	return err
}

// remove takes the stage away with all that is in it, the marker last: nothing in it
// is anybody else's. Its directory is removed by name, and only if it is empty.
func (s *stage) remove() error {
	self := fmt.Sprintf("/proc/self/fd/%d", s.dir.fd)
	names, err := os.ReadDir(self)
	if err != nil {
		return fmt.Errorf("remove the staging directory: %w", err)
	}
	for _, name := range names {
		if name.Name() == capture.Marker {
			continue
		}
		if err := removeAt(s.dir.fd, name.Name()); err != nil {
			return err
		}
	}
	err = unix.Unlinkat(s.dir.fd, capture.Marker, 0)
	s.lock.release() // a file system in user space keeps a file by another name while it is open
	if err == nil {
		err = unix.Unlinkat(s.parent, s.name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return fmt.Errorf("remove the staging directory %s: %w", s.name, err)
	}
	return nil
}

func (s *stage) closeDir() {
	s.lock.release()
	s.lock = nil
	if s.dir != nil {
		s.dir.close()
		s.dir = nil
	}
}

func (s *stage) close() {
	s.closeDir()
	_ = unix.Close(s.parent)
}
