package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MinLength is how long a declared value is at least, in bytes: a shorter one would be
// found where it is not meant.
const MinLength = 8

// MaxLength is how long a declared value can be, in bytes.
const MaxLength = 64 << 10

var (
	// ErrTooShort: a declared value has fewer than [MinLength] bytes.
	ErrTooShort = errors.New("too short to be found without harm")
	// ErrUnusable: a declared value is none that could be looked for.
	ErrUnusable = errors.New("no value to look for")
)

// A Value is a declared secret, and where it was declared. Printing one shows the
// source only.
type Value struct {
	Bytes  []byte
	Source string // for people: "--redact-env NAME", "FILE:3"
}

// String implements [fmt.Stringer].
func (v Value) String() string { return v.Source }

// GoString implements [fmt.GoStringer].
func (v Value) GoString() string { return v.Source }

// A Set is the declared values of one operation. The nil Set has none. It is immutable
// and safe for concurrent use.
type Set struct {
	values   [][]byte // sorted, each once
	patterns [][]byte // the values and their spellings, longest first
	longest  int      // bytes of the longest pattern
}

// NewSet checks values and makes a set of them; no values make the nil Set. The error
// names the source of each value that is refused.
func NewSet(values []Value) (*Set, error) {
	var errs []error
	s := &Set{}
	for _, v := range values {
		switch n := len(v.Bytes); {
		case n < MinLength:
			errs = append(errs, fmt.Errorf("%s: %d bytes, a declared secret has at least %d: %w", v.Source, n, MinLength, ErrTooShort))
		case n > MaxLength:
			errs = append(errs, fmt.Errorf("%s: %d bytes, a declared secret has at most %d: %w", v.Source, n, MaxLength, ErrUnusable))
		case bytes.IndexByte(v.Bytes, 0) >= 0:
			errs = append(errs, fmt.Errorf("%s: a declared secret has no zero bytes: %w", v.Source, ErrUnusable))
		default:
			s.values = append(s.values, bytes.Clone(v.Bytes))
		}
	}
	if err := errors.Join(errs...); err != nil || len(s.values) == 0 {
		return nil, err
	}
	slices.SortFunc(s.values, bytes.Compare)
	s.values = slices.CompactFunc(s.values, bytes.Equal)
	s.patterns = slices.Clone(s.values)
	slices.SortStableFunc(s.patterns, func(a, b []byte) int { return len(b) - len(a) })
	s.longest = len(s.patterns[0])
	return s, nil
}

// Find returns where declared values stand in data. Those that overlap are one range.
func (s *Set) Find(data []byte) []Range {
	if s == nil {
		return nil
	}
	var found []Range
	for _, p := range s.patterns {
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], p)
			if i < 0 {
				break
			}
			at += i
			found = append(found, Range{int64(at), int64(len(p))})
		}
	}
	return merge(found)
}

// merge sorts ranges and makes one of those that overlap.
func merge(found []Range) []Range {
	slices.SortFunc(found, func(a, b Range) int { return int(min(max(a.Off-b.Off, -1), 1)) })
	out := found[:0]
	for _, r := range found {
		if last := len(out) - 1; last >= 0 && r.Off < out[last].End() {
			out[last].Len = max(out[last].End(), r.End()) - out[last].Off
			continue
		}
		out = append(out, r)
	}
	return out
}

// Mask returns text with a star for each byte of a declared value.
func (s *Set) Mask(text string) string {
	found := s.Find([]byte(text))
	if len(found) == 0 {
		return text
	}
	b := []byte(text)
	for _, r := range found {
		copy(b[r.Off:r.End()], strings.Repeat("*", int(r.Len)))
	}
	return string(b)
}
