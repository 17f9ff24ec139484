package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/snapfs/snapfs/index"
)

// Sizes in bytes.
const (
	fileHeaderSize  = 28
	frameHeaderSize = 12
	maxPayload      = 1 << 20
)

// version is the journal's format.
const version = 1

// Numbers are big-endian. fileMagic opens each file; frameMagic opens each
// frame. Its first and last byte occur in no valid UTF-8, so no id or name that
// somebody chose can look like the start of a frame when a damaged journal is
// searched for one.
var (
	fileMagic  = [8]byte{'S', 'N', 'A', 'P', 'F', 'S', 'J', '\n'}
	frameMagic = [4]byte{0xf5, 'J', 'E', 0xfa}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errFrame: no whole, undamaged frame starts here.
var errFrame = errors.New("no valid frame")

// A file header is magic (8), version (4), reserved (4, zero), the number of the
// file's first entry (8) and the CRC32C of all before (4).
func fileHeader(first uint64) []byte {
	b := append([]byte(nil), fileMagic[:]...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, first)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readFileHeader returns the number of the file's first entry.
func readFileHeader(b []byte) (uint64, error) {
	if len(b) < fileHeaderSize || !bytes.Equal(b[:8], fileMagic[:]) ||
		crc32.Checksum(b[:24], castagnoli) != binary.BigEndian.Uint32(b[24:]) {
		return 0, fmt.Errorf("%w: no valid file header", index.ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != version {
		return 0, fmt.Errorf("journal version %d: %w", v, index.ErrNewer)
	}
	return binary.BigEndian.Uint64(b[16:]), nil
}

// A frame is magic (4), length of the payload (4), CRC32C of length and payload
// (4), payload.
func appendFrame(b, payload []byte) []byte {
	b = append(b, frameMagic[:]...)
	n := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	sum := frameSum(b[n:], payload)
	b = binary.BigEndian.AppendUint32(b, sum)
	return append(b, payload...)
}

func frameSum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length[:4], castagnoli), castagnoli, payload)
}

// readFrame returns the payload of the frame at the start of b, a part of b,
// its checksum, and the frame's length.
func readFrame(b []byte) (payload []byte, sum uint32, size int, err error) {
	if len(b) < frameHeaderSize || !bytes.Equal(b[:4], frameMagic[:]) {
		return nil, 0, 0, errFrame
	}
	n := binary.BigEndian.Uint32(b[4:])
	if n > maxPayload || int(n) > len(b)-frameHeaderSize {
		return nil, 0, 0, errFrame
	}
	size = frameHeaderSize + int(n)
	payload = b[frameHeaderSize:size]
	sum = binary.BigEndian.Uint32(b[8:])
	if frameSum(b[4:], payload) != sum {
		return nil, 0, 0, errFrame
	}
	return payload, sum, size, nil
}

// findFrame returns the offset of the first valid frame in b, or -1.
func findFrame(b []byte) int {
	for off := 0; ; off++ {
		i := bytes.Index(b[off:], frameMagic[:])
		if i < 0 {
			return -1
		}
		off += i
		if _, _, _, err := readFrame(b[off:]); err == nil {
			return off
		}
	}
}

// scan walks the frames at the start of b. It returns how many there are, where
// the last one starts and where it ends.
func scan(b []byte) (count uint64, last, end int) {
	for {
		_, _, size, err := readFrame(b[end:])
		if err != nil {
			return count, last, end
		}
		last = end
		end += size
		count++
	}
}

// unfinished reports whether rest, what follows the last valid frame from offset
// off of its file on, can be what a crash left of an entry that was not
// acknowledged: the start of a frame, or one with sectors of zeros in it that
// were never written. An entry that is all there, with a byte that is another one
// than it was, is damage: it may have been acknowledged.
func unfinished(rest []byte, off int64) bool {
	if len(rest) < leastFrame || zeroSector(rest, off) {
		return true
	}
	// Its own checksum finds a whole frame whose magic or length is damaged.
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(rest)-frameHeaderSize))
	if frameSum(length[:], rest[frameHeaderSize:]) == binary.BigEndian.Uint32(rest[8:]) {
		return false
	}
	n := binary.BigEndian.Uint32(rest[4:])
	return bytes.Equal(rest[:4], frameMagic[:]) && n <= maxPayload && int(n) > len(rest)-frameHeaderSize
}

// leastFrame is less than any entry takes, in bytes.
const leastFrame = frameHeaderSize + 16

// zeroSector reports whether all of rest that lies in one of the disk's sectors is
// zero.
func zeroSector(rest []byte, off int64) bool {
	const sector = 512
	for len(rest) > 0 {
		n := min(int(sector-off%sector), len(rest))
		if len(bytes.Trim(rest[:n], "\x00")) == 0 {
			return true
		}
		rest, off = rest[n:], off+int64(n)
	}
	return false
}
