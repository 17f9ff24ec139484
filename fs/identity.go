package fs

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/snapfs/snapfs/tree"
)

// inoMask keeps inode numbers within 53 bits: exact as a double, and with room
// for the bits that overlayfs adds (its xino feature).
const inoMask = 1<<53 - 1

// A place is the hash of a path inside a checkpoint. It need not resist
// attacks: two files share a node only if all else about them is equal too.
type place uint64

// below returns the place of a name in the directory at p.
func (p place) below(name string) place {
	var d xxhash.Digest
	d.Reset()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(p))
	_, _ = d.Write(b[:]) // never fails
	_, _ = d.WriteString(name)
	return place(d.Sum64())
}

// placeOf returns the place of a slash path below the root.
func placeOf(path string) place {
	p := place(0)
	for start, i := 0, 0; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			p = p.below(path[start:i])
			start = i + 1
		}
	}
	return p
}

// meta is what stat(2) shows of an entry, and what names its content. Two
// entries of one identity are the same file to the kernel.
type meta struct {
	tree.Entry // Name and Owned are cleared, UID and GID are those shown
	nlink      uint32
}

// ino returns the inode number that follows from an identity alone: the same
// after every mount, and in every fork that has the same entry at the same
// path. GNU diff does not look into two names with the same number.
func (m *meta) ino(at place) uint64 {
	var d xxhash.Digest
	d.Reset()
	var b [16*8 + 2*32]byte
	n := 0
	for _, v := range [...]uint64{
		uint64(at), uint64(m.Kind), uint64(m.Mode), uint64(m.UID), uint64(m.GID), m.Size,
		uint64(m.MtimeSec), uint64(m.MtimeNsec), uint64(m.Flags), uint64(m.nlink),
	} {
		binary.LittleEndian.PutUint64(b[n:], v)
		n += 8
	}
	n += copy(b[n:], m.Hash[:])
	n += copy(b[n:], m.XAttrs[:])
	_, _ = d.Write(b[:n])
	_, _ = d.WriteString(m.Target)
	return d.Sum64() & inoMask
}

// virtualIno returns the inode number of a directory or file that no tree has.
func virtualIno(parts ...string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, p := range parts {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(len(p)))
		_, _ = d.Write(b[:])
		_, _ = d.WriteString(p)
	}
	return d.Sum64() & inoMask
}
