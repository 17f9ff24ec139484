package capture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// A Known is what a capture found, by inode number: what did not change since
// then need not be read. It holds no device numbers, which change when a file system
// is mounted again; several in one workspace are told apart by where their roots are.
// Of the rest of the path it holds only a checksum of the last name: some file systems
// number their files anew with every mount, and those of an image may share all their
// times. The nil Known knows nothing.
//
// It is as good as the objects that it names: whoever uses one makes sure that the
// store still has them.
type Known struct {
	records []byte
	sets    []cas.Hash // of attributes
	notes   [][]byte   // what secrets were found in files
	slots   []uint32   // a hash table: numbers of records plus 1; 0: free
}

// The encoding, all numbers little-endian.
//
//	header:  magic "SFKN", version (4), length of the binding (4), sets (4), records (4),
//	         notes (4), their bytes with the lengths (4)
//	         the binding, hashes of sets of attributes (32 each)
//	record:  inode number (8), size (8), mtime and ctime in seconds (8, 8) and
//	         nanoseconds (4, 4), mode (4), uid (4), gid (4),
//	         number of its set of attributes plus 1 or 0 (4), hash (32), place (8),
//	         number of its note plus 1 or 0 (4)
//	note:    length (4), what was found of secrets in files
//	end:     CRC32C of all before (4)
const (
	knownMagic   = "SFKN"
	knownVersion = 4
	knownHeader  = 28
	recordSize   = 100
)

// untrusted stands for a ctime that equals none.
const untrusted = 1<<32 - 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Count returns how many files and directories are known.
func (k *Known) Count() int {
	if k == nil {
		return 0
	}
	return len(k.records) / recordSize
}

// Encode returns the known as bytes, bound to what they are good for: see
// [DecodeKnown].
func (k *Known) Encode(binding []byte) []byte {
	notes := 0
	for _, n := range k.notes {
		notes += 4 + len(n)
	}
	b := make([]byte, 0, knownHeader+len(binding)+len(k.sets)*len(cas.Hash{})+len(k.records)+notes+crc32.Size)
	b = append(b, knownMagic...)
	for _, n := range []int{knownVersion, len(binding), len(k.sets), k.Count(), len(k.notes), notes} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(b, binding...)
	for _, set := range k.sets {
		b = append(b, set[:]...)
	}
	b = append(b, k.records...)
	for _, n := range k.notes {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(n))), n...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeKnown reads what [Known.Encode] returned, and keeps data. It fails with
// [cas.ErrCorrupt].
func DecodeKnown(data []byte) (k *Known, binding []byte, err error) {
	bad := fmt.Errorf("what was known of a workspace: %w", cas.ErrCorrupt)
	if len(data) < knownHeader+crc32.Size || string(data[:4]) != knownMagic {
		return nil, nil, bad
	}
	number := func(i int) int { return int(binary.LittleEndian.Uint32(data[4+4*i:])) }
	if number(0) != knownVersion {
		return nil, nil, bad
	}
	bound, sets, count, notes, noteBytes := number(1), number(2), number(3), number(4), number(5)
	end := len(data) - crc32.Size
	if end != knownHeader+bound+sets*len(cas.Hash{})+count*recordSize+noteBytes || noteBytes < 4*notes ||
		binary.LittleEndian.Uint32(data[end:]) != crc32.Checksum(data[:end], castagnoli) {
		return nil, nil, bad
	}
	rest := data[knownHeader:end]
	binding, rest = rest[:bound], rest[bound:]
	k = &Known{sets: make([]cas.Hash, sets)}
	for i := range k.sets {
		k.sets[i], rest = cas.Hash(rest), rest[len(cas.Hash{}):]
	}
	k.records, rest = rest[:count*recordSize], rest[count*recordSize:]
	for range notes {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, nil, bad
		}
		n := 4 + binary.LittleEndian.Uint32(rest)
		k.notes, rest = append(k.notes, rest[4:n]), rest[n:]
	}
	if len(rest) > 0 {
		return nil, nil, bad
	}
	k.index()
	return k, binding, nil
}

// index makes the hash table.
func (k *Known) index() {
	size := 8
	for size < 2*k.Count() {
		size *= 2
	}
	k.slots = make([]uint32, size)
	for i := range k.Count() {
		at := k.slot(k.record(i).ino(), k.record(i).place())
		k.slots[at] = uint32(i + 1)
	}
}

// slot returns where the record of an inode and a place stands or should stand.
func (k *Known) slot(ino, place uint64) int {
	mask := len(k.slots) - 1
	at := int((ino^place)*0x9E3779B97F4A7C15>>32) & mask
	for k.slots[at] != 0 {
		if r := k.record(int(k.slots[at] - 1)); r.ino() == ino && r.place() == place {
			break
		}
		at = (at + 1) & mask
	}
	return at
}

func (k *Known) record(i int) knownRecord {
	return knownRecord{k, k.records[i*recordSize:][:recordSize]}
}

// find returns what is known of an inode at a place.
func (k *Known) find(ino, place uint64) (r knownRecord, ok bool) {
	if k == nil {
		return knownRecord{}, false
	}
	i := k.slots[k.slot(ino, place)]
	if i == 0 {
		return knownRecord{}, false
	}
	return k.record(int(i - 1)), true
}

// placeOf is where an entry of a directory is, as far as it is kept: checksums of its
// file system's root in the workspace and of its name. A file with several names has
// none of these: which of them a walk meets first is not the same each time.
func placeOf(volume uint32, st *unix.Stat_t, name string) uint64 {
	place := uint64(volume) << 32
	if kindOf(st) != unix.DT_REG || st.Nlink < 2 {
		place |= uint64(checksum(name))
	}
	return place
}

func checksum(s string) uint32 { return crc32.Checksum([]byte(s), castagnoli) }

// recall returns what the last capture knows of an entry of d. What is of another
// file system than its directory, as on an overlay of several, is not known.
func (c *walker) recall(d *dirFD, st *unix.Stat_t, name string) (r knownRecord, ok bool) {
	if st.Dev != d.dev {
		return knownRecord{}, false
	}
	return c.known.find(st.Ino, placeOf(d.volume, st, name))
}

// knownRecord is what is known of one inode.
type knownRecord struct {
	k *Known
	b []byte
}

func (r knownRecord) ino() uint64         { return binary.LittleEndian.Uint64(r.b) }
func (r knownRecord) place() uint64       { return binary.LittleEndian.Uint64(r.b[88:]) }
func (r knownRecord) uint32(i int) uint32 { return binary.LittleEndian.Uint32(r.b[i:]) }
func (r knownRecord) int64(i int) int64   { return int64(binary.LittleEndian.Uint64(r.b[i:])) }
func (r knownRecord) hash() cas.Hash      { return cas.Hash(r.b[56:88]) }

// xattrs returns the hash of its set of attributes, zero for none.
func (r knownRecord) xattrs() cas.Hash {
	if n := int(r.uint32(52)); n > 0 && n <= len(r.k.sets) {
		return r.k.sets[n-1]
	}
	return cas.Hash{}
}

// secrets returns what was found in the file. What cannot be read is as if nothing was
// to be trusted: the file is read.
func (r knownRecord) secrets() (screened, bool) {
	n := int(r.uint32(96))
	if n == 0 || n > len(r.k.notes) {
		return screened{}, n == 0
	}
	s, err := decodeScreened(r.k.notes[n-1])
	return s, err == nil
}

// same reports whether nothing about an inode has changed.
func (r knownRecord) same(st *unix.Stat_t) bool {
	return r.sameTime(st) && r.int64(24) == st.Ctim.Sec && r.uint32(36) == uint32(st.Ctim.Nsec)
}

// sameContent reports whether a file's content is what it was. A change of mode or
// owner moves the ctime as a change of content does, which also moves the mtime or
// puts it back: so where the mode or the owner is another, the mtime is believed. One
// of whole seconds is not: that was set before, by who unpacked the file, and all that
// comes of archives may have the same.
func (r knownRecord) sameContent(st *unix.Stat_t) bool {
	if r.uint32(36) == untrusted || r.uint32(40)&unix.S_IFMT != unix.S_IFREG || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	meta := r.uint32(40) != st.Mode || r.uint32(44) != st.Uid || r.uint32(48) != st.Gid
	return r.same(st) || meta && r.sameTime(st) && st.Mtim.Nsec != 0
}

func (r knownRecord) sameTime(st *unix.Stat_t) bool {
	return r.int64(8) == st.Size && r.int64(16) == st.Mtim.Sec && r.uint32(32) == uint32(st.Mtim.Nsec)
}

// A change soon after a look may leave the ctime as it was: the kernel's clock
// moves in ticks of at most 10 ms, some file systems count whole seconds, or two.
const (
	tick       = 20 * time.Millisecond
	coarseTick = 2*time.Second + tick
)

// tickOf is how long after a change another one may have the same time.
func tickOf(st *unix.Stat_t) time.Duration {
	if st.Ctim.Nsec == 0 {
		return coarseTick
	}
	return tick
}

func ctimeOf(st *unix.Stat_t) time.Time { return time.Unix(st.Ctim.Sec, st.Ctim.Nsec) }

// settledBefore reports whether a change after t must show in the ctime. fine tells of
// the file system that a change after a look always does.
func settledBefore(st *unix.Stat_t, t time.Time, fine bool) bool {
	return fine && st.Ctim.Nsec != 0 || ctimeOf(st).Add(tickOf(st)).Before(t)
}

// settledNow is settledBefore for a change from now on. It mostly needs no clock.
func settledNow(st *unix.Stat_t, fine bool) bool {
	return fine && st.Ctim.Nsec != 0 || settledBefore(st, time.Now(), false)
}

// see notes what was found in d for the next capture. It was looked at after since.
// secrets are those of a file; nil: it is none.
func (w *worker) see(d *dirFD, name string, st *unix.Stat_t, since time.Time, hash, xattrs cas.Hash, secrets *screened) {
	if st.Ino == 0 || st.Size < 0 || st.Dev != d.dev {
		return
	}
	ctime := uint32(st.Ctim.Nsec)
	if !settledBefore(st, since, d.fine) {
		if kindOf(st) == unix.DT_REG {
			return
		}
		ctime = untrusted // the hash of a directory is compared and not believed
	}
	le, b := binary.LittleEndian, w.seen
	for _, n := range [...]uint64{st.Ino, uint64(st.Size), uint64(st.Mtim.Sec), uint64(st.Ctim.Sec)} {
		b = le.AppendUint64(b, n)
	}
	for _, n := range [...]uint32{uint32(st.Mtim.Nsec), ctime, st.Mode, st.Uid, st.Gid, w.setNumber(xattrs)} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint64(append(b, hash[:]...), placeOf(d.volume, st, name))
	w.seen = le.AppendUint32(b, w.noteNumber(secrets))
}

// noteNumber numbers what was found in a file, from 1; 0: nothing was.
func (c *walker) noteNumber(s *screened) uint32 {
	if s == nil || s.empty() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, s.encode())
	return uint32(len(c.notes))
}

// setNumber numbers a set of attributes, from 1; 0: none.
func (c *walker) setNumber(set cas.Hash) uint32 {
	if set.IsZero() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.setNumbers[set]
	if !ok {
		c.sets = append(c.sets, set)
		n = uint32(len(c.sets))
		c.setNumbers[set] = n
	}
	return n
}
