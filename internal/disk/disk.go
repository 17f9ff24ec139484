// Package disk is how a store changes what lies on its disk. Everything that has to
// survive a crash goes through an [FS]: [OS] in the program, and in tests one that
// fails, or loses what was not made durable (package disktest). Reading needs none.
package disk

import (
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// An FS changes files and directories. Its methods may be called concurrently and
// fail like those of package os. What they did is durable only once [File.Sync] has
// returned for a file's bytes, and SyncDir for its name.
type FS interface {
	// OpenFile is [os.OpenFile].
	OpenFile(path string, flag int, perm iofs.FileMode) (File, error)
	// Mkdir is [os.Mkdir].
	Mkdir(path string, perm iofs.FileMode) error
	// Rename is [os.Rename].
	Rename(from, to string) error
	// Remove is [os.Remove].
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(path string) error
}

// A File is what a store needs of an [os.File].
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Name() string
	Fd() uintptr
	Truncate(size int64) error
	// Sync makes the file durable: its bytes, length, owner, mode and times.
	Sync() error
	// Datasync makes its bytes and its length durable.
	Datasync() error
}

// OS is the operating system's.
var OS FS = system{}

type system struct{}

func (system) OpenFile(path string, flag int, perm iofs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag|unix.O_CLOEXEC, perm)
	if err != nil {
		return nil, err // and not a File that holds nothing
	}
	return file{f}, nil
}

type file struct{ *os.File }

func (f file) Datasync() error {
	err := unix.Fdatasync(int(f.Fd()))
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (system) Mkdir(path string, perm iofs.FileMode) error { return os.Mkdir(path, perm) }
func (system) Rename(from, to string) error                { return os.Rename(from, to) }
func (system) Remove(path string) error                    { return os.Remove(path) }

func (system) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Or returns fsys, or [OS] where that is nil.
func Or(fsys FS) FS {
	if fsys == nil {
		return OS
	}
	return fsys
}

// Own gives what root made at a path to whom the directory dir belongs, so that a
// store in which root works stays its owner's.
func Own(path, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if st.Uid == 0 {
		return nil
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}

// BootID names the running boot of the machine; empty where the kernel does not tell.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
