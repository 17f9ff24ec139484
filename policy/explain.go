package policy

import (
	"iter"
	"strings"
)

// names yields the names of a path, and whether more follow.
func names(path string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for more := true; more; {
			var name string
			name, path, more = strings.Cut(path, "/")
			if name != "" && !yield(name, more) {
				return
			}
		}
	}
}

// Trace follows the decisions about a path from the root on, and remembers
// where the last one was made.
type Trace struct {
	// Decision is the last one.
	Decision Decision
	// At is the path at which its rule spoke: the entry's own, or that of a
	// directory above. It is empty if no rule did.
	At string
}

// Next takes the decision about the entry at path, which lies directly in the
// one before.
func (t *Trace) Next(path string, d Decision) {
	switch {
	case d.Rule == (Rule{}):
		t.At = ""
	case d.Rule != t.Decision.Rule || d.Keep != t.Decision.Keep || strings.HasPrefix(d.Rule.Pattern, "!"):
		t.At = path
	}
	t.Decision = d
}

// Explain is [Files.Decide] that also tells where the decision was made.
func (f *Files) Explain(path string, isDir bool) Trace {
	t := Trace{Decision: Decision{Keep: true, Descend: true}}
	scope, at := f.Root(), ""
	for name, more := range names(path) {
		at += name
		var d Decision
		d, scope = scope.Decide(name, isDir || more)
		t.Next(at, d)
		at += "/"
	}
	return t
}
