package tree

import (
	"encoding/binary"

	"github.com/snapfs/snapfs/cas"
)

// Each object starts with three letters that say what it is, and a version.
const (
	dirMagic   = "sfd\x01"
	xattrMagic = "sfx\x01"
	linkMagic  = "sfl\x01"
)

// The head byte of an entry: its kind, and which of the optional fields follow.
const (
	headKind   = 0x07
	headOwned  = 0x08
	headXAttrs = 0x10
	headFlags  = 0x20
	headKnown  = headKind | headOwned | headXAttrs | headFlags
)

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendName writes a name, whose length fits one byte.
func appendName(b []byte, name string) []byte {
	b = append(b, byte(len(name)))
	return append(b, name...)
}

func appendEntry(b []byte, e *Entry) []byte {
	head := byte(e.Kind)
	if e.Owned {
		head |= headOwned
	}
	if !e.XAttrs.IsZero() {
		head |= headXAttrs
	}
	if e.Flags != 0 {
		head |= headFlags
	}
	b = append(b, head)
	b = appendName(b, e.Name)
	b = binary.AppendUvarint(b, uint64(e.Mode))
	b = binary.AppendVarint(b, e.MtimeSec)
	b = binary.AppendUvarint(b, uint64(e.MtimeNsec))
	if e.Owned {
		b = binary.AppendUvarint(b, uint64(e.UID))
		b = binary.AppendUvarint(b, uint64(e.GID))
	}
	switch e.Kind {
	case File:
		b = binary.AppendUvarint(b, e.Size)
		b = append(b, e.Hash[:]...)
	case Dir:
		b = append(b, e.Hash[:]...)
	case Symlink:
		b = appendString(b, e.Target)
	}
	if !e.XAttrs.IsZero() {
		b = append(b, e.XAttrs[:]...)
	}
	if e.Flags != 0 {
		b = append(b, byte(e.Flags))
	}
	return b
}

func appendTotals(b []byte, t Totals) []byte {
	for _, v := range [...]uint64{t.Files, t.Dirs, t.Bytes, t.XAttrs, t.Redacted} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// An item stands for one segment in the list of segments.
type item struct {
	first   string // name of the first entry
	count   uint64 // elements in the segment's own object
	entries uint64 // entries in and below it; equal to count when the segment is of level 0
	totals  Totals
	hash    cas.Hash
}

// appendItem writes an item of an object of the given level.
func appendItem(b []byte, level uint8, it *item) []byte {
	b = appendName(b, it.first)
	b = binary.AppendUvarint(b, it.count)
	if level > 1 {
		b = binary.AppendUvarint(b, it.entries)
	}
	b = appendTotals(b, it.totals)
	return append(b, it.hash[:]...)
}

// appendHead writes how a directory object begins.
func appendHead(b []byte, level uint8, count int) []byte {
	b = append(b, dirMagic...)
	b = append(b, level)
	return binary.AppendUvarint(b, uint64(count))
}

// maxHead is an upper bound of what appendHead and the sum at an object's end
// take, in bytes.
const maxHead = len(dirMagic) + 1 + binary.MaxVarintLen16 + 5*binary.MaxVarintLen64
