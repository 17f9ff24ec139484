package secrets

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A jsonPass overwrites declared values in JSON documents that stand one after the other
// and come in pieces. They are looked for inside decoded strings, the keys of objects
// too, and each of their bytes becomes a star; a number that has one becomes a string of
// stars. Then they are looked for in the text that this makes, as it is written: where a
// value takes in quotes, or more than one string or number, all of these become stars.
// All other bytes stay as they are.
//
// What it holds is the longest string or number, and what the longest value may go on in.
type jsonPass struct {
	set *Set
	add func(Range) // gets where in the result stars are, in order

	in   []byte // not looked at yet; a token begins with it, or nothing
	seen int    // bytes of the token that in begins with

	text    []byte  // what became of the tokens before
	base    int64   // where text begins in all of it
	matched int     // values that begin in text[:matched] are in found
	cuts    []int64 // ends of tokens in all of text, ascending
	found   []Range // in all of text
	stars   []Range // in all of text, that are not passed on
	done    int     // bytes of text that were passed on
	out     int64   // length of the result so far

	// Memory for one string: decoded, what it becomes, where values and stars are in it.
	decoded, with []byte
	hits, where   []Range
}

// write takes a piece, or the end of all. It returns the next part of the result, which
// is good until the next call.
func (p *jsonPass) write(piece []byte, end bool) []byte {
	p.in = append(p.in, piece...)
	p.text = p.text[:copy(p.text, p.text[p.done:])]
	p.base += int64(p.done)
	p.matched -= p.done
	p.tokens(end)
	p.match(end)
	return p.pass()
}

// tokens moves all tokens that are there whole from in to text.
func (p *jsonPass) tokens(end bool) {
	from, i := 0, 0 // in[:from] is in text
	for i < len(p.in) {
		n, whole := tokenEnd(p.in[i:], p.seen)
		if !whole && !end {
			p.seen = n
			break
		}
		p.seen = 0
		if n == 0 {
			i++
			continue
		}
		n = min(n, len(p.in)-i)
		token := p.in[i : i+n]
		with, where := p.redactToken(token)
		if with != nil {
			p.text = append(p.text, p.in[from:i]...)
			at := p.base + int64(len(p.text))
			for _, r := range where {
				p.stars = append(p.stars, Range{at + r.Off, r.Len})
			}
			p.text = append(p.text, with...)
			from = i + n
		}
		i += n
	}
	p.text = append(p.text, p.in[from:i]...)
	p.in = p.in[:copy(p.in, p.in[i:])]
	p.cuts = append(p.cuts, p.base+int64(len(p.text)))
}

// match finds what values begin where all that begins stands in text whole.
func (p *jsonPass) match(end bool) {
	upto := len(p.text)
	if !end {
		upto = max(p.matched, upto-(p.set.match.longest-1))
	}
	at := p.base + int64(p.matched)
	p.set.match.find(p.text[p.matched:], upto-p.matched, func(off, size int) {
		p.found = appendRange(p.found, Range{at + int64(off), int64(size)})
	})
	p.matched = upto
}

// pass returns the part of text in which all tokens are decided.
func (p *jsonPass) pass() []byte {
	p.done = 0
	for len(p.cuts) > 0 && p.cuts[0] <= p.base+int64(p.matched) {
		p.done = int(p.cuts[0] - p.base)
		p.cuts = slices.Delete(p.cuts, 0, 1)
	}
	part := p.text[:p.done]
	if end := p.base + int64(p.done); len(p.found) > 0 && p.found[0].Off < end {
		part = p.cover(part)
	} else {
		p.keep(end, p.out-p.base)
	}
	p.out += int64(len(part))
	return part
}

// keep passes the ranges on that end up to a place in all of text, moved by some bytes.
func (p *jsonPass) keep(end, by int64) {
	n := 0
	for n < len(p.stars) && p.stars[n].End() <= end {
		p.add(Range{p.stars[n].Off + by, p.stars[n].Len})
		n++
	}
	p.stars = slices.Delete(p.stars, 0, n)
}

// cover returns a part of text with stars for the tokens that what was found takes in.
func (p *jsonPass) cover(part []byte) []byte {
	var out []byte
	from := 0 // part[:from] is in out
	for i := 0; i < len(part); {
		n, _ := tokenEnd(part[i:], 0)
		n = min(n, len(part)-i)
		if n == 0 {
			i++
			continue
		}
		begin, end := p.base+int64(i), p.base+int64(i+n)
		for len(p.found) > 0 && p.found[0].End() <= begin {
			p.found = p.found[1:]
		}
		if len(p.found) > 0 && p.found[0].Off < end {
			p.keep(begin, p.out+int64(len(out)-from)-p.base)
			p.stars = slices.DeleteFunc(p.stars, func(r Range) bool { return r.Off < end })
			out = append(out, part[from:i]...)
			with, where := p.allStars(part[i : i+n])
			for _, r := range where {
				if r.Len > 0 { // an empty string stays one
					p.add(Range{p.out + int64(len(out)) + r.Off, r.Len})
				}
			}
			out, from = append(out, with...), i+n
		}
		i += n
	}
	end := p.base + int64(len(part))
	p.keep(end, p.out+int64(len(out)-from)-p.base)
	for len(p.found) > 0 && p.found[0].End() <= end {
		p.found = p.found[1:]
	}
	return append(out, part[from:]...)
}

// redactToken returns what becomes of a string or a number, and where in that the stars
// are, until the next call; nil: it stays.
func (p *jsonPass) redactToken(token []byte) (with []byte, where []Range) {
	if len(token) < MinLength {
		return nil, nil
	}
	if token[0] == '"' {
		with, where = p.redactString(token)
	}
	if with == nil && p.set.holds(token) { // only as it is written
		with, where = p.allStars(token)
	}
	return with, where
}

func (s *Set) holds(text []byte) (yes bool) {
	s.match.find(text, len(text), func(int, int) { yes = true })
	return yes
}

// tokenEnd looks for the end of the string or number with which data begins, of which the
// first seen bytes were looked at before: n is how many bytes it has, or what is seen of
// it if its end is not there; 0: data begins with none.
func tokenEnd(data []byte, seen int) (n int, whole bool) {
	if data[0] != '"' {
		for n = seen; n < len(data) && (isWord(data[n]) || data[n] == '+' || data[n] == '-' || data[n] == '.'); {
			n++
		}
		return n, n < len(data)
	}
	quote := 0 // the next one, or the end
	for n = max(seen, 1); n < len(data); {
		if quote < n {
			if quote = bytes.IndexByte(data[n:], '"'); quote < 0 {
				quote = len(data)
			} else {
				quote += n
			}
		}
		if escape := bytes.IndexByte(data[n:quote], '\\'); escape >= 0 {
			n += escape + 2
		} else if n = quote; n < len(data) {
			return n + 1, true
		}
	}
	return n, false
}

// redactString returns a string, quotes and all, without the declared values that it has
// when it is decoded; nil: it has none.
func (p *jsonPass) redactString(token []byte) (with []byte, where []Range) {
	inner := token[1:max(len(token)-1, 1)]
	if bytes.IndexByte(inner, '\\') < 0 {
		found := p.find(inner)
		if len(found) == 0 {
			return nil, nil
		}
		with, where = append(p.with[:0], token...), p.where[:0]
		for _, r := range found {
			stars(with[1+r.Off : 1+r.End()])
			where = append(where, Range{r.Off + 1, r.Len})
		}
		p.with, p.where = with, where
		return with, where
	}
	p.decoded = decode(p.decoded[:0], inner)
	found := p.find(p.decoded)
	if len(found) == 0 {
		return nil, nil
	}
	with, where = append(p.with[:0], '"'), p.where[:0]
	at := int64(0) // in the decoded string
	last := Range{Off: -1}
	var scratch [utf8.UTFMax]byte
	for len(inner) > 0 {
		n, c := unit(inner, scratch[:0])
		for len(found) > 0 && found[0].End() <= at {
			found = found[1:]
		}
		if len(found) > 0 && found[0].Off < at+int64(len(c)) {
			if last != found[0] {
				where = append(where, Range{Off: int64(len(with))})
				last = found[0]
			}
			for range c {
				with = append(with, '*')
			}
			where[len(where)-1].Len += int64(len(c))
		} else {
			with = append(with, inner[:n]...)
		}
		at += int64(len(c))
		inner = inner[n:]
	}
	with = append(with, '"')
	p.with, p.where = with, where
	if p.set.holds(with) { // what is left looks like one, as it is written
		return p.allStars(token)
	}
	return with, where
}

// allStars returns a string of as many stars as a token has bytes when it is decoded.
func (p *jsonPass) allStars(token []byte) (with []byte, where []Range) {
	n := len(token)
	if token[0] == '"' {
		p.decoded = decode(p.decoded[:0], token[1:max(len(token)-1, 1)])
		n = len(p.decoded)
	}
	p.with = slices.Grow(p.with[:0], n+2)[:n+2]
	stars(p.with)
	p.with[0], p.with[n+1] = '"', '"'
	p.where = append(p.where[:0], Range{1, int64(n)})
	return p.with, p.where
}

// find is [Set.Find]; what it returns is good until the next call.
func (p *jsonPass) find(data []byte) []Range {
	p.hits = p.hits[:0]
	p.set.match.find(data, len(data), func(off, size int) { p.hits = appendRange(p.hits, Range{int64(off), int64(size)}) })
	return p.hits
}

// decode appends a string's inside decoded. Bytes that are not UTF-8 stay what they are.
func decode(decoded, inner []byte) []byte {
	decoded = slices.Grow(decoded, len(inner)) // no escape is shorter than what it means
	for len(inner) > 0 {
		var n int
		if n = bytes.IndexByte(inner, '\\'); n < 0 {
			return append(decoded, inner...)
		}
		decoded = append(decoded, inner[:n]...)
		inner = inner[n:]
		n, decoded = unit(inner, decoded)
		inner = inner[n:]
	}
	return decoded
}

// unit decodes the character that a string's inside begins with: n is how many bytes it
// is written with.
func unit(inner, decoded []byte) (n int, _ []byte) {
	switch {
	case inner[0] != '\\' || len(inner) < 2:
		return 1, append(decoded, inner[0])
	case inner[1] == 'u':
		r, n := escapedRune(inner)
		if utf16.IsSurrogate(r) {
			if low, m := escapedRune(inner[n:]); utf16.DecodeRune(r, low) != utf8.RuneError {
				r, n = utf16.DecodeRune(r, low), n+m
			}
		}
		return n, utf8.AppendRune(decoded, r)
	}
	if i := bytes.IndexByte([]byte("bfnrt"), inner[1]); i >= 0 {
		return 2, append(decoded, "\b\f\n\r\t"[i])
	}
	return 2, append(decoded, inner[1])
}

// escapedRune reads \uXXXX; n is how many bytes that takes, or would if it were one.
func escapedRune(b []byte) (r rune, n int) {
	const size = len(`\uXXXX`)
	if len(b) < size || b[0] != '\\' || b[1] != 'u' {
		return utf8.RuneError, min(len(b), size)
	}
	code, err := strconv.ParseUint(string(b[2:size]), 16, 16)
	if err != nil {
		return utf8.RuneError, size
	}
	return rune(code), size
}
