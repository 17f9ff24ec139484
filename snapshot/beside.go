package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/restore"
)

// besidePrefix begins the names of directories for what is on its way to its place. The
// rest follows from that, so that what a killed restore left is found by the next.
const besidePrefix = ".snapfs-restore-beside-"

// beside is what a restore delivers besides the files. It is written next to its places
// first, and moved there when the files are restored.
type beside struct {
	moves     []move
	artifacts string // where they go; "": nowhere
}

// move is one of them.
type move struct {
	from, to string
	lock     int      // the open directory that it is in
	made     []string // directories above that were missing, innermost first
}

// prepareBeside writes what was asked for besides the files, which go to dir.
func (s *Store) prepareBeside(ctx context.Context, cp Checkpoint, dir string, opt RestoreOptions) (_ *beside, err error) {
	b := &beside{}
	defer func() {
		if err != nil {
			b.discard()
		}
	}()
	if opt.Artifacts != "" {
		list, err := s.Artifacts(ctx, cp.ID)
		if err != nil {
			return nil, err
		}
		m, err := s.place(opt.Artifacts, dir, "artifacts")
		if err != nil {
			return nil, err
		}
		b.artifacts = m.to
		if err = restore.CheckNames(m.to, ArtifactNames(list)); err == nil && !opt.DryRun {
			err = b.add(m, func(at string) error { return s.writeArtifacts(ctx, cp, list, at, opt.Owner) })
		}
		if errors.Is(err, restore.ErrCollision) {
			err = WithHint(err, "choose a directory on a file system that tells them apart; snapfs artifact read has each of them")
		}
		if err != nil {
			return nil, fmt.Errorf("artifacts of checkpoint %s: %w", quoted(cp.ID), err)
		}
	}
	if opt.Conversation != "" {
		if !cp.Conversation {
			return nil, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), ErrNoConversation)
		}
		m, err := s.place(opt.Conversation, dir, "conversation")
		if err != nil {
			return nil, err
		}
		if a := b.artifacts; a != "" && (Within(a, m.to) || Within(m.to, a)) {
			return nil, WithHint(fmt.Errorf("artifacts to %s, and conversation to %s: one lies in the other: %w", quoted(opt.Artifacts), quoted(opt.Conversation), ErrRefused), "choose a place of its own for each")
		}
		if !opt.DryRun {
			err = b.add(m, func(at string) error {
				return writeNew(at, opt.Owner, cp.Created, func(w io.Writer) error { return s.Conversation(ctx, cp.ID, w) })
			})
		}
		if err != nil {
			return nil, fmt.Errorf("conversation of checkpoint %s: %w", quoted(cp.ID), err)
		}
	}
	return b, nil
}

// place looks whether something can be delivered to path: a directory that is missing or
// empty, for a conversation a file that is missing, outside of the workspace dir.
func (s *Store) place(path, dir, what string) (move, error) {
	abs, err := s.outside(path)
	if err != nil {
		return move{}, err
	}
	if Within(realPath(abs), realPath(dir)) || Within(realPath(dir), realPath(abs)) {
		return move{}, WithHint(fmt.Errorf("%s to %s, and the files to %s: one lies in the other: %w", what, quoted(path), quoted(dir), ErrRefused),
			"choose a place of its own: what is in the workspace is saved with it")
	}
	list, err := os.ReadDir(abs)
	switch {
	case err == nil && what == "artifacts" && len(list) == 0:
	case err == nil || errors.Is(err, unix.ENOTDIR):
		return move{}, WithHint(fmt.Errorf("%s to %s: %w", what, quoted(path), errTaken), "choose a place where nothing is")
	case !errors.Is(err, iofs.ErrNotExist):
		return move{}, err
	default:
		if _, err := os.Lstat(abs); err == nil {
			return move{}, WithHint(fmt.Errorf("%s to %s: %w", what, quoted(path), errTaken), "choose a place where nothing is")
		}
	}
	return move{to: abs}, nil
}

// errTaken: there is something where artifacts or a conversation are to go.
var errTaken = fmt.Errorf("something is there: %w", restore.ErrNotEmpty)

// add writes something next to where it is to go.
func (b *beside) add(m move, write func(at string) error) error {
	parent := filepath.Dir(m.to)
	var err error
	at := filepath.Join(parent, besidePrefix+cas.Data.Sum([]byte(m.to)).String()[:16])
	if m.made, err = restore.MakeParents(parent); err == nil {
		m.lock, err = takeBeside(at)
	}
	if err != nil {
		for _, d := range m.made {
			_ = os.Remove(d)
		}
		return err
	}
	m.from = filepath.Join(at, filepath.Base(m.to))
	b.moves = append(b.moves, m)
	return write(m.from)
}

// takeBeside makes an empty private directory at a path, and returns it locked. What a
// killed restore left there goes; while its restore lives, that is an
// [restore.UnfinishedError].
func takeBeside(at string) (lock int, err error) {
	for {
		err := os.Mkdir(at, 0o700)
		if err != nil && !errors.Is(err, iofs.ErrExist) {
			return -1, err
		}
		fresh := err == nil
		fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // its restore has come to its end
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: at, Err: err}
		}
		var st, named unix.Stat_t
		err = unix.Fstat(fd, &st)
		switch {
		case err != nil:
		case int(st.Uid) != os.Geteuid():
			err = fmt.Errorf("%s is somebody else's: %w", quoted(at), ErrForbidden)
		case unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil:
			err = &restore.UnfinishedError{Dir: quoted(at), Living: true}
		case unix.Lstat(at, &named) != nil || named.Ino != st.Ino:
			_ = unix.Close(fd)
			continue
		case fresh:
			return fd, nil
		default: // a killed restore's
			err = restore.RemoveAll(at)
			_ = unix.Close(fd)
			if err == nil {
				continue
			}
			return -1, err
		}
		_ = unix.Close(fd)
		return -1, err
	}
}

// publish moves everything to its place.
func (b *beside) publish() error {
	for _, m := range b.moves {
		rename := func() error { return restore.RenameNew(unix.AT_FDCWD, m.from, unix.AT_FDCWD, m.to) }
		err := rename()
		if errors.Is(err, unix.EEXIST) { // an empty directory gives way
			_ = os.Remove(m.to)
			err = rename()
		}
		if err != nil {
			return &os.LinkError{Op: "rename", Old: m.from, New: m.to, Err: err}
		}
	}
	return nil
}

// discard removes what was not published.
func (b *beside) discard() {
	for _, m := range b.moves {
		_ = restore.RemoveAll(filepath.Dir(m.from))
		_ = unix.Close(m.lock)
	}
	for _, m := range b.moves {
		for _, d := range m.made {
			_ = os.Remove(d) // only if still empty
		}
	}
}

// writeArtifacts makes a directory with a file for each artifact.
func (s *Store) writeArtifacts(ctx context.Context, cp Checkpoint, list []Artifact, dir string, owner *restore.Owner) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	names := ArtifactNames(list)
	if err := restore.CheckNames(filepath.Dir(dir), names); err != nil { // which is there now, and so tells more
		return err
	}
	for i, name := range names {
		a := list[i]
		err := writeNew(filepath.Join(dir, name), owner, a.Created, func(w io.Writer) error { return s.ReadArtifact(ctx, cp.ID, a.ID, w) })
		if err != nil {
			return err
		}
	}
	return give(dir, owner)
}

// writeNew makes a file that must not be there.
func writeNew(path string, owner *restore.Owner, modified time.Time, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = give(path, owner)
	}
	if err == nil {
		err = os.Chtimes(path, modified, modified)
	}
	return err
}

func give(path string, owner *restore.Owner) error {
	if owner == nil {
		return nil
	}
	return os.Lchown(path, int(owner.UID), int(owner.GID))
}
