package capture

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// A Root is an open workspace of which single files are read.
type Root struct{ dir *dirFD }

// OpenRoot opens a workspace.
func OpenRoot(dir string) (*Root, error) {
	fd, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Root{fd}, nil
}

// Close closes it. A second call does nothing.
func (r *Root) Close() error {
	if r.dir != nil {
		r.dir.close()
		r.dir = nil
	}
	return nil
}

// Open opens the regular file at a slash path below it for reading. No link is followed
// on the way, and nothing that is no file is waited for.
func (r *Root) Open(path string) (*os.File, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", tree.Quote(path), err)
	}
	return f, nil
}

func (r *Root) open(path string) (*os.File, error) {
	if err := tree.CheckPath(path); err != nil {
		return nil, err
	}
	at := r.dir
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			break
		}
		next, err := at.openDir(name)
		if at != r.dir {
			at.close()
		}
		if err != nil {
			return nil, moved(err)
		}
		at, path = next, rest
	}
	fd, err := at.open(path, 0)
	if at != r.dir {
		at.close()
	}
	if err != nil {
		return nil, moved(err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && kindOf(&st) != unix.DT_REG {
		err = errNotRegular
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// moved explains that a path leads over a link, or a file.
func moved(err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errNotRegular
	}
	return err
}
