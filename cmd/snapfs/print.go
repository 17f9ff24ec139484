package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/tree"
)

// printJSON prints one document on a line of stdout.
func printJSON(doc any) error { return writeJSON(os.Stdout, doc) }

// writeJSON writes one document as a line.
func writeJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

// printWhole prints what fn writes once all of it is there, so that a verb that
// fails prints nothing.
func printWhole(fn func(w io.Writer) error) error {
	var b bytes.Buffer
	if err := fn(&b); err != nil {
		return err
	}
	_, err := b.WriteTo(os.Stdout)
	return err
}

// printContent prints a file's content. If that fails before so much of it was
// read that it cannot be held back, nothing is printed.
func printContent(fn func(w io.Writer) error) error {
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
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
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// table prints rows in columns.
func table(w io.Writer, head string, rows func(row func(format string, args ...any))) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
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

// quote shows a path or an id as people can read it.
func quote(s string) string { return tree.Quote(s) }
