package restore

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// An Owner is a user and a group by their numbers.
type Owner struct{ UID, GID uint32 }

// owners says to whom a restore gives what it makes. The zero value leaves it to the
// caller.
type owners struct {
	all   *Owner // everything; nil: nobody
	saved *Owner // the checkpoint's default owner, with which each entry gets its own; nil: not wanted
}

func newOwners(src Source, opt Options) owners {
	o := owners{all: opt.Owner}
	if opt.PreserveOwner {
		o.saved = &Owner{UID: src.Stat.UID, GID: src.Stat.GID}
	}
	return o
}

// of returns whose e is to be; ok is false when it stays the caller's.
func (o owners) of(e *tree.Entry) (owner Owner, ok bool) {
	switch {
	case o.all != nil:
		return *o.all, true
	case o.saved != nil && e.Owned:
		return Owner{UID: e.UID, GID: e.GID}, true
	case o.saved != nil:
		return *o.saved, true
	}
	return Owner{}, false
}

// differs reports whether a live entry belongs to somebody else than e is to.
func (o owners) differs(st *unix.Stat_t, e *tree.Entry) bool {
	owner, ok := o.of(e)
	return ok && (st.Uid != owner.UID || st.Gid != owner.GID)
}

// give hands an open file or directory over. It comes before attributes and modes: a
// change of the owner takes rights away.
func (w *writer) give(fd int, path string, e *tree.Entry) error {
	owner, ok := w.owners.of(e)
	if !ok {
		return nil
	}
	w.step()
	return w.given(fd, path, owner, unix.Fchown(fd, int(owner.UID), int(owner.GID)))
}

// giveLink is give for a symlink, by its name.
func (w *writer) giveLink(dir int, path string, e *tree.Entry) error {
	owner, ok := w.owners.of(e)
	if !ok {
		return nil
	}
	w.step()
	return w.given(dir, path, owner, unix.Fchownat(dir, e.Name, int(owner.UID), int(owner.GID), unix.AT_SYMLINK_NOFOLLOW))
}

// given notes that the file system of an open file keeps no owners; any other error it
// returns.
func (w *writer) given(fd int, path string, owner Owner, err error) error {
	switch {
	case err == nil:
		return nil
	case unable(fd, err):
		w.incomplete(path, fmt.Errorf("its owner, %d:%d: the file system keeps no owners", owner.UID, owner.GID))
		return nil
	}
	return fmt.Errorf("give it to %d:%d: %w", owner.UID, owner.GID, err)
}

// String is for the marker: two restores that give to the same are equal.
func (o owners) String() string {
	switch {
	case o.all != nil:
		return fmt.Sprintf("%d:%d", o.all.UID, o.all.GID)
	case o.saved != nil:
		return fmt.Sprintf("saved, else %d:%d", o.saved.UID, o.saved.GID)
	}
	return ""
}

// made reports whether a file, which lies in or is the open fd, can be one that this
// restore has made: the caller's, or handed over already.
func (o owners) made(fd int, st *unix.Stat_t, e *tree.Entry) bool {
	if own(fd, st) {
		return true
	}
	owner, ok := o.of(e)
	return ok && st.Uid == owner.UID
}

// own reports whether a file is the caller's: what somebody else planted is not
// taken for what the restore made. fd is the file, or the directory that it is in.
func own(fd int, st *unix.Stat_t) bool {
	return int(st.Uid) == os.Geteuid() || ownerless(fd)
}

// ownerless reports whether an open file lies on a file system that gives files an
// owner of its choice: all of a vfat belongs to who mounted it, and a network's server
// may know root as nobody.
func ownerless(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	const ntfs3, exfat = 0x7366746e, 0x2011BAB0
	return slices.Contains([]int64{
		unix.MSDOS_SUPER_MAGIC, exfat, ntfs3, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
	}, int64(fs.Type))
}
