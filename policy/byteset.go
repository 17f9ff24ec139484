package policy

import (
	"math/bits"
	"strings"
)

// byteSet is a set of bytes, one bit each.
type byteSet [4]uint64

// anyByte has all that a name can have.
var anyByte = byteSet{}.negate().inNames()

func (s *byteSet) add(b byte)      { s[b/64] |= 1 << (b % 64) }
func (s *byteSet) has(b byte) bool { return s[b/64]&(1<<(b%64)) != 0 }

func (s *byteSet) addRange(from, to byte) {
	for b := int(from); b <= int(to); b++ {
		s.add(byte(b))
	}
}

func (s byteSet) negate() byteSet {
	for i := range s {
		s[i] = ^s[i]
	}
	return s
}

// inNames returns those of the bytes that a name can have.
func (s byteSet) inNames() byteSet {
	s[0] &^= 1 | 1<<'/'
	return s
}

// only returns the byte of a set that has just one.
func (s *byteSet) only() (b byte, ok bool) {
	n := 0
	for i, word := range s {
		if word != 0 {
			n += bits.OnesCount64(word)
			b = byte(64*i + bits.TrailingZeros64(word))
		}
	}
	return b, n == 1
}

// parseSet compiles the set in brackets at text[start] and returns the index
// behind it. The grammar is that of git's wildmatch.c: "!" or "^" negates, a
// "]" that comes first is a member, a backslash escapes, and what looks like a
// class but has no ":]" is taken byte by byte. Of a range that runs backwards only
// its first byte is a member. A slash may be written, and never matches.
func parseSet(text string, start int) (set byteSet, end int, err *flaw) {
	i := start + 1
	negated := i < len(text) && (text[i] == '!' || text[i] == '^')
	if negated {
		i++
	}
	prev := -1 // the byte that a range would start at
	for first := true; ; first = false {
		if i == len(text) {
			return set, i, flawUnclosed
		}
		b := text[i]
		switch {
		case b == ']' && !first:
			if negated {
				set = set.negate()
			}
			if set = set.inNames(); set == (byteSet{}) {
				return set, i, flawSetEmpty
			}
			return set, i + 1, nil
		case b == '-' && prev >= 0 && i+1 < len(text) && text[i+1] != ']':
			i++
			if text[i] == '\\' {
				i++
				if i == len(text) {
					return set, i, flawUnclosed
				}
			}
			set.addRange(byte(prev), text[i])
			prev = -1
			i++
		case b == '[' && i+1 < len(text) && text[i+1] == ':':
			size := strings.IndexByte(text[i+2:], ']')
			if size < 0 {
				return set, i, flawUnclosed
			}
			class, isClass := strings.CutSuffix(text[i+2:i+2+size], ":")
			if !isClass {
				set.add(b)
				prev = int(b)
				i++
				break
			}
			if !set.addClass(class) {
				return set, i, flawClass
			}
			prev = -1
			i += 2 + size + 1
		default:
			if b == '\\' {
				i++
				if i == len(text) {
					return set, i, flawUnclosed
				}
				b = text[i]
			}
			set.add(b)
			prev = int(b)
			i++
		}
	}
}

// addClass adds a POSIX class, in ASCII as git has it: its space is without \v
// and \f.
func (s *byteSet) addClass(class string) bool {
	switch class {
	case "alnum":
		s.addClass("alpha")
		s.addClass("digit")
	case "alpha":
		s.addClass("lower")
		s.addClass("upper")
	case "blank":
		s.add(' ')
		s.add('\t')
	case "cntrl":
		s.addRange(0, 31)
		s.add(127)
	case "digit":
		s.addRange('0', '9')
	case "graph":
		s.addRange('!', '~')
	case "lower":
		s.addRange('a', 'z')
	case "print":
		s.addRange(' ', '~')
	case "punct":
		s.addRange('!', '/')
		s.addRange(':', '@')
		s.addRange('[', '`')
		s.addRange('{', '~')
	case "space":
		s.add(' ')
		s.add('\t')
		s.add('\n')
		s.add('\r')
	case "upper":
		s.addRange('A', 'Z')
	case "xdigit":
		s.addRange('0', '9')
		s.addRange('a', 'f')
		s.addRange('A', 'F')
	default:
		return false
	}
	return true
}
