package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// stdout is where results go.
var stdout = &resultWriter{}

// A resultWriter writes to the process's stdout and keeps the first error, for those
// who print through something that does not hand it down.
type resultWriter struct{ err error }

// Write implements [io.Writer].
func (o *resultWriter) Write(b []byte) (int, error) {
	n, err := masked{os.Stdout}.Write(b)
	switch {
	case errors.Is(err, unix.EPIPE):
		err = &codeError{code: exitPipe, err: err}
	case err != nil:
		err = &codeError{code: exitTrouble, err: err}
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// printMade prints what a verb has made: its id, or all of it as JSON. If that
// fails, it is there all the same, and the error says so.
func printMade(c *cli.Context, what, id string, doc any) error {
	return printMadeTo(stdout, c, what, id, doc)
}

func printMadeTo(w io.Writer, c *cli.Context, what, id string, doc any) (err error) {
	if c.Bool("json") {
		err = writeJSON(w, doc)
	} else {
		_, err = fmt.Fprintln(w, id)
	}
	if err != nil {
		return &codeError{code: exitTrouble, err: fmt.Errorf("%s %s was stored, but cannot be printed: %w", what, quote(id), err)}
	}
	return nil
}

// printJSON prints one document on a line of stdout.
func printJSON(doc any) error { return writeJSON(stdout, doc) }

// writeJSON writes one document as a line.
func writeJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

// printWhole prints what fn writes once all of it is there, so that a verb that
// fails prints nothing. What is longer than can be held back is printed as it comes.
func printWhole(fn func(w io.Writer) error) error {
	h := held{out: stdout, most: heldBack}
	if err := fn(&h); err != nil {
		return err
	}
	return h.flush()
}

// heldBack bounds what is held back, in bytes: a few objects can stand for a tree that
// takes longer to list than anybody waits.
const heldBack = 64 << 20

// held is a writer that keeps what it is given until there is more than most of it.
type held struct {
	out  io.Writer
	most int
	buf  bytes.Buffer
}

// Write implements [io.Writer].
func (h *held) Write(b []byte) (int, error) {
	if h.buf.Len()+len(b) > h.most {
		if err := h.flush(); err != nil {
			return 0, err
		}
		h.most = 1 << 20 // from now on only to write seldom
	}
	return h.buf.Write(b)
}

func (h *held) flush() error {
	_, err := h.buf.WriteTo(h.out)
	return err
}

// printContent prints a file's content. If that fails before so much of it was
// read that it cannot be held back, nothing is printed.
func printContent(fn func(w io.Writer) error) error {
	out := bufio.NewWriterSize(stdout, 1<<20)
	if err := fn(out); err != nil {
		return err
	}
	return out.Flush()
}

// zeroFlag is for scripts: names in any bytes.
var zeroFlag = &cli.BoolFlag{Name: "z", Usage: "print names as they are, each ended by a NUL byte"}

// summary prints a line on stderr unless it is not wanted.
func summary(c *cli.Context, format string, args ...any) {
	if !c.Bool("quiet") {
		fmt.Fprintf(stderr, format+"\n", args...)
	}
}

// warn prints a warning on stderr.
func warn(format string, args ...any) { fmt.Fprintf(stderr, "warning: "+format+"\n", args...) }

// table prints rows in columns.
func table(head string, rows func(row func(format string, args ...any))) error {
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, head)
	rows(func(format string, args ...any) { fmt.Fprintf(tw, format+"\n", args...) })
	return tw.Flush()
}

// size shows a number of bytes.
func size[T int | int64 | uint64](n T) string { return humanize.IBytes(uint64(n)) }

// when shows a time as people read it.
func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// plural counts things.
func plural[T int | int64 | uint64](n T, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + many
}

// printLines prints one document a line.
func printLines[T any](docs []T) error {
	return printWhole(func(w io.Writer) error {
		for _, doc := range docs {
			if err := writeJSON(w, doc); err != nil {
				return err
			}
		}
		return nil
	})
}

// printNames prints names as they are, each ended by NUL.
func printNames[T any](of []T, name func(T) string) error {
	return printWhole(func(w io.Writer) error {
		for _, v := range of {
			if _, err := io.WriteString(w, name(v)+"\x00"); err != nil {
				return err
			}
		}
		return nil
	})
}

// quoteOr shows an id, or a dash where there is none.
func quoteOr(s string) string {
	if s == "" {
		return "-"
	}
	return quote(s)
}

// inLine shows a sentence as it is, and quoted where it holds what would not stay in
// its line, or tell the terminal what to do.
func inLine(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(s)
	}
	return s
}

// quote shows a path or an id as people can read it.
func quote(s string) string { return tree.Quote(s) }
