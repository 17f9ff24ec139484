package secrets

// A Search counts where declared values stand in a content that comes in pieces, also
// across their borders. The zero Search of a set is made by [Set.Search]; it is not for
// concurrent use.
type Search struct {
	set    *Set
	window []byte // bytes that the next piece may go on with
	base   int64  // where the window begins in the content
	end    int64  // of the last range that was counted
	count  int
}

// Search returns a search for the set's values.
func (s *Set) Search() *Search { return &Search{set: s} }

// Write takes the next piece. It never fails.
func (s *Search) Write(piece []byte) (int, error) {
	if s.set == nil || len(piece) == 0 {
		return len(piece), nil
	}
	window := piece
	if len(s.window) > 0 {
		s.window = append(s.window, piece...)
		window = s.window
	}
	// A value that begins in what is kept may go on in the next piece, and make one
	// range of several.
	keep := min(len(window), s.set.match.longest-1)
	s.take(window, s.base+int64(len(window)-keep))
	s.base += int64(len(window) - keep)
	s.window = append(s.window[:0], window[len(window)-keep:]...)
	return len(piece), nil
}

// Skip takes zero bytes.
func (s *Search) Skip(n int64) {
	if s.set == nil {
		return
	}
	border := int64(s.set.match.longest)
	if n > 2*border {
		_, _ = s.Write(make([]byte, border))
		s.finish()
		s.base += n - 2*border
		n = border
	}
	_, _ = s.Write(make([]byte, n))
}

// finish counts what is kept: nothing goes on in what follows.
func (s *Search) finish() {
	s.take(s.window, s.base+int64(len(s.window)))
	s.base += int64(len(s.window))
	s.window = s.window[:0]
}

// Count ends the content and returns how many ranges of it declared values took.
func (s *Search) Count() int {
	s.finish()
	return s.count
}

// take counts the ranges of a window that begin before a place in the content.
func (s *Search) take(window []byte, before int64) {
	for _, r := range s.set.Find(window) {
		r.Off += s.base
		switch {
		case r.Off >= before:
			return
		case r.Off >= s.end:
			s.count++
		}
		s.end = max(s.end, r.End())
	}
}

// Count returns how many ranges of data declared values take.
func (s *Set) Count(data []byte) int { return len(s.Find(data)) }

// Longest is how many bytes of a content a declared value takes at most, in whatever
// spelling.
func (s *Set) Longest() int {
	if s == nil {
		return 0
	}
	return s.match.longest
}
