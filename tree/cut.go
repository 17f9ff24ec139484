package tree

import "github.com/zeebo/blake3"

// The cut rule. A list of entries or of items that is longer than maxWhole is
// cut into segments. A segment ends after its k-th element when k is at least
// minSegment and the element's name is a cut point at its level, at the latest
// when k is maxSegment. The lower bound makes each list about 16 times shorter
// than the one it was made of, whatever the names, so that hostile ones can not
// pile up levels. It also makes the lengths more even: one entry changed among
// 43,009 costs 8 kB of new objects on average and 10 at worst; with one cut in
// 32, no lower bound and an upper one of 128 it was 10 and 17 (measured).
//
// These numbers are part of the format.
const (
	maxWhole   = 256
	minSegment = 16
	maxSegment = 64
	cutMask    = 0x0f // one name in 16 is a cut point

	// maxLevel is never reached: 16 to the power of 15 entries would be 2^60.
	maxLevel = 15
)

// cutPoint reports whether a list of elements of one level may be cut after
// name. Entries are of level 0; an item that stands in an object of level n is
// of level n and is known by its first name. The level is hashed with the name
// lest all lists be cut at the same places.
func cutPoint(level uint8, name string) bool {
	var buf [1 + MaxName]byte
	buf[0] = level
	n := copy(buf[1:], name)
	sum := blake3.Sum256(buf[:1+n])
	return sum[0]&cutMask == 0
}

// cutAfter reports whether a segment that has k elements, the last of which is
// called name, ends with it.
func cutAfter(level uint8, k int, name string) bool {
	return k >= maxSegment || k >= minSegment && cutPoint(level, name)
}
