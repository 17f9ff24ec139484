package capture

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// dirFD is an open directory; everything below it is reached relative to it.
type dirFD struct {
	fd     int
	dev    uint64
	fsRoot bool   // it is the root of its file system
	volume uint32 // checksum of where its file system's root is: see [placeOf]
	fine   bool   // each change of a file in it shows in its times: see [fineTimes]
	// whiteouts: empty files of overlayfs in it may be whiteouts.
	whiteouts bool
}

func (d *dirFD) close() { _ = unix.Close(d.fd) }

// open opens an entry for reading without following a link, without waiting
// for whatever it may be by now, and without touching its access time where
// the caller may ask for that.
func (d *dirFD) open(name string, flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat(d.fd, name, flags|unix.O_NOATIME, 0) })
	if err == unix.EPERM {
		return ignoringEINTR(func() (int, error) { return unix.Openat(d.fd, name, flags, 0) })
	}
	return fd, err
}

// openDir opens a directory below d.
func (d *dirFD) openDir(name string) (*dirFD, error) {
	fd, err := d.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &dirFD{fd: fd}, nil
}

// look returns an entry's metadata.
func (d *dirFD) look(name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// readlink returns a link's text.
func (d *dirFD) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// dirName is one name of a directory with its kind (DT_...).
type dirName struct {
	name  string
	kind  uint8
	saved bool // only the saved tree has it
}

// readNames lists a directory in byte order. The standard library's listing would
// drop the kinds or look entries up by path.
func (w *worker) readNames(d *dirFD) ([]dirName, error) {
	// Offsets in struct linux_dirent64 (getdents64(2)).
	const reclen, kind, name = 16, 18, 19
	var names []dirName
	if w.names == nil {
		w.names = make([]byte, 64<<10)
	}
	buf := w.names
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Getdents(d.fd, buf) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		for rest := buf[:n]; len(rest) > name; {
			size := binary.NativeEndian.Uint16(rest[reclen:])
			ent := rest[:size]
			rest = rest[size:]
			text := ent[name:]
			text = text[:bytes.IndexByte(text, 0)]
			if s := string(text); s != "." && s != ".." {
				names = append(names, dirName{name: s, kind: ent[kind]})
			}
		}
	}
	slices.SortFunc(names, func(a, b dirName) int { return strings.Compare(a.name, b.name) })
	return names, nil
}

// isMountRoot reports whether an open directory is the root of its file system.
func isMountRoot(fd int, st *unix.Stat_t) bool {
	var up unix.Stat_t
	if err := unix.Fstatat(fd, "..", &up, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	return up.Dev != st.Dev || up.Ino == st.Ino
}

// ignoringEINTR repeats a call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
