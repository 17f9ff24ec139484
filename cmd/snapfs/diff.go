package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// diff's own exit codes, as those of diff(1).
const (
	exitDiffer      = 1
	exitDiffTrouble = 2
)

var diffCommand = &cli.Command{
	Name:      "diff",
	Usage:     "compare two checkpoints: A added, D deleted, M content, m metadata, T kind",
	ArgsUsage: "REF REF [PATH]...",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "owner", Usage: "owners count too"},
		zeroFlag,
	},
	Action: func(c *cli.Context) error {
		err := arguments(c, 2, maxArguments)
		if err == nil {
			err = withStore(false, diff)(c)
		}
		var coded *codeError
		if err == nil || (errors.As(err, &coded) && coded.err == nil) {
			return err
		}
		return &codeError{code: exitDiffTrouble, err: err}
	},
}

// changeDoc is a difference in JSON.
type changeDoc struct {
	Op string `json:"op"`
	snapshot.Path
}

func diff(c *cli.Context, store *snapshot.Store) error {
	refA, refB, paths := c.Args().Get(0), c.Args().Get(1), c.Args().Slice()[2:]
	differ := false
	err := printWhole(func(w io.Writer) error {
		return store.Diff(c.Context, refA, refB, snapshot.DiffOptions{Owner: c.Bool("owner"), Paths: paths}, func(ch tree.Change) error {
			differ = true
			var err error
			switch {
			case c.Bool("json"):
				err = writeJSON(w, changeDoc{Op: ch.Op.String(), Path: snapshot.NewPath(ch.Path)})
			case c.Bool("z"):
				_, err = fmt.Fprintf(w, "%s %s\x00", ch.Op, ch.Path)
			default:
				_, err = fmt.Fprintf(w, "%s %s\n", ch.Op, quote(ch.Path))
			}
			return err
		})
	})
	if err == nil && differ {
		return exit(exitDiffer)
	}
	return err
}
