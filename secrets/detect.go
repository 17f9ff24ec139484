package secrets

import "bytes"

// ScanAhead is how many bytes from its beginning on are enough to tell a secret.
const ScanAhead = 1024

// DetectorsVersion changes with what the detectors find: what was found with another one
// is not what would be found now.
const DetectorsVersion = 1

// A Scanner looks through one content, given piece by piece, for what looks like a
// secret. The zero value is ready for its beginning. It is not safe for concurrent use.
//
// What it finds does not depend on how the content is cut.
type Scanner struct {
	lines int64   // line ends before the next buf
	skip  int     // bytes of the next buf that are part of what was found
	prev  [3]byte // the bytes before it
}

// Scan looks for what begins in buf[:upto]. What is behind is only looked at, and is the
// beginning of the next call's buf; it is at least [ScanAhead] bytes long, or all there
// is. found is called for each finding, by ascending offset in buf. Scan returns false
// when found did: the scan is at its end then.
func (s *Scanner) Scan(buf []byte, upto int, found func(off int, f Finding) bool) (more bool) {
	var counted int // how much of buf has its line ends in s.lines
	next := min(s.skip, upto)
	s.skip -= next

	var sources [1 + len(marks)]candidate
	for next < upto {
		var first *candidate
		for i := range sources {
			c := &sources[i]
			if !c.done && (c.n == 0 || c.at < next) {
				s.seek(c, i, buf, next, upto)
			}
			if c.n > 0 && (first == nil || c.at < first.at) {
				first = c
			}
		}
		if first == nil {
			break
		}
		if next = first.at + first.n; next > upto {
			s.skip = next - upto
		}
		if first.kind == "" {
			continue
		}
		s.lines += int64(bytes.Count(buf[counted:first.at], newline))
		counted = first.at
		f := Finding{Line: s.lines + 1, Kind: first.kind}
		if !found(first.at, f) {
			return false
		}
	}
	s.advance(buf, counted, upto)
	return true
}

// A candidate is the next finding of one way to search.
type candidate struct {
	at, n int    // n is 0 before the first search
	kind  string // "" for a placeholder
	done  bool   // there is no further one
}

// seek finds the i-th source's first finding that begins in buf[from:upto].
func (s *Scanner) seek(c *candidate, i int, buf []byte, from, upto int) {
	if i == 0 {
		c.at, c.n, c.kind = s.nextToken(buf, from, upto)
	} else {
		m := &marks[i-1]
		c.kind = m.kind
		c.at, c.n = m.next(s, buf, from, upto)
	}
	c.done = c.n == 0
}

// advance makes what is behind upto the beginning of the next buf.
func (s *Scanner) advance(buf []byte, counted, upto int) {
	if counted < upto {
		s.lines += int64(bytes.Count(buf[counted:upto], newline))
	}
	for i := range s.prev {
		s.prev[i] = s.before(buf, upto, len(s.prev)-i)
	}
}

var newline = []byte("\n")
