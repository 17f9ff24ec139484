package secrets

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// All tokens with a known beginning have a run: minRun or more bytes of letters,
// digits, underscores and dashes, within maxLead bytes of their beginning. Text has few
// runs. The search for them looks at eight bytes in every stride of 13: a run of 20
// covers one of these whole. Only around a run it is looked for beginnings of tokens.
const (
	minRun  = 20
	maxLead = 128
	window  = 8
	stride  = minRun - window + 1

	escapeMax = 4 // bytes of an escape that are of a run: the color "196m"
)

const (
	ones = 0x0101010101010101
	high = 0x80 * ones
)

// outside has the high bit of each byte of x set that is not of a run (DEL counts as
// one that is). A byte c below 0x80 is at least n when c+0x80-n has the high bit; it is
// between two bounds when it is at least an odd number of all bounds.
func outside(x uint64) uint64 {
	c := x &^ high
	fold := c | 0x20*ones // letters are lower case, an underscore is DEL
	inside := (fold + (0x80-'a')*ones) ^ (fold + (0x80-'z'-1)*ones) ^ (fold + (0x80-0x7f)*ones) ^
		(c + (0x80-'0')*ones) ^ (c + (0x80-'9'-1)*ones) ^
		(c + (0x80-'-')*ones) ^ (c + (0x80-'-'-1)*ones)
	return (x | ^inside) & high
}

// nextToken finds the first token that begins in buf[from:upto]. One without a kind is a
// placeholder.
func (s *Scanner) nextToken(buf []byte, from, upto int) (at, n int, kind string) {
	end := min(len(buf), upto+maxLead+minRun)
	text := buf[:end]
	seen := from // below it all beginnings are known
	for i := from + minRun - window; i >= 0 && i <= len(text)-window; {
		for i <= len(text)-4*stride {
			b := text[i : i+4*stride]
			if outside(binary.LittleEndian.Uint64(b)) == 0 {
				break
			}
			if outside(binary.LittleEndian.Uint64(b[stride:])) == 0 {
				i += stride
				break
			}
			if outside(binary.LittleEndian.Uint64(b[2*stride:])) == 0 {
				i += 2 * stride
				break
			}
			if outside(binary.LittleEndian.Uint64(b[3*stride:])) == 0 {
				i += 3 * stride
				break
			}
			i += 4 * stride
		}
		if i > len(text)-window {
			break
		}
		if outside(binary.LittleEndian.Uint64(text[i:])) != 0 {
			i += stride
			continue
		}
		// Most are short and end within a window on both sides.
		if i >= window && i <= len(text)-2*window {
			left := bits.LeadingZeros64(outside(binary.LittleEndian.Uint64(text[i-window:]))) / 8
			right := bits.TrailingZeros64(outside(binary.LittleEndian.Uint64(text[i+window:]))) / 8
			if left < window && right < window && left+right < minRun-window {
				i += window + right + stride
				continue
			}
		}
		first, last := runAround(text, seen, i)
		if last-first >= minRun {
			if at, n, kind = s.tokenAround(buf, seen, first, min(last, upto)); n > 0 {
				return at, n, kind
			}
			if seen = last; seen >= upto {
				return 0, 0, ""
			}
		}
		i = last + minRun - window
	}
	return 0, 0, ""
}

// runAround returns where the run begins and ends that has the window at an offset, at
// least from first on.
func runAround(text []byte, from, at int) (first, last int) {
	first, last = at, at+window
	for first >= from+window {
		out := outside(binary.LittleEndian.Uint64(text[first-window:]))
		first -= bits.LeadingZeros64(out) / 8
		if out != 0 {
			return first, runEnd(text, last)
		}
	}
	for first > from && inRun.in[text[first-1]] {
		first--
	}
	return first, runEnd(text, last)
}

// runEnd returns where the run ends that has last as its end at least. A long run comes
// in pieces: after each token in it the search begins anew.
func runEnd(text []byte, last int) int {
	const longest = 512
	text = text[:min(len(text), last+longest)]
	for last <= len(text)-window {
		out := outside(binary.LittleEndian.Uint64(text[last:]))
		last += bits.TrailingZeros64(out) / 8
		if out != 0 {
			return last
		}
	}
	for last < len(text) && inRun.in[text[last]] {
		last++
	}
	return last
}

// tokenAround finds the first token that begins in a run, or up to maxLead bytes before
// it, but not before from.
func (s *Scanner) tokenAround(buf []byte, from, first, last int) (at, n int, kind string) {
	begin := first
	for begin > from && begin > first-maxLead && wide.in[buf[begin-1]] {
		begin--
	}
	// Behind the first bytes of a run an escape cannot end: only dashes matter.
	inside := min(first+escapeMax+1, last)
	for at = begin; at < inside; at++ {
		if within.in[s.before(buf, at, 1)] {
			continue
		}
		if n, kind = s.tokenAt(buf, at); n > 0 {
			return at, n, kind
		}
	}
	for at = inside; at < last; at++ {
		if buf[at-1] != '-' {
			dash := bytes.IndexByte(buf[at:last], '-')
			if dash < 0 {
				break
			}
			if at += dash + 1; at == last {
				break
			}
		}
		if n, kind = s.tokenAt(buf, at); n > 0 {
			return at, n, kind
		}
	}
	return 0, 0, ""
}

// canBegin reports whether a token can begin at an offset: not within a word, unless
// that is the end of an escape: \n, %3D, of a color.
func (s *Scanner) canBegin(buf []byte, at int) bool {
	last := s.before(buf, at, 1)
	if !joined.in[last] {
		return true
	}
	switch last {
	case 'n', 'r', 't':
		if s.before(buf, at, 2) == '\\' {
			return true
		}
	case 'm':
		if two, three := s.before(buf, at, 2), s.before(buf, at, 3); digits.in[two] && (digits.in[three] || three == '[' || three == ';') {
			return true
		}
	}
	return anyHex.in[last] && anyHex.in[s.before(buf, at, 2)] && s.before(buf, at, 3) == '%'
}

// before is the byte n before an offset of buf.
func (s *Scanner) before(buf []byte, at, n int) byte {
	if at >= n {
		return buf[at-n]
	}
	return s.prev[len(s.prev)+at-n]
}

// tokenAt returns the length and the kind of the token that begins at an offset. A
// placeholder is a token of no kind: its bytes are looked at once.
func (s *Scanner) tokenAt(buf []byte, at int) (n int, kind string) {
	b := buf[at:min(len(buf), at+ScanAhead)]
	if len(b) < minRun {
		return 0, ""
	}
	set := beginnings[0][b[0]] & beginnings[1][b[1]] & beginnings[2][b[2]] & beginnings[3][b[3]]
	late := isLate(b)
	if set == 0 && late == nil || !s.canBegin(buf, at) {
		return 0, ""
	}
	for ; set != 0; set &= set - 1 {
		for _, r := range rulesOf(set) {
			m, secret := r.match(b)
			if secret {
				return m, r.kind
			}
			n = max(n, m)
		}
	}
	if late != nil {
		m, secret := late.match(b)
		if secret {
			return m, late.kind
		}
		n = max(n, m)
	}
	return n, ""
}
