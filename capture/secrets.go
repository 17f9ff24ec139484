package capture

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
)

// A Screen says which secrets stay out of a capture.
type Screen struct {
	// Declared are the values that are overwritten with zero bytes; what cannot be
	// overwritten is left out. They are in no path, text or error of the result either:
	// there are stars instead.
	Declared *secrets.Set
	// Mode says what becomes of files that have what looks like a secret; empty: the
	// same as [policy.SecretsWarn].
	Mode policy.SecretsMode
	// Allowed are the findings that are none.
	Allowed *policy.Allowed
	// Fewer: the declared values are some of those that were declared for the Known,
	// and not all. What was found then is looked for anew. Whoever has others makes
	// no use of the Known.
	Fewer bool
	// Before are the files, by path, that had zero bytes in place of declared values in
	// the checkpoint before. One that is the same still lacks them, as where that was
	// restored, and counts as redacted again.
	Before map[string]Overwritten
}

// Overwritten is a file's content after declared values were overwritten in it.
type Overwritten struct {
	Hash   cas.Hash // of the content, or of its list of chunks
	Ranges []secrets.Range
}

// Detects reports whether files are looked through for what looks like a secret.
func (s Screen) Detects() bool { return s.Mode != policy.SecretsOff }

// Contents is what contents are looked through for.
func (s Screen) Contents() secrets.Screen {
	return secrets.Screen{Set: s.Declared, Detect: s.Detects()}
}

// Stops says which findings in the file at path keep it out; nil: none does.
func (s Screen) Stops(path string) func(kind string) bool {
	if s.Mode != policy.SecretsExclude {
		return nil
	}
	return func(kind string) bool { return !s.Allowed.Allows(path, kind) }
}

// class tells apart the paths of which something else may stay out.
func (s Screen) class(path string) string {
	if s.Mode != policy.SecretsExclude {
		return ""
	}
	return s.Allowed.Class(path)
}

// Told is what of a report counts for the file at path.
func (s Screen) Told(path string, r secrets.Report) secrets.Report {
	told := secrets.Report{Redacted: r.Redacted}
	if !s.Detects() {
		return told
	}
	for _, f := range r.Findings {
		if s.Allowed.Allows(path, f.Kind) {
			continue
		}
		told.Findings = append(told.Findings, f)
		if told.Count(f.Kind) == secrets.MaxFindings {
			told.More = r.More
		}
	}
	return told
}

// A reason says why a file is left out for the secrets that it has.
type reason uint8

const (
	noReason reason = iota
	inBinary
	tooMany
	looksLike
)

// String is for the list of what was left out.
func (r reason) String() string {
	return [...]string{"", "a declared secret stands in it, and it is not text", "declared secrets stand in too many places of it", "it has what looks like a secret"}[r]
}

// The reasons why an entry is left out for a declared secret in its name, or in its target.
const (
	inPath   = "a declared secret stands in its path"
	inTarget = "a declared secret stands in what it links to"
)

// ForDeclared reports whether something was left out for a declared secret, which is not
// known to who has only the reason.
func ForDeclared(why string) bool {
	return why == inPath || why == inTarget || why == hidden || why == inBinary.String() || why == tooMany.String()
}

// Masked reports whether a path may be the one, or lie below it, of something that was left
// out for a declared secret in its path: in place of the secret there are stars.
func (o Omission) Masked(path string) bool {
	n := len(o.Path)
	if o.Why != inPath || len(path) < n || len(path) > n && path[n] != '/' {
		return false
	}
	for i := range n {
		if o.Path[i] != path[i] && o.Path[i] != '*' {
			return false
		}
	}
	return true
}

// hidden says why attributes are left out.
const hidden = "extended attributes: a declared secret stands in them"

// reasonOf tells whether it was a secret that ended the reading of a file.
func reasonOf(err error) reason {
	var found *secrets.FoundError
	switch {
	case errors.Is(err, secrets.ErrBinary):
		return inBinary
	case errors.Is(err, secrets.ErrTooMany):
		return tooMany
	case errors.As(err, &found):
		return looksLike
	}
	return noReason
}

// LeftOut says why a content is left out whose reading through [Screen.Contents] ended
// with an error; "": not for a secret.
func LeftOut(err error) string { return reasonOf(err).String() }

// screened is what was found in a file.
type screened struct {
	report secrets.Report
	left   reason // it is not in the tree
	hides  bool   // it has attributes that are left out for a declared secret in them
}

// note takes what was found, and whether that ended the reading.
func (s *screened) note(report secrets.Report, err error) {
	s.report, s.left = report, reasonOf(err)
	if s.left != noReason {
		s.report.Redacted = nil // of what is not there
	}
}

func (s *screened) empty() bool { return s.report.Empty() && s.left == noReason && !s.hides }

// lacks notes that a file still has the zero bytes that were put into it before.
func (w *worker) lacks(f *foundFile) {
	if len(w.opt.Screen.Before) == 0 || len(f.secrets.report.Redacted) > 0 {
		return
	}
	if was, found := w.opt.Screen.Before[f.dir.pathOf(f.e)]; found && was.Hash == f.hash {
		f.secrets.report.Redacted = was.Ranges
	}
}

// stops says which findings keep a file out; nil: none does.
func (w *worker) stops(f *foundFile) func(kind string) bool {
	if w.opt.Screen.Mode != policy.SecretsExclude {
		return nil // its path is not needed
	}
	return w.opt.Screen.Stops(f.dir.pathOf(f.e))
}

// screen looks through what was read of a small file, and overwrites what is declared. It
// reports whether the file may be saved.
func (w *worker) screen(f *foundFile, data []byte) bool {
	contents := w.opt.Screen.Contents()
	if contents.Idle() {
		return true
	}
	report, err := contents.Screen(data, w.stops(f))
	f.secrets.note(report, err)
	return err == nil
}

// screening returns a reader of what is to be stored of a file, and a function to call
// when it was read, with the error of that.
func (w *worker) screening(f *foundFile, in io.Reader) (io.Reader, func(err error)) {
	contents := w.opt.Screen.Contents()
	contents.Whole = f.whole
	if contents.Idle() {
		return in, func(error) {}
	}
	r := contents.Reader(in, w.stops(f))
	return r, func(err error) {
		f.secrets.note(r.Report(), err)
		r.Close()
	}
}

// recallSecrets takes what the last capture found in a file that has not changed. It is
// false if the file has to be read all the same.
func (w *worker) recallSecrets(f *foundFile, known knownRecord) bool {
	was, ok := known.secrets()
	if !ok || was.empty() {
		return ok
	}
	s := &w.opt.Screen
	if s.Fewer && (len(was.report.Redacted) > 0 || was.hides || was.left == inBinary || was.left == tooMany) {
		return false
	}
	stops := w.stops(f)
	stopped := false
	for _, found := range was.report.Findings {
		stopped = stopped || stops != nil && stops(found.Kind)
	}
	switch {
	case was.left == looksLike && !stopped:
		return false
	case was.left == noReason && stopped:
		was.left, was.report.Redacted = looksLike, nil
	}
	f.secrets = was
	return true
}

// tellSecrets lists what was found in a file, once it is known under which name. It
// counts what is left out for it.
func (c *walker) tellSecrets(path string, s screened) {
	if s.empty() {
		return
	}
	if s.left != noReason {
		c.omit(&c.secret, path, s.left.String())
	} else if s.hides {
		c.omit(&c.secret, path, hidden)
	}
	report := c.opt.Screen.Told(path, s.report)
	if report.Empty() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = append(c.secrets, SecretFile{Path: path, Report: report})
}

// withoutDeclared returns the content of a file as it is stored.
func (c *walker) withoutDeclared(content []byte) []byte {
	found := c.opt.Screen.Declared.Find(content)
	if len(found) == 0 {
		return content
	}
	content = slices.Clone(content)
	for _, r := range found {
		clear(content[r.Off:r.End()])
	}
	return content
}

// declaredIn reports whether a declared secret stands in text. What it is, is noted as
// left out for it.
func (c *walker) declaredIn(text, path, why string) bool {
	if c.opt.Screen.Declared == nil || !c.opt.Screen.Declared.Holds(text) {
		return false
	}
	c.omit(&c.secret, path, why)
	return true
}

const hidesBit = 0x80

// encode returns what was found as bytes, nil for nothing:
//
//	reason (1), 128 more for attributes that are left out, then as uvarints: the length of the packed ranges, and these; findings, of
//	each the line, the length of the kind and the kind; more
func (s *screened) encode() []byte {
	if s.empty() {
		return nil
	}
	sized := func(b, what []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(what))), what...) }
	first := byte(s.left)
	if s.hides {
		first |= hidesBit
	}
	b := sized([]byte{first}, secrets.PackRanges(s.report.Redacted))
	b = binary.AppendUvarint(b, uint64(len(s.report.Findings)))
	for _, f := range s.report.Findings {
		b = sized(binary.AppendUvarint(b, uint64(f.Line)), []byte(f.Kind))
	}
	return binary.AppendUvarint(b, uint64(s.report.More))
}

// decodeScreened is the inverse of encode. It fails with [cas.ErrCorrupt].
func decodeScreened(b []byte) (s screened, err error) {
	if len(b) == 0 {
		return s, nil
	}
	bad := false
	number := func() int64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > math.MaxInt64 {
			bad, b = true, nil
			return 0
		}
		b = b[size:]
		return int64(n)
	}
	sized := func() []byte {
		size := number()
		if size > int64(len(b)) {
			bad, b = true, nil
			return nil
		}
		what := b[:size]
		b = b[size:]
		return what
	}
	s.left, s.hides, b = reason(b[0]&^hidesBit), b[0]&hidesBit != 0, b[1:]
	s.report.Redacted, err = secrets.UnpackRanges(sized(), secrets.MaxRanges)
	for n := number(); n > 0 && !bad; n-- {
		s.report.Findings = append(s.report.Findings, secrets.Finding{Line: number(), Kind: string(sized())})
	}
	s.report.More = int(number())
	if err != nil || bad || len(b) > 0 || s.left > looksLike || s.empty() {
		return screened{}, cas.ErrCorrupt
	}
	return s, nil
}
