package secrets

import (
	"errors"
	"fmt"
	"io"
)

// JSON returns a reader of the JSON documents that r yields, one after the other, without
// the screen's declared values: they are looked for inside decoded strings, the keys of
// objects too, and each of their bytes becomes a star; a number that has one becomes a
// string of stars, and so do all strings and numbers of which a value takes in more than
// one, or the quotes. All other bytes stay as they are. Then the text is looked through as
// by [Screen.Reader].
//
// What r yields must be valid JSON. Reading fails with [ErrUnusable] when a value takes in
// nothing but what stands between strings and numbers, where nothing can be overwritten:
// no byte of it was returned then. The longest string is held in memory.
func (s Screen) JSON(r io.Reader, stop func(kind string) bool) *JSONReader {
	j := &JSONReader{}
	if s.Set != nil {
		j.src = &jsonStars{src: r, piece: make([]byte, jsonPiece)}
		j.src.pass = jsonPass{set: s.Set, add: func(r Range) { j.redacted = append(j.redacted, r) }}
		r = j.src
	}
	s.Whole = true // what is found now cannot be overwritten
	j.screened = s.Reader(r, stop)
	return j
}

// A JSONReader is made by [Screen.JSON].
type JSONReader struct {
	src      *jsonStars // nil: there are no values
	redacted []Range
	screened *Reader
}

// Read implements [io.Reader].
func (r *JSONReader) Read(b []byte) (int, error) {
	n, err := r.screened.Read(b)
	if errors.Is(err, ErrBinary) {
		err = fmt.Errorf("a declared secret consists of the signs between strings: %w", ErrUnusable)
	}
	return n, err
}

// Report returns what was found so far; of a whole content after [io.EOF].
func (r *JSONReader) Report() Report {
	report := r.screened.Report()
	report.Redacted = r.redacted
	return report
}

// Close gives the reader's memory to others. It does not close what it reads from.
func (r *JSONReader) Close() { r.screened.Close() }

// jsonPiece is how much of a document is looked at in one go, in bytes.
const jsonPiece = 128 << 10

// jsonStars reads through a jsonPass.
type jsonStars struct {
	pass  jsonPass
	src   io.Reader
	piece []byte
	part  []byte // not returned yet
	ended bool
}

// Read implements [io.Reader].
func (j *jsonStars) Read(b []byte) (int, error) {
	for len(j.part) == 0 && !j.ended {
		n, err := j.src.Read(j.piece)
		if err != nil && err != io.EOF {
			return 0, err
		}
		j.ended = err == io.EOF
		j.part = j.pass.write(j.piece[:n], j.ended)
	}
	if len(j.part) == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	n := copy(b, j.part)
	j.part = j.part[n:]
	return n, nil
}

// A JSONSearch counts where declared values stand in a conversation that comes in pieces:
// in the strings and keys of JSON documents as these are meant, or in the bytes, whichever
// are more. What is no JSON counts as bytes. It is made by [Set.SearchJSON] and is not for
// concurrent use.
type JSONSearch struct {
	bytes *Search
	check JSONCheck
	pass  *jsonPass // nil: it is no JSON
	meant int
	left  *Search // of what nothing can overwrite
}

// SearchJSON returns a search for the set's values.
func (s *Set) SearchJSON() *JSONSearch {
	j := &JSONSearch{bytes: s.Search(), left: s.Search()}
	if s != nil {
		j.pass = &jsonPass{set: s, add: func(Range) { j.meant++ }}
	}
	return j
}

// Write takes the next piece. It never fails.
func (j *JSONSearch) Write(piece []byte) (int, error) {
	_, _ = j.bytes.Write(piece)
	for rest := piece; len(rest) > 0 && j.pass != nil; {
		n := min(len(rest), jsonPiece)
		if _, err := j.check.Write(rest[:n]); err != nil {
			j.pass = nil
			break
		}
		_, _ = j.left.Write(j.pass.write(rest[:n], false))
		rest = rest[n:]
	}
	return len(piece), nil
}

// Count ends the content and returns how many ranges of it declared values took.
func (j *JSONSearch) Count() int {
	n := j.bytes.Count()
	if j.pass == nil || j.check.End() != nil {
		return n
	}
	_, _ = j.left.Write(j.pass.write(nil, true))
	j.pass = nil
	if j.left.Count() > 0 {
		return n
	}
	return max(n, j.meant)
}
