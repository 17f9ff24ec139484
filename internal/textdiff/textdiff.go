// Package textdiff compares two texts line by line and writes what differs as the hunks
// of a unified diff.
//
// The shortest script of up to a hundred edited lines is found by the engine of gopls.
// That one gives up beyond it, so what differs more is cut at lines that both texts have
// once ("patience diff", as of Bram Cohen), and what is left is looked at again. Both
// times and memory are bounded by the texts' lengths; with many changes between lines
// that all repeat, the script is not the shortest.
package textdiff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// Head is how many bytes of a content tell whether it is text.
const Head = 8000

// Binary reports whether a content that begins so is no text: a NUL byte is in its first
// [Head] bytes, as git has it.
func Binary(head string) bool { return strings.IndexByte(head[:min(Head, len(head))], 0) >= 0 }

// An Edit replaces lines From to To of the old text, counted from 0 and without the last,
// by the lines NewFrom to NewTo of the new one.
type Edit struct{ From, To, NewFrom, NewTo int }

// A Diff is the difference of two texts.
type Diff struct {
	old, new lines
	Edits    []Edit // in order, with lines between them that are equal
}

// Compare returns the difference of two texts.
func Compare(old, new string) *Diff {
	d := &Diff{old: cut(old), new: cut(new)}
	n, m := d.old.len(), d.new.len()
	head := 0
	for head < min(n, m) && d.old.at(head) == d.new.at(head) {
		head++
	}
	tail := 0
	for tail < min(n, m)-head && d.old.at(n-1-tail) == d.new.at(m-1-tail) {
		tail++
	}
	ids := map[string]rune{}
	number := func(l lines, to int) []rune {
		list := make([]rune, 0, to-head)
		for i := head; i < to; i++ {
			line := l.at(i)
			id, ok := ids[line]
			if !ok {
				id = rune(len(ids))
				ids[line] = id
			}
			list = append(list, id)
		}
		return list
	}
	s := script{a: number(d.old, n-tail), b: number(d.new, m-tail)}
	s.region(0, len(s.a), 0, len(s.b), 0)
	for _, e := range s.edits {
		d.Edits = append(d.Edits, Edit{e.From + head, e.To + head, e.NewFrom + head, e.NewTo + head})
	}
	return d
}

// Counts returns how many lines are in the new text alone, and how many in the old one.
func (d *Diff) Counts() (inserted, deleted int) {
	for _, e := range d.Edits {
		inserted += e.NewTo - e.NewFrom
		deleted += e.To - e.From
	}
	return inserted, deleted
}

// Lines counts the lines of a text. What is behind the last newline is one, too.
func Lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// lines is a text that is cut into lines, each with its newline.
type lines struct {
	text string
	ends []int32
}

func cut(text string) lines {
	l := lines{text: text, ends: make([]int32, 0, Lines(text))}
	for at := 0; at < len(text); {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			n = len(text) - at - 1
		}
		at += n + 1
		l.ends = append(l.ends, int32(at))
	}
	return l
}

func (l lines) len() int { return len(l.ends) }

func (l lines) at(i int) string {
	from := int32(0)
	if i > 0 {
		from = l.ends[i-1]
	}
	return l.text[from:l.ends[i]]
}

// A script is made of two sequences of numbered lines.
type script struct {
	a, b  []rune
	edits []Edit
}

// shortest is up to how many edited lines the engine finds the shortest script.
const shortest = 100

// deepest bounds how often a stretch is looked at again.
const deepest = 64

// region adds the edits of a stretch of both texts.
func (s *script) region(a0, a1, b0, b1, depth int) {
	for a0 < a1 && b0 < b1 && s.a[a0] == s.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && s.a[a1-1] == s.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 || b0 == b1 {
		s.add(Edit{a0, a1, b0, b1})
		return
	}
	found := lcs.DiffRunes(s.a[a0:a1], s.b[b0:b1])
	edited := 0
	for _, f := range found {
		edited += f.End - f.Start + f.ReplEnd - f.ReplStart
	}
	var stretches []Edit // that may have equal lines in them
	again := edited > shortest && depth < deepest
	if again {
		stretches = s.between(s.anchors(a0, a1, b0, b1), a0, a1, b0, b1)
	}
	if len(stretches) < 2 {
		stretches = stretches[:0]
		for _, f := range found {
			stretches = append(stretches, Edit{a0 + f.Start, a0 + f.End, b0 + f.ReplStart, b0 + f.ReplEnd})
		}
		again = again && (len(stretches) != 1 || stretches[0] != Edit{a0, a1, b0, b1})
	}
	for _, e := range stretches {
		if again {
			s.region(e.From, e.To, e.NewFrom, e.NewTo, depth+1)
		} else {
			s.add(e)
		}
	}
}

// add appends an edit, to the one before if that ends where it begins.
func (s *script) add(e Edit) {
	if e.From == e.To && e.NewFrom == e.NewTo {
		return
	}
	if n := len(s.edits); n > 0 && s.edits[n-1].To == e.From && s.edits[n-1].NewTo == e.NewFrom {
		s.edits[n-1].To, s.edits[n-1].NewTo = e.To, e.NewTo
		return
	}
	s.edits = append(s.edits, e)
}

// An anchor is a line that both texts have once.
type anchor struct{ a, b int }

// between returns the stretches of a region that lie between anchors.
func (s *script) between(anchors []anchor, a0, a1, b0, b1 int) []Edit {
	var list []Edit
	for _, at := range append(anchors, anchor{a1, b1}) {
		list = append(list, Edit{a0, at.a, b0, at.b})
		a0, b0 = at.a+1, at.b+1
	}
	return list
}

// anchors returns as many lines as can be that stand once in both stretches, in the same
// order.
func (s *script) anchors(a0, a1, b0, b1 int) []anchor {
	type count struct{ inA, inB, b int32 }
	counts := map[rune]count{}
	for _, id := range s.a[a0:a1] {
		c := counts[id]
		c.inA++
		counts[id] = c
	}
	for i, id := range s.b[b0:b1] {
		if c, ok := counts[id]; ok {
			c.inB++
			c.b = int32(b0 + i)
			counts[id] = c
		}
	}
	// The longest rising sequence: lowest[n] is the one of n+1 anchors that ends first.
	type link struct {
		anchor
		before int32
	}
	var all []link
	var lowest []int32
	for i, id := range s.a[a0:a1] {
		c := counts[id]
		if c.inA != 1 || c.inB != 1 {
			continue
		}
		at, _ := slices.BinarySearchFunc(lowest, int(c.b), func(l int32, b int) int { return cmp.Compare(all[l].b, b) })
		l := link{anchor{a0 + i, int(c.b)}, -1}
		if at > 0 {
			l.before = lowest[at-1]
		}
		if at == len(lowest) {
			lowest = append(lowest, 0)
		}
		lowest[at] = int32(len(all))
		all = append(all, l)
	}
	if len(lowest) == 0 {
		return nil
	}
	best := make([]anchor, len(lowest))
	for i, l := len(lowest)-1, lowest[len(lowest)-1]; i >= 0; i-- {
		best[i] = all[l].anchor
		l = all[l].before
	}
	return best
}
