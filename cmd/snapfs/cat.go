package main

import (
	"io"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var catCommand = &cli.Command{
	Name:      "cat",
	Usage:     "print a file of a checkpoint",
	ArgsUsage: "REF PATH",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			return printContent(func(w io.Writer) error { return store.Cat(c.Context, c.Args().Get(0), c.Args().Get(1), w) })
		})(c)
	},
}
