package secrets

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// redactWhole overwrites declared values in JSON documents that are there whole, one after
// the other: what a [jsonPass] has to make of them.
// They are looked for inside decoded strings, the keys of objects too, and each of their
// bytes becomes a star; a number that has one becomes a string of stars. All other bytes
// stay as they are. ranges says where in out the stars are.
//
// data must be valid JSON. It fails with [ErrUnusable] when a value takes in nothing but
// what stands between strings and numbers, where nothing can be overwritten.
func (s *Set) redactWhole(data []byte) (out []byte, ranges []Range, err error) {
	if s == nil {
		return data, nil, nil
	}
	out, ranges = rewriteWhole(data, func(off int, token []byte) ([]byte, []Range) {
		var with []byte
		var where []Range
		if token[0] == '"' {
			with, where = s.redactWholeString(token)
		}
		if with == nil && s.Holds(string(token)) { // only as it is written
			with, where = wholeStars(token)
		}
		return with, where
	})
	found := s.Find(out)
	if len(found) == 0 {
		return out, ranges, nil
	}
	// A value takes in quotes, or more than one token: all of these go.
	first, rest := out, ranges
	out, ranges = rewriteWhole(first, func(off int, token []byte) (with []byte, where []Range) {
		end := int64(off + len(token))
		for len(found) > 0 && found[0].End() <= int64(off) {
			found = found[1:]
		}
		if len(found) > 0 && found[0].Off < end {
			with, where = wholeStars(token)
		}
		for len(rest) > 0 && rest[0].Off < end {
			if with == nil {
				where = append(where, Range{rest[0].Off - int64(off), rest[0].Len})
			}
			rest = rest[1:]
		}
		return with, where
	})
	if len(s.Find(out)) > 0 {
		return nil, nil, fmt.Errorf("a declared secret consists of the signs between strings: %w", ErrUnusable)
	}
	return out, ranges, nil
}

// rewriteWhole returns JSON documents with some of their strings and numbers replaced. replace
// gets each, and where it begins; it returns what is to stand there instead, nil for the
// same, and ranges of that. Those of all are returned.
func rewriteWhole(data []byte, replace func(off int, token []byte) (with []byte, where []Range)) (out []byte, ranges []Range) {
	from := 0 // up to there data is in out
	for i := 0; i < len(data); {
		n := wholeToken(data[i:])
		if n == 0 {
			i++
			continue
		}
		with, where := replace(i, data[i:i+n])
		if with != nil || len(where) > 0 {
			out = append(out, data[from:i]...)
			for _, r := range where {
				ranges = append(ranges, Range{r.Off + int64(len(out)), r.Len})
			}
			if from = i; with != nil {
				out, from = append(out, with...), i+n
			}
		}
		i += n
	}
	if from == 0 {
		return data, nil
	}
	return append(out, data[from:]...), ranges
}

// wholeToken is how many bytes the string or number has with which data begins; 0: none
// does.
func wholeToken(data []byte) int {
	if data[0] != '"' {
		n := 0
		for n < len(data) && (isWord(data[n]) || bytes.IndexByte([]byte("+-."), data[n]) >= 0) {
			n++
		}
		return n
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// redactWholeString returns a string, quotes and all, without the declared values that it has
// when it is decoded; nil: it has none.
func (s *Set) redactWholeString(token []byte) (with []byte, where []Range) {
	inner := token[1:max(len(token)-1, 1)]
	if bytes.IndexByte(inner, '\\') < 0 {
		found := s.Find(inner)
		if len(found) == 0 {
			return nil, nil
		}
		with = bytes.Clone(token)
		for _, r := range found {
			stars(with[1+r.Off : 1+r.End()])
			where = append(where, Range{r.Off + 1, r.Len})
		}
		return with, where
	}
	units, decoded := decodeWhole(inner)
	found := s.Find(decoded)
	if len(found) == 0 {
		return nil, nil
	}
	with = []byte{'"'}
	at := 0 // in decoded
	last := Range{Off: -1}
	for _, u := range units {
		for len(found) > 0 && found[0].End() <= int64(at) {
			found = found[1:]
		}
		if len(found) > 0 && found[0].Off < int64(at+u.decoded) {
			if last != found[0] {
				where = append(where, Range{Off: int64(len(with))})
				last = found[0]
			}
			with = append(with, bytes.Repeat([]byte("*"), u.decoded)...)
			where[len(where)-1].Len += int64(u.decoded)
		} else {
			with = append(with, u.raw...)
		}
		at += u.decoded
	}
	with = append(with, '"')
	if s.Holds(string(with)) { // what is left looks like one, as it is written
		return wholeStars(token)
	}
	return with, where
}

// wholeStars returns a string of as many stars as a token has bytes when it is decoded.
func wholeStars(token []byte) (with []byte, where []Range) {
	n := len(token)
	if token[0] == '"' {
		_, decoded := decodeWhole(token[1:max(len(token)-1, 1)])
		n = len(decoded)
	}
	with = append(append([]byte{'"'}, bytes.Repeat([]byte("*"), n)...), '"')
	return with, []Range{{1, int64(n)}}
}

// A wholeUnit is a character of a JSON string as it is written, and how many bytes it has when
// it is decoded.
type wholeUnit struct {
	raw     []byte
	decoded int
}

// decodeWhole returns the units of a string's inside, and all of it decoded. Bytes that are not
// UTF-8 stay what they are.
func decodeWhole(inner []byte) (units []wholeUnit, decoded []byte) {
	for len(inner) > 0 {
		n, before := 1, len(decoded)
		switch {
		case inner[0] != '\\' || len(inner) < 2:
			decoded = append(decoded, inner[0])
		case inner[1] == 'u':
			var r rune
			if r, n = escapedRune(inner); utf16.IsSurrogate(r) {
				if low, m := escapedRune(inner[n:]); utf16.DecodeRune(r, low) != utf8.RuneError {
					r, n = utf16.DecodeRune(r, low), n+m
				}
			}
			decoded = utf8.AppendRune(decoded, r)
		default:
			n = 2
			if i := bytes.IndexByte([]byte("bfnrt"), inner[1]); i >= 0 {
				decoded = append(decoded, "\b\f\n\r\t"[i])
			} else {
				decoded = append(decoded, inner[1])
			}
		}
		units = append(units, wholeUnit{inner[:n], len(decoded) - before})
		inner = inner[n:]
	}
	return units, decoded
}
