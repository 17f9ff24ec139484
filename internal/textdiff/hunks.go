package textdiff

import (
	"bufio"
	"io"
	"strconv"
)

// context is how many equal lines stand around what differs.
const context = 3

// Hunks writes the difference as the hunks of a unified diff, which patch and git apply
// take. Equal texts have none.
func (d *Diff) Hunks(out io.Writer) error {
	w := bufio.NewWriter(out)
	for i := 0; i < len(d.Edits); {
		last := i + 1
		for last < len(d.Edits) && d.Edits[last].From-d.Edits[last-1].To <= 2*context {
			last++
		}
		d.hunk(w, d.Edits[i:last])
		i = last
	}
	return w.Flush()
}

// hunk writes one hunk. The writer keeps the first error.
func (d *Diff) hunk(w *bufio.Writer, edits []Edit) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(context, first.From)
	after := min(context, d.old.len()-last.To)
	from, to := first.From-before, last.To+after
	newFrom, newTo := first.NewFrom-before, last.NewTo+after
	w.WriteString("@@ -" + span(from, to) + " +" + span(newFrom, newTo) + " @@\n")
	at := from
	for _, e := range edits {
		d.old.write(w, ' ', at, e.From)
		d.old.write(w, '-', e.From, e.To)
		d.new.write(w, '+', e.NewFrom, e.NewTo)
		at = e.To
	}
	d.old.write(w, ' ', at, to)
}

// span is a stretch of lines as hunks name it: an empty one by the line before it.
func span(from, to int) string {
	switch to - from {
	case 0:
		return strconv.Itoa(from) + ",0"
	case 1:
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from+1) + "," + strconv.Itoa(to-from)
}

// write writes a stretch of lines, each behind a mark.
func (l lines) write(w *bufio.Writer, mark byte, from, to int) {
	for i := from; i < to; i++ {
		line := l.at(i)
		w.WriteByte(mark)
		w.WriteString(line)
		if line[len(line)-1] != '\n' {
			w.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
