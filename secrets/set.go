package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
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
	Bytes  []byte `json:"-"`
	Source string // for people: "variable NAME", "FILE:3"
}

// Format implements [fmt.Formatter].
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, v.Source) }

// A Set is the declared values of one operation. The nil Set has none. It is immutable
// and safe for concurrent use. Printing one shows how many it has.
type Set struct {
	values [][]byte // sorted, each once
	match  *matcher // finds them and their spellings
}

// NewSet checks values and makes a set of them; no values make the nil Set. The error
// names the source of each value that is refused.
func NewSet(values []Value) (*Set, error) {
	var errs []error
	s := &Set{}
	for _, v := range values {
		if err := v.Check(); err != nil {
			errs = append(errs, err)
			continue
		}
		s.values = append(s.values, bytes.Clone(v.Bytes))
	}
	if err := errors.Join(errs...); err != nil || len(s.values) == 0 {
		return nil, err
	}
	slices.SortFunc(s.values, bytes.Compare)
	s.values = slices.CompactFunc(s.values, bytes.Equal)
	var patterns [][]byte
	for _, v := range s.values {
		patterns = append(patterns, spellings(v)...)
	}
	s.match = newMatcher(patterns)
	return s, nil
}

// Check says why a value cannot be looked for; nil: it can.
func (v Value) Check() error {
	switch n := len(v.Bytes); {
	case n < MinLength:
		return fmt.Errorf("%s: %d bytes, a declared secret has at least %d: %w", v.Source, n, MinLength, ErrTooShort)
	case n > MaxLength:
		return fmt.Errorf("%s: %d bytes, a declared secret has at most %d: %w", v.Source, n, MaxLength, ErrUnusable)
	case bytes.IndexByte(v.Bytes, 0) >= 0:
		return fmt.Errorf("%s: a declared secret has no zero bytes: %w", v.Source, ErrUnusable)
	case len(bytes.Trim(v.Bytes, " \t\r\n*")) == 0:
		return fmt.Errorf("%s: a declared secret is more than spaces and stars: %w", v.Source, ErrUnusable)
	}
	return nil
}

// Format implements [fmt.Formatter].
func (s Set) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "%d declared secrets", s.Len()) }

// Len returns how many values the set has.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.values)
}

// Find returns where declared values stand in data, by ascending offset. Those that
// overlap are one range.
func (s *Set) Find(data []byte) []Range {
	if s == nil {
		return nil
	}
	var found []Range
	s.match.find(data, len(data), func(off, size int) { found = appendRange(found, Range{int64(off), int64(size)}) })
	return found
}

// appendRange adds a range that begins no earlier than the last one, or makes that longer if
// the two overlap.
func appendRange(list []Range, r Range) []Range {
	if last := len(list) - 1; last >= 0 && r.Off < list[last].End() {
		list[last].Len = max(list[last].End(), r.End()) - list[last].Off
		return list
	}
	return append(list, r)
}

// Holds reports whether a declared value stands in text.
func (s *Set) Holds(text string) bool { return len(s.Find([]byte(text))) > 0 }

// Mask returns text with a star for each byte of a declared value.
func (s *Set) Mask(text string) string {
	found := s.Find([]byte(text))
	if len(found) == 0 {
		return text
	}
	b := []byte(text)
	for _, r := range found {
		stars(b[r.Off:r.End()])
	}
	return string(b)
}

func stars(b []byte) {
	for i := range b {
		b[i] = '*'
	}
}

// Hashes returns the hash of each value, sorted. It is for telling sets apart without
// their values.
func (s *Set) Hashes(hash func(value []byte) string) []string {
	if s == nil {
		return nil
	}
	hashes := make([]string, len(s.values))
	for i, v := range s.values {
		hashes[i] = hash(v)
	}
	slices.Sort(hashes)
	return hashes
}
