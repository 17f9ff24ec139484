package fs

import (
	"os/user"
	"strconv"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// owner is whom a thread's directory belongs to, once that is known.
type owner struct {
	mu    sync.Mutex
	known bool
	fuse.Owner
}

// private shows a thread's directory as its owner's alone, where users other
// than the one who mounts may enter: the owner and the owner's group look into
// it, everybody else does not.
func (d *threadDir) private(out *fuse.Attr) {
	out.Mode = unix.S_IFDIR | 0o750
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	if !d.owner.known && d.fs.root {
		d.owner.Owner, d.owner.known = d.founder()
	}
	if d.owner.known {
		out.Owner = d.owner.Owner
	}
}

// founder returns who made the oldest checkpoint that the thread has: its owner
// stays when others save into it. What a user without a name saved has the number
// in its place. For one whom this machine does not know, the directory stays that
// of the user who mounts.
func (d *threadDir) founder() (fuse.Owner, bool) {
	cps, err := d.checkpoints()
	if err != nil || len(cps) == 0 {
		return fuse.Owner{}, false
	}
	mounts := fuse.Owner{Uid: d.fs.uid, Gid: d.fs.gid}
	name := cps[0].Creator.User
	u, err := user.Lookup(name)
	if err != nil {
		if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
			return fuse.Owner{Uid: uint32(uid), Gid: d.fs.gid}, true
		}
		return mounts, true
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	if uerr != nil || gerr != nil {
		return mounts, true
	}
	return fuse.Owner{Uid: uint32(uid), Gid: uint32(gid)}, true
}
