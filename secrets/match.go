package secrets

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// A matcher finds all patterns of a set in one pass, as Wu and Manber do (A fast
// algorithm for multi-pattern searching, 1994): it looks at the last [block] bytes of a
// window of [MinLength], which mostly tell that no pattern can begin in the next few
// places. Only where the window may be the beginning of a pattern are the patterns
// looked at.
type matcher struct {
	shift   []uint8             // by the hash of a block: how far the window may move
	drop    uint                // bits of a hash that do not count
	begins  map[uint64][][]byte // by their first MinLength bytes, longest first
	longest int                 // bytes of the longest pattern
}

const (
	block    = 3
	maxShift = MinLength - block + 1
	// Few patterns have a table that fits into the processor's first cache, many one of
	// which they fill a small part.
	leastBits, mostBits = 15, 22
	blocksPerEntry      = 8
)

// blockHash is of the last block bytes before data's byte end.
func blockHash(data []byte, end int, drop uint) uint32 {
	return binary.LittleEndian.Uint32(data[end-4:]) >> 8 * 0x9E3779B1 >> (drop & 31)
}

func newMatcher(patterns [][]byte) *matcher {
	m := &matcher{begins: map[uint64][][]byte{}}
	size := min(max(bits.Len(uint(len(patterns)*maxShift*blocksPerEntry)), leastBits), mostBits)
	m.shift, m.drop = make([]uint8, 1<<size), 32-uint(size)
	for i := range m.shift {
		m.shift[i] = maxShift
	}
	for _, p := range patterns {
		m.longest = max(m.longest, len(p))
		padded := append([]byte{0}, p[:MinLength]...)
		for end := block; end <= MinLength; end++ {
			h := blockHash(padded, end+1, m.drop)
			m.shift[h] = min(m.shift[h], uint8(MinLength-end))
		}
		first := binary.LittleEndian.Uint64(p)
		m.begins[first] = append(m.begins[first], p)
	}
	for _, some := range m.begins {
		slices.SortFunc(some, func(a, b []byte) int { return len(b) - len(a) })
	}
	return m
}

// find calls found with the longest pattern that begins at each of the first upto places
// of data where one does and stands in data whole, in order.
func (m *matcher) find(data []byte, upto int, found func(off, size int)) {
	shift, drop := m.shift, m.drop
	last := min(upto-1+MinLength, len(data)) // windows end before that
	for end := MinLength; end <= last; {
		switch skip := shift[blockHash(data, end, drop)]; {
		case skip == maxShift:
			end += maxShift // a constant: the processor need not wait for the table
			continue
		case skip > 0:
			end += int(skip)
			continue
		}
		at := end - MinLength
		for _, p := range m.begins[binary.LittleEndian.Uint64(data[at:])] {
			if bytes.HasPrefix(data[at:], p) {
				found(at, len(p))
				break
			}
		}
		end++
	}
}
