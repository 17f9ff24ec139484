package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/cas"
)

// scanFile finds the records of a pack that has no readable footer. It is an error
// that there are none where not even the pack's header is one.
func scanFile(f *os.File, id cas.PackID) ([]cas.Located, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxPack))
	if err != nil {
		return nil, fmt.Errorf("scan pack %s: %w", id, err)
	}
	objects := scan(b, id)
	if err := checkPackHeader(b); err != nil && len(objects) == 0 {
		return nil, fmt.Errorf("scan pack %s: %w", id, err)
	}
	return objects, nil
}

// scan finds the whole records of a pack. From the front on each begins where the
// one before ends, so its checksum is enough. Behind damage nobody knows where a
// record begins, and what looks like one may be content of a file, made by somebody
// to be found: its checksum is right, and whoever reads by checksum alone would take
// its name for proved. So behind damage a record counts only if its bytes hash to
// its name. Then it does no harm, wherever it lies: an object by that name can be
// nothing else, nothing refers to it but what would have to anyway, and its
// namespace shows nobody what he could not have stored himself. A record inside of
// one that is whole is never found: those are skipped. What such content can do is
// to claim the bytes of a record behind it, which is not found then; that takes a
// pack whose footer is lost, and damage to the header of just that content's record,
// since otherwise the search goes on where the damaged record says that it ends.
func scan(b []byte, id cas.PackID) (objects []cas.Located) {
	trusted := checkPackHeader(b) == nil
	s := searcher{b: b, budget: searchBudget}
	for off := packHeader; off < len(b); {
		r, err := parseRecord(b[off:], true)
		if err == nil && !trusted {
			s.plain, err = r.decode(s.plain[:0])
		}
		if err == nil {
			objects = append(objects, r.located(id, int64(off)))
			off += recordHeader + len(r.payload)
			continue
		}
		trusted = false
		if _, err := parseHeader(b[off:]); err == nil {
			end := int64(off) + recordHeader + int64(binary.LittleEndian.Uint32(b[off+24:]))
			if end < int64(len(b)) && s.whole(int(end)) {
				off = int(end)
				continue
			}
		}
		off = s.next(off + 1)
	}
	return objects
}

// searchBudget bounds, in bytes, what a search reads for nothing: content can be
// made so that there is a record of many megabytes to be checked every 64 bytes.
const searchBudget = 256 * maxPack

// A searcher looks for records whose places are not known.
type searcher struct {
	b      []byte
	plain  []byte
	budget int64
}

// next returns where the next whole record begins, from off on, or the end.
func (s *searcher) next(off int) int {
	for s.budget > 0 {
		i := bytes.Index(s.b[off:], []byte(recordMagic))
		if i < 0 {
			break
		}
		if off += i; s.whole(off) {
			return off
		}
		off++
	}
	return len(s.b)
}

// whole reports whether a record begins at off whose bytes hash to its name.
func (s *searcher) whole(off int) bool {
	r, err := parseRecord(s.b[off:], false)
	if err != nil {
		return false
	}
	s.budget -= int64(len(r.payload))
	if checkSum(s.b[off:], r.payload) != nil {
		return false
	}
	const perByte = 16 // what unpacking and hashing take, against the checksum
	s.budget -= perByte * int64(r.plain)
	plain, err := r.decode(s.plain[:0])
	if err != nil {
		return false
	}
	s.plain = plain
	return true
}
