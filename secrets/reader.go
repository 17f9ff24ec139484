package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

var (
	// ErrBinary: a declared value stands in a content that is not text. Zero bytes in
	// its place would make something else of it.
	ErrBinary = errors.New("a declared secret stands in a binary file")
	// ErrTooMany: a content has more than [MaxRanges] declared values.
	ErrTooMany = errors.New("declared secrets stand in too many places")
)

// MaxRanges is in how many places of one content declared values can be overwritten.
const MaxRanges = 1 << 16

// A FoundError ends the reading of a content that has what looks like a secret.
type FoundError struct{ Finding }

// Error names the kind and the line.
func (e *FoundError) Error() string {
	if e.Line == 0 {
		return "has what looks like a secret: " + e.Kind
	}
	return fmt.Sprintf("has what looks like a secret: %s in line %d", e.Kind, e.Line)
}

// A Screen is what contents are looked through for.
type Screen struct {
	Set    *Set // declared values, which are overwritten with zero bytes
	Detect bool // also for what looks like a secret
	Whole  bool // all of it has to be kept, as if it were no text: see [ErrBinary]
}

// Idle reports whether there is nothing to look for.
func (s Screen) Idle() bool { return s.Set == nil && !s.Detect }

// Screen looks through a whole content and overwrites the declared values in it. stop
// says which kinds of findings end that with a [*FoundError]; nil: none. After an error
// the report has what led to it, and data must not be used.
func (s Screen) Screen(data []byte, stop func(kind string) bool) (Report, error) {
	p := pass{screen: s, stop: stop, buf: data, n: len(data)}
	err := p.step(true)
	return p.report, err
}

// Reader returns a reader of what r yields, as it is after [Screen.Screen]: no byte is
// returned before it is known to be clean. If r can skip holes, the reader can.
func (s Screen) Reader(r io.Reader, stop func(kind string) bool) *Reader {
	holes, _ := r.(holeSkipper)
	return &Reader{src: r, holes: holes, pass: pass{screen: s, stop: stop}}
}

// holeSkipper is cas.HoleSkipper.
type holeSkipper interface{ SkipHole() (int64, error) }

// pass is one way through a content. Of buf[:n], the first bytes up to looked are as they
// may be returned; those up to clean have no declared values any more; the rest is raw.
type pass struct {
	screen Screen
	stop   func(kind string) bool
	report Report

	buf              []byte
	n, clean, looked int
	base             int64 // offset of buf in the content
	known, binary    bool  // whether it is text; as long as that is not known, buf has its beginning
	scanner          Scanner
}

// step decides about as much of the buffer as can be: all of it, if the content ends
// there or zeros follow.
func (p *pass) step(end bool) error {
	if err := p.overwrite(end); err != nil {
		return err
	}
	return p.detect(end)
}

// overwrite finds the declared values that begin up to where all that begins stands in
// the buffer whole.
func (p *pass) overwrite(end bool) error {
	set := p.screen.Set
	if set == nil {
		p.clean = p.n
		return nil
	}
	from, upto := p.clean, p.n
	if !end {
		upto = max(from, p.n-(set.match.longest-1))
	}
	list := p.report.Redacted
	first := max(len(list)-1, 0) // what was found last may reach behind clean
	set.match.find(p.buf[from:p.n], upto-from, func(off, size int) {
		list = appendRange(list, Range{p.base + int64(from+off), int64(size)})
	})
	p.report.Redacted, p.clean = list, upto
	switch {
	case len(list) > 0 && (p.screen.Whole || p.isBinary()):
		return ErrBinary
	case len(list) > MaxRanges:
		return ErrTooMany
	}
	for _, r := range list[first:] {
		begin, end := max(r.Off-p.base, int64(from)), min(r.End()-p.base, int64(upto))
		if begin < end {
			clear(p.buf[begin:end])
		}
	}
	return nil
}

// isBinary reports whether the content is no text.
func (p *pass) isBinary() bool {
	if !p.known {
		p.known, p.binary = true, Binary(p.buf[:p.n])
	}
	return p.binary
}

// detect looks for what else may be a secret in what is clean.
func (p *pass) detect(end bool) error {
	if !p.screen.Detect {
		p.looked = p.clean
		return nil
	}
	upto := p.clean
	if !end {
		upto = max(p.looked, p.clean-ScanAhead)
	}
	var err error
	p.scanner.Scan(p.buf[p.looked:p.clean], upto-p.looked, func(_ int, f Finding) bool {
		if p.isBinary() {
			f.Line = 0
		}
		if p.report.Count(f.Kind) == MaxFindings {
			p.report.More++
		} else {
			p.report.Findings = append(p.report.Findings, f)
		}
		if p.stop != nil && p.stop(f.Kind) {
			err = &FoundError{f}
		}
		return err == nil
	})
	p.looked = upto
	return err
}

// A Reader is made by [Screen.Reader].
type Reader struct {
	pass
	src   io.Reader
	holes holeSkipper // nil: it knows of none
	out   int         // bytes of buf that were returned
	hole  int64       // zeros that follow what the buffer has
	begun bool        // something was read
	ended bool        // src has nothing more
	err   error       // of src or of the pass; nothing is returned any more
	own   *[]byte
}

// Report returns what was found so far; of a whole content after [io.EOF].
func (r *Reader) Report() Report { return r.report }

// Close gives the reader's memory to others. It does not close what it reads from.
func (r *Reader) Close() {
	if r.own != nil {
		clear(*r.own)
		windows.Put(r.own)
		r.own, r.buf = nil, nil
	}
	r.err = errClosed
}

var errClosed = errors.New("read of a closed reader")

// stretch is how many bytes a reader looks at in one go.
const stretch = 256 << 10

var windows = sync.Pool{New: func() any { b := make([]byte, stretch); return &b }}

// Read implements [io.Reader].
func (r *Reader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := r.ready(); err != nil {
		return 0, err
	}
	if n := copy(b, r.buf[r.out:r.looked]); n > 0 {
		r.out += n
		return n, nil
	}
	if r.hole > 0 {
		n := int(min(r.hole, int64(len(b))))
		clear(b[:n])
		r.hole -= int64(n)
		r.base += int64(n)
		return n, nil
	}
	return 0, io.EOF
}

// SkipHole implements cas.HoleSkipper.
func (r *Reader) SkipHole() (int64, error) {
	if r.holes == nil {
		return 0, nil
	}
	if err := r.ready(); err != nil {
		return 0, err
	}
	if r.out < r.looked {
		return 0, nil
	}
	n := r.hole
	if !r.ended {
		n -= n % HoleBlock
	}
	r.hole -= n
	r.base += n
	return n, nil
}

// HoleBlock is cas.ZeroBlock: the granularity of holes, in bytes.
const HoleBlock = 64 << 10

// ready sees to it that there is something to return, unless the content ends.
func (r *Reader) ready() error {
	for r.err == nil && r.out == r.looked && r.hole == 0 && !(r.ended && r.looked == r.n) {
		r.err = r.fill()
	}
	return r.err
}

// fill reads on, and decides about what it read.
func (r *Reader) fill() error {
	if r.own == nil {
		r.own = windows.Get().(*[]byte)
		if set := r.screen.Set; set != nil && len(*r.own) < 4*set.match.longest {
			*r.own = make([]byte, 4*set.match.longest)
		}
		r.buf = *r.own
	}
	if r.n > len(r.buf)/2 || r.out == r.n { // what was returned makes room
		copy(r.buf, r.buf[r.out:r.n])
		r.base += int64(r.out)
		r.n, r.clean, r.looked, r.out = r.n-r.out, r.clean-r.out, r.looked-r.out, 0
	}
	for r.n < len(r.buf) && !r.ended {
		if r.holes != nil {
			hole, err := r.holes.SkipHole()
			if err != nil {
				return err
			}
			if hole > 0 {
				r.hole = hole
				break
			}
		}
		n, err := r.src.Read(r.buf[r.n:min(len(r.buf), r.n+stretch/2)])
		r.n += n
		if err == io.EOF {
			r.ended = true
		} else if err != nil {
			return err
		}
		if r.begun || r.n >= binaryHead {
			break
		}
	}
	if !r.begun && !r.ended { // of a content that is there whole it is asked only where it matters
		r.isBinary()
	}
	r.begun = true
	err := r.step(r.ended || r.hole > 0)
	if r.hole > 0 {
		r.scanner.Scan([]byte{0}, 1, func(int, Finding) bool { return true })
	}
	return err
}

// binaryHead is how much of a content's beginning tells whether it is text, in bytes.
const binaryHead = 8 << 10

// Binary reports whether what begins with head is no text: it has, in its first 8 KiB,
// a control byte that text has not. Eight zero bytes or more in a row do not count: they
// stand where a declared secret was.
func Binary(head []byte) bool {
	head = head[:min(len(head), binaryHead)]
	for i := 0; i < len(head); i++ {
		c := head[i]
		if c >= ' ' || bytes.IndexByte([]byte("\t\n\v\f\r\b\x1b"), c) >= 0 {
			continue
		}
		if c != 0 {
			return true
		}
		run := len(head[i:]) - len(bytes.TrimLeft(head[i:], "\x00"))
		if run < MinLength && i+run < len(head) {
			return true
		}
		i += run - 1
	}
	return false
}
