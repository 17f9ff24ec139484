package main

import (
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
func printJSON(doc any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

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
	for _, doc := range docs {
		if err := printJSON(doc); err != nil {
			return err
		}
	}
	return nil
}

// quote shows a path or an id as people can read it.
func quote(s string) string { return tree.Quote(s) }
