package local

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/snapfs/snapfs/cas"
)

// A pack is a file header, records one after the other, and a footer that lists
// them. All integers are little-endian. docs/FORMAT.md has the byte tables.
const (
	packMagic    = "SNAPFSPK"
	packVersion  = 1
	packHeader   = 16
	maxPack      = 64 << 20
	recordMagic  = "SFRC"
	recordHeader = 64
	footerEntry  = 48
	trailerMagic = "SFPKFOOT"
	trailer      = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendPackHeader begins a pack.
func appendPackHeader(b []byte) []byte {
	b = append(b, packMagic...)
	b = binary.LittleEndian.AppendUint32(b, packVersion)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// checkPackHeader refuses what is no pack, and names a newer version.
func checkPackHeader(b []byte) error {
	if len(b) < packHeader || string(b[:8]) != packMagic {
		return fmt.Errorf("not a pack: %w", cas.ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != packVersion {
		return fmt.Errorf("pack of version %d, this snapfs reads version %d: %w", v, packVersion, cas.ErrCorrupt)
	}
	if binary.LittleEndian.Uint32(b[12:]) != 0 {
		return fmt.Errorf("pack header: reserved bytes are set: %w", cas.ErrCorrupt)
	}
	return nil
}

// A record is one object as it stands in a pack, its payload still encoded.
type record struct {
	key      cas.Key
	kind     cas.Kind
	encoding cas.Encoding
	plain    uint32 // length of the object in bytes
	payload  []byte
}

// append writes the record's header and payload.
func (r record) append(b []byte) []byte {
	start := len(b)
	b = append(b, recordMagic...)
	b = append(b, packVersion, byte(r.kind), byte(r.key.NS), 0, byte(r.encoding), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, 0) // dictionary
	b = binary.LittleEndian.AppendUint32(b, 0) // encryption key
	b = binary.LittleEndian.AppendUint32(b, r.plain)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.payload)))
	b = append(b, r.key.Hash[:]...)
	sum := crc32.Update(crc32.Checksum(b[start:], castagnoli), castagnoli, r.payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, r.payload...)
}

// parseRecord reads the record at the start of b. Its payload aliases b. The
// checksum is compared only when check is set: a reader that hashes the object
// anyway can do without.
func parseRecord(b []byte, check bool) (record, error) {
	r, err := parseHeader(b)
	if err != nil {
		return record{}, err
	}
	stored := binary.LittleEndian.Uint32(b[24:])
	if uint64(len(b)-recordHeader) < uint64(stored) {
		return record{}, badRecord("cut short")
	}
	r.payload = b[recordHeader : recordHeader+int(stored)]
	if check {
		if err := checkSum(b, r.payload); err != nil {
			return record{}, err
		}
	}
	return r, nil
}

// checkSum compares a record's header and payload with its checksum.
func checkSum(header, payload []byte) error {
	sum := crc32.Update(crc32.Checksum(header[:60], castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(header[60:]) {
		return badRecord("checksum differs")
	}
	return nil
}

func badRecord(what string) error { return fmt.Errorf("record: %s: %w", what, cas.ErrCorrupt) }

// parseHeader reads a record without its payload.
func parseHeader(b []byte) (record, error) {
	if len(b) < recordHeader || string(b[:4]) != recordMagic {
		return record{}, badRecord("bad header")
	}
	if b[4] != packVersion || b[7]|b[9]|b[10]|b[11] != 0 || binary.LittleEndian.Uint64(b[12:]) != 0 {
		return record{}, badRecord("version, domain, dictionary or encryption that this snapfs does not know")
	}
	r := record{
		key:      cas.Key{NS: cas.Namespace(b[6]), Hash: cas.Hash(b[28:60])},
		kind:     cas.Kind(b[5]),
		encoding: cas.Encoding(b[8]),
		plain:    binary.LittleEndian.Uint32(b[20:]),
	}
	if !validObject(r.key.NS, r.kind, r.encoding, r.plain, binary.LittleEndian.Uint32(b[24:])) {
		return record{}, badRecord("bad kind, namespace, encoding or length")
	}
	return r, nil
}

// validObject checks what record headers and footer entries have in common.
func validObject(ns cas.Namespace, kind cas.Kind, enc cas.Encoding, plain, stored uint32) bool {
	return ns.Valid() && (kind == cas.Data || kind == cas.List) && enc <= cas.Snappy &&
		plain <= cas.MaxObject && stored <= maxPack && (enc != cas.Raw || plain == stored)
}

// appendFooter ends a pack.
func appendFooter(b []byte, objects []cas.Located) []byte {
	start := len(b)
	for _, o := range objects {
		l := o.Location
		b = append(b, byte(l.Kind), byte(o.Key.NS), byte(l.Encoding), 0)
		b = binary.LittleEndian.AppendUint32(b, l.Offset)
		b = binary.LittleEndian.AppendUint32(b, l.Stored)
		b = binary.LittleEndian.AppendUint32(b, l.Plain)
		b = append(b, o.Key.Hash[:]...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(objects)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return append(b, trailerMagic...)
}

// parseTrailer returns how many bytes before the trailer the footer's entries
// take.
func parseTrailer(b []byte) (entries int64, err error) {
	if len(b) != trailer || string(b[8:]) != trailerMagic {
		return 0, fmt.Errorf("pack has no footer: %w", cas.ErrCorrupt)
	}
	return int64(binary.LittleEndian.Uint32(b)) * footerEntry, nil
}

// parseFooter reads the entries and the trailer of pack id, whose records end
// where b begins: at offset end.
func parseFooter(b []byte, id cas.PackID, end int64) ([]cas.Located, error) {
	bad := func() ([]cas.Located, error) {
		return nil, fmt.Errorf("pack %s: footer is damaged: %w", id, cas.ErrCorrupt)
	}
	entries, tail := b[:len(b)-trailer], b[len(b)-trailer:]
	if crc32.Checksum(b[:len(b)-trailer+4], castagnoli) != binary.LittleEndian.Uint32(tail[4:]) {
		return bad()
	}
	objects := make([]cas.Located, 0, len(entries)/footerEntry)
	for ; len(entries) > 0; entries = entries[footerEntry:] {
		o := cas.Located{
			Key: cas.Key{NS: cas.Namespace(entries[1]), Hash: cas.Hash(entries[16:48])},
			Location: cas.Location{
				Pack:     id,
				Kind:     cas.Kind(entries[0]),
				Encoding: cas.Encoding(entries[2]),
				Offset:   binary.LittleEndian.Uint32(entries[4:]),
				Stored:   binary.LittleEndian.Uint32(entries[8:]),
				Plain:    binary.LittleEndian.Uint32(entries[12:]),
			},
		}
		l := o.Location
		if !validObject(o.Key.NS, l.Kind, l.Encoding, l.Plain, l.Stored) || entries[3] != 0 ||
			int64(l.Offset)+recordHeader+int64(l.Stored) > end {
			return bad()
		}
		objects = append(objects, o)
	}
	return objects, nil
}
