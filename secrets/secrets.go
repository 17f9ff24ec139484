// Package secrets finds secret values in bytes: those that were declared ([Set]), and
// those that look like one ([Scanner]).
//
// A declared value is found wherever it stands, whatever is around it, as it is and in
// the spellings that text formats have for it. All bytes of all that is found are
// covered, also where values overlap. A value is never part of an error, of a log or of
// what the package returns: whoever prints text that may have one uses [Set.Mask].
package secrets

// A Range is a stretch of a content in bytes.
type Range struct{ Off, Len int64 }

// End is the offset behind its last byte.
func (r Range) End() int64 { return r.Off + r.Len }

// A Finding is something in a content that looks like a secret.
type Finding struct {
	Line int64  // from 1; 0: the content has no lines
	Kind string // see [Kinds]
}

// A Report is what was found in one content.
type Report struct {
	// Redacted are the stretches that declared values took, by ascending offset, none
	// overlapping another; there are zero bytes now.
	Redacted []Range
	// Findings are what else looks like a secret, by ascending line, of each kind the
	// first [MaxFindings].
	Findings []Finding
	More     int // findings beyond those
}

// MaxFindings is how many findings of one kind in one content are kept.
const MaxFindings = 100

// Count returns how many findings of a kind are kept.
func (r Report) Count(kind string) (n int) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// Empty reports whether nothing was found.
func (r Report) Empty() bool { return len(r.Redacted) == 0 && len(r.Findings) == 0 }
