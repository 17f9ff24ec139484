package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// statDoc is a difference with how much of it there is, in JSON.
type statDoc struct {
	changeDoc
	Insertions int    `json:"insertions"` // lines
	Deletions  int    `json:"deletions"`
	Binary     bool   `json:"binary,omitempty"` // lines are not counted
	OldSize    uint64 `json:"oldSize"`          // bytes of the file
	NewSize    uint64 `json:"newSize"`
}

// statSum adds up all differences. It is the last document.
type statSum struct {
	Paths      int `json:"paths"`
	Insertions int `json:"insertions"`
	Deletions  int `json:"deletions"`
}

// printStat prints a difference with how much of it there is.
func printStat(c *cli.Context, w io.Writer, compared *snapshot.Comparison, ch tree.Change, sum *statSum) error {
	lines, err := compared.Lines(c.Context, ch)
	if err != nil {
		return err
	}
	sum.Paths++
	sum.Insertions += lines.Inserted
	sum.Deletions += lines.Deleted
	old, new := fileSize(ch.Old), fileSize(ch.New)
	if c.Bool("json") {
		return writeJSON(w, statDoc{newChange(ch, c.Bool("owner")), lines.Inserted, lines.Deleted, lines.Binary, old, new})
	}
	what := fmt.Sprintf("+%d -%d", lines.Inserted, lines.Deleted)
	switch {
	case lines.Binary:
		what = fmt.Sprintf("binary, %d -> %d bytes", old, new)
	case isDir(ch.Old) && isDir(ch.New):
		what = "directory"
	}
	_, err = fmt.Fprintf(w, "%s %s | %s\n", ch.Op, changedPath(ch), what)
	return err
}

// isDir reports whether an entry, if there is one, is a directory.
func isDir(e *tree.Entry) bool { return e == nil || e.Kind == tree.Dir }

// fileSize is the length of a file in bytes, 0 of anything else.
func fileSize(e *tree.Entry) uint64 {
	if e == nil || e.Kind != tree.File {
		return 0
	}
	return e.Size
}

func (s *statSum) print(c *cli.Context, w io.Writer) error {
	if c.Bool("json") {
		return writeJSON(w, s)
	}
	_, err := fmt.Fprintf(w, "%s changed, %s, %s\n", plural(s.Paths, "path", "paths"), plural(s.Insertions, "insertion(+)", "insertions(+)"), plural(s.Deletions, "deletion(-)", "deletions(-)"))
	return err
}
