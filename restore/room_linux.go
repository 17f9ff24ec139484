package restore

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// checkRoom fails with [cas.ErrNoSpace] when a tree says that it has more files and
// directories than the file system of dir, of which the end may be missing, can still
// hold. A few objects can stand for any number of them: nobody should have to wait until
// they fill the disk. Some file systems do not tell. Of a live directory much may be
// there already: then all that the file system could hold counts.
func checkRoom(ctx context.Context, r *tree.Reader, src Source, links *linkGroups, dir string, live bool) error {
	top, err := r.Open(ctx, src.Root)
	if err != nil {
		return fmt.Errorf("directory .: %w", err)
	}
	totals := top.Root().Totals
	need := totals.Files + totals.Dirs
	further := uint64(0) // names that take no file of their own
	for _, names := range links.size {
		further += uint64(names - 1)
	}
	need -= min(need, further)
	free, ok := freeFiles(dir, live)
	if ok && need > free {
		return fmt.Errorf("the checkpoint has %d files and directories, and the file system of %s has room for %d: %w", need, tree.Quote(dir), free, cas.ErrNoSpace)
	}
	return nil
}

// freeFiles is how many files can be made on the file system of a path, or with all how
// many it can hold.
func freeFiles(path string, all bool) (free uint64, ok bool) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	for errors.Is(err, iofs.ErrNotExist) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		err = unix.Statfs(path, &st)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return 0, false // that is said where it is written to
	}
	free = st.Ffree
	if all {
		free = st.Files
	}
	return free, err == nil && st.Files > 0
}
