package journal

import (
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/snapfs/snapfs/index"
)

// Replay yields all entries from number from on, in order, up to the last one at
// the time of the call. It stops at the first error: [index.ErrCorrupt], or
// [index.ErrNewer] for an event that only a newer snapfs knows.
func (j *Journal) Replay(from uint64) iter.Seq2[Entry, error] {
	j.mu.Lock()
	segments := append([]segment(nil), j.segments...)
	size, last := j.size, j.last
	j.mu.Unlock()
	return func(yield func(Entry, error) bool) {
		for n, seg := range segments {
			end := last + 1 // the number after the segment's last entry
			limit := size
			if n+1 < len(segments) {
				end, limit = segments[n+1].first, -1
			}
			if end <= from {
				continue
			}
			more, err := seg.replay(from, end, limit, yield)
			if err != nil {
				yield(Entry{}, fmt.Errorf("replay journal %s: %w", seg.path, err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// replay yields the entries [from, end) of one segment, of which only the first
// limit bytes count (all if it is negative).
func (s segment) replay(from, end uint64, limit int64, yield func(Entry, error) bool) (more bool, err error) {
	return s.frames(from, end, limit, func(e Entry, _ []byte) bool { return yield(e, nil) })
}

// frames is replay with the frame of each entry.
func (s segment) frames(from, end uint64, limit int64, yield func(e Entry, frame []byte) bool) (more bool, err error) {
	data, err := readUpTo(s.path, limit)
	if err != nil {
		return false, err
	}
	if _, err := readFileHeader(data); err != nil {
		return false, err
	}
	off := fileHeaderSize
	for seq := s.first; seq < end; seq++ {
		payload, sum, size, err := readFrame(data[off:])
		if err != nil {
			return false, fmt.Errorf("%w: entry %d at byte %d: %w", index.ErrCorrupt, seq, off, err)
		}
		if seq >= from {
			e, err := decodePayload(payload)
			if err != nil {
				return false, err
			}
			if e.Seq != seq {
				return false, fmt.Errorf("%w: entry %d stands where %d is due", index.ErrCorrupt, e.Seq, seq)
			}
			e.Sum = sum
			if !yield(e, data[off:off+size]) {
				return false, nil
			}
		}
		off += size
	}
	if off != len(data) {
		return false, fmt.Errorf("%w: %d bytes after entry %d", index.ErrCorrupt, len(data)-off, end-1)
	}
	return true, nil
}

func readUpTo(path string, limit int64) ([]byte, error) {
	if limit < 0 {
		return os.ReadFile(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, limit))
}
