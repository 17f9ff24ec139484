package snapshot

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// segments keep what is written to them in pieces that never move, and yield it from the
// beginning. Their memory is the kernel's: the collector, which may let the heap become
// twice what is in use, does not count it.
type segments struct {
	list [][]byte
	size int64
	at   int64
}

// segmentSize is in bytes.
const segmentSize = 1 << 20

// Write implements [io.Writer].
func (s *segments) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		used := s.size % segmentSize
		if used == 0 {
			piece, err := unix.Mmap(-1, 0, segmentSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				return len(p) - len(rest), fmt.Errorf("memory for %d bytes more: %w", segmentSize, err)
			}
			s.list = append(s.list, piece)
		}
		n := copy(s.list[len(s.list)-1][used:], rest)
		s.size += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// Read implements [io.Reader].
func (s *segments) Read(b []byte) (int, error) {
	if s.at >= s.size {
		return 0, io.EOF
	}
	piece := s.list[s.at/segmentSize]
	n := copy(b, piece[s.at%segmentSize:min(segmentSize, s.size-s.at+s.at%segmentSize)])
	s.at += int64(n)
	return n, nil
}

// Seek implements [io.Seeker], to the beginning.
func (s *segments) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return s.at, fmt.Errorf("seek to byte %d: %w", offset, errors.ErrUnsupported)
	}
	s.at = 0
	return 0, nil
}

// Close gives the memory back. Nothing is left to read then.
func (s *segments) Close() error {
	var errs []error
	for _, piece := range s.list {
		errs = append(errs, unix.Munmap(piece))
	}
	s.list, s.size, s.at = nil, 0, 0
	return errors.Join(errs...)
}
