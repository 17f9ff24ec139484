package tree

import "github.com/snapfs/snapfs/cas"

// Totals count what lies below a directory, at any depth, the directory itself
// not included.
type Totals struct {
	Files    uint64 // files and symlinks
	Dirs     uint64
	Bytes    uint64 // sizes of the files; symlinks count nothing
	XAttrs   uint64 // entries with extended attributes
	Redacted uint64 // files with the flag [Redacted]
}

// Add adds other to t. It fails, and leaves t as it was, when a sum is larger
// than the largest signed 64-bit number; the error wraps [ErrInvalid].
func (t *Totals) Add(other Totals) error {
	sum := *t
	for _, c := range [...]struct{ to, add *uint64 }{
		{&sum.Files, &other.Files}, {&sum.Dirs, &other.Dirs}, {&sum.Bytes, &other.Bytes},
		{&sum.XAttrs, &other.XAttrs}, {&sum.Redacted, &other.Redacted},
	} {
		if *c.to > maxCount || *c.add > maxCount-*c.to {
			return invalid("sum of totals", "it is too large")
		}
		*c.to += *c.add
	}
	if sum.Dirs > maxCount-sum.Files {
		return invalid("sum of totals", "there are too many entries")
	}
	*t = sum
	return nil
}

// Sub takes other away from t, of which it is a part. It fails, and leaves t as it was, when
// it cannot be one; the error wraps [ErrInvalid].
func (t *Totals) Sub(other Totals) error {
	rest := *t
	for _, c := range [...]struct{ from, take *uint64 }{
		{&rest.Files, &other.Files}, {&rest.Dirs, &other.Dirs}, {&rest.Bytes, &other.Bytes},
		{&rest.XAttrs, &other.XAttrs}, {&rest.Redacted, &other.Redacted},
	} {
		if *c.take > *c.from {
			return invalid("difference of totals", "a part is larger than the whole")
		}
		*c.from -= *c.take
	}
	*t = rest
	return nil
}

// addEntry counts one entry, without what lies below it.
func (t *Totals) addEntry(e *Entry) error {
	var one Totals
	switch e.Kind {
	case Dir:
		one.Dirs = 1
	case File:
		one.Files, one.Bytes = 1, e.Size
	default:
		one.Files = 1
	}
	if !e.XAttrs.IsZero() {
		one.XAttrs = 1
	}
	if e.Flags&Redacted != 0 {
		one.Redacted = 1
	}
	return t.Add(one)
}

// check tells whether t can be the totals of anything.
func (t Totals) check() error {
	switch {
	case t.Files > maxCount || t.Dirs > maxCount-t.Files || t.Bytes > maxCount:
		return invalid("totals", "a count is too large")
	case t.XAttrs > t.Files+t.Dirs:
		return invalid("totals", "more extended attributes than entries")
	case t.Redacted > t.Files:
		return invalid("totals", "more redacted files than files")
	case t.Bytes > 0 && t.Files == 0:
		return invalid("totals", "bytes without files")
	}
	return nil
}

// A Root describes a whole directory.
type Root struct {
	Hash    cas.Hash // of its root object, in the trees namespace
	Totals  Totals   // of everything below it
	Entries uint64   // direct entries
}
