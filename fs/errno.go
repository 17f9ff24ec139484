package fs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// staleNode answers for a node that we do not know.
const staleNode = fuse.Status(unix.ESTALE)

// errnos turns errors into what the kernel hands to programs. Content that is
// damaged or missing is EIO, never ENOENT: it was saved and should be there.
var errnos = []struct {
	err    error
	status fuse.Status
}{
	{cas.ErrNotFound, fuse.EIO},
	{cas.ErrCorrupt, fuse.EIO},
	{tree.ErrInvalid, fuse.EIO},
}

// fail logs an error and returns its errno.
func (f *FS) fail(what string, id uint64, err error) fuse.Status {
	status := fuse.EIO
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			status = e.status
			break
		}
	}
	var hash string
	if n, ok := f.node(id).(*treeNode); ok {
		hash = n.hash.String()
	}
	f.log.Error("request failed", "request", what, "node", id, "content", hash, "errno", status.String(), "error", err)
	return status
}
