package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// mapped are the files that Badger makes with a fixed length and writes through mapped
// memory for as long as it is open. On a full disk a write to a hole of one is a fault,
// which nobody can handle: it ends the process.
var mapped = []string{"*.mem", "*.vlog", "DISCARD"}

// plenty is how much space, in bytes, nobody takes away before we look again. To give
// the files theirs takes some milliseconds.
const plenty = 1 << 30

// room gives those files the space that they will take, where it may run out. It fails
// with [cas.ErrNoSpace]. Badger begins another file when the last is full, so room is
// asked for before each change.
func (ix *Index) room() error {
	if ix.opt.InMemory || ix.free() >= plenty {
		return nil
	}
	for _, pattern := range mapped {
		paths, err := filepath.Glob(filepath.Join(ix.dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if ix.roomy[path] {
				continue
			}
			if err := allocate(path); err != nil {
				return err
			}
			ix.roomy[path] = true
		}
	}
	return nil
}

// allocate fills the holes of a file. Where the file system cannot do that, they stay.
func allocate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was full, and has become a table
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, info.Size())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make room for the index: %w", cas.NoSpace(err))
	}
	return nil
}

// roomToClose is how much space Badger may take, in bytes, when it writes out what it
// has in memory as it is closed: that goes through mapped memory, too.
const roomToClose = memTableSize + 1<<20

// canClose reports whether there is room to close the database. If there is none it is
// left as a process that is killed leaves it.
func (ix *Index) canClose() bool {
	return ix.opt.InMemory || ix.free() >= roomToClose
}

// free is the space that is left, in bytes; where nobody can tell there is plenty.
func (ix *Index) free() uint64 {
	var st unix.Statfs_t
	if unix.Statfs(ix.dir, &st) != nil {
		return plenty
	}
	return st.Bavail * uint64(st.Bsize)
}
