package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

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
	ArgsUsage: "REF REF",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "owner", Usage: "owners count too"},
	},
	Action: func(c *cli.Context) error {
		err := arguments(c, 2, 2)
		if err == nil {
			err = withStore(false, diff)(c)
		}
		var coded *codeError
		if err == nil || errors.As(err, &coded) {
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
	out := bufio.NewWriter(os.Stdout)
	differ := false
	err := store.Diff(c.Context, c.Args().Get(0), c.Args().Get(1), snapshot.DiffOptions{Owner: c.Bool("owner")}, func(ch tree.Change) error {
		differ = true
		if c.Bool("json") {
			return printJSON(changeDoc{Op: ch.Op.String(), Path: snapshot.NewPath(ch.Path)})
		}
		_, err := fmt.Fprintf(out, "%s %s\n", ch.Op, quote(ch.Path))
		return err
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if differ {
		return exit(exitDiffer)
	}
	return nil
}
