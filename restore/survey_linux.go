package restore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// A ForeignError says that an unfinished target holds something that its restore
// did not make. It is an [ErrNotEmpty].
type ForeignError struct {
	Dir, Path string // quoted
	Why       string
}

// Error names the entry.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s holds %s, %s: %v", e.Dir, e.Path, e.Why, ErrNotEmpty)
}

// Unwrap returns [ErrNotEmpty].
func (e *ForeignError) Unwrap() error { return ErrNotEmpty }

// left is what an earlier restore left, which this one goes on with.
type left struct {
	begun unix.Timespec // when that one began
	boot  bool          // since then the machine has not been started again
}

// surveyor compares what a killed restore left with what it was to make.
type surveyor struct {
	*writer
	shown string // the target, for messages
	root  *target
}

// survey makes the writer go on with what lies below root. It fails with a
// [ForeignError] when there is anything that the restore cannot have made. It writes
// nothing, but lets the owner into directories that have their modes already.
func (w *writer) survey(root *target, l *lock, src Source, files *policy.Files, shown string) error {
	s := &surveyor{writer: w, shown: shown, root: root}
	fd, err := unix.Openat(root.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at the target %s: %w", shown, err)
	}
	if err := s.dir(fd, "", src.Root, files.Root()); err != nil {
		return err
	}
	w.left = &left{begun: l.begun, boot: l.Boot != "" && l.Boot == disk.BootID()}
	return nil
}

// dir surveys an open directory, and closes it: first its own entries, then the
// directories in it.
func (s *surveyor) dir(fd int, path string, hash cas.Hash, scope policy.Scope) error {
	f := os.NewFile(uintptr(fd), shown(path))
	defer f.Close()
	list, err := f.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("look at the target %s: %w", s.shown, err)
	}
	there := make(map[string]bool, len(list))
	for _, name := range list {
		if path != "" || name != capture.Marker && (name != "lost+found" || !s.root.isMountRoot()) {
			there[name] = true
		}
	}
	if len(there) == 0 {
		return nil
	}
	type below struct {
		entry tree.Entry
		scope policy.Scope
	}
	var dirs []below
	d, err := s.reader.Open(s.ctx, hash)
	if err != nil {
		return s.at(path, err)
	}
	for e, err := range d.Entries(s.ctx, 0) {
		if err != nil {
			return s.at(path, err)
		}
		if !there[e.Name] {
			continue
		}
		decision, sub := scope.Decide(e.Name, e.Kind == tree.Dir)
		if !decision.Keep && (e.Kind != tree.Dir || !decision.Descend) {
			continue
		}
		delete(there, e.Name)
		if err := s.entry(fd, path+e.Name, &e); err != nil {
			return err
		}
		if e.Kind == tree.Dir {
			dirs = append(dirs, below{e, sub})
		}
	}
	if len(there) > 0 {
		return s.foreign(path+slices.Min(slices.Collect(maps.Keys(there))), "which the checkpoint does not have")
	}
	for _, b := range dirs {
		sub, err := adopt(s.owners, fd, &b.entry)
		if err != nil {
			return s.at(path+b.entry.Name, err)
		}
		if err := s.dir(sub, path+b.entry.Name+"/", b.entry.Hash, b.scope); err != nil {
			return err
		}
	}
	return nil
}

// entry looks at one that is there.
func (s *surveyor) entry(fd int, path string, e *tree.Entry) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return s.at(path, err)
	}
	kinds := map[tree.Kind]uint32{tree.File: unix.S_IFREG, tree.Dir: unix.S_IFDIR, tree.Symlink: unix.S_IFLNK}
	switch {
	case st.Mode&unix.S_IFMT != kinds[e.Kind]:
		return s.foreign(path, fmt.Sprintf("which is a %s in the checkpoint", e.Kind))
	case !s.owners.made(fd, &st, e):
		return s.foreign(path, "which is somebody else's")
	}
	if e.Kind == tree.File && s.whole(fd, path, &st, e) {
		s.links.prefer(path)
	}
	if path == e.Name {
		s.root.note(path) // a failure takes it away
	}
	return nil
}

func (s *surveyor) foreign(path, why string) error {
	return &ForeignError{Dir: s.shown, Path: tree.Quote(path), Why: why}
}

// errReplaced: what the survey saw is something else by now.
var errReplaced = errors.New("it was replaced meanwhile")

// adopt opens the directory e, which this restore may have made, where it is there
// already. It lets the owner look in if its mode does not.
func adopt(o owners, dir int, e *tree.Entry) (int, error) {
	at, err := unix.Openat(dir, e.Name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if !o.made(at, &st, e) {
		return -1, errReplaced
	}
	if st.Mode&0o500 != 0o500 {
		// No call takes the mode of a descriptor like this.
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), 0o700); err != nil {
			return -1, err
		}
	}
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// freshen makes a directory of ours as it was when it was made: a default ACL that it
// has already would be inherited by what is made in it.
func freshen(fd int) error {
	if err := unix.Fchmod(fd, 0o700); err != nil { // attributes need the right to write
		return err
	}
	if err := strip(fd, nil); err != nil {
		return err
	}
	return unix.Fchmod(fd, 0o700) // an ACL may have widened it
}
