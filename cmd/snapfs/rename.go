package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var renameCommand = &cli.Command{
	Name:      "rename",
	Usage:     "give a checkpoint a name, or take it away; the thread's latest stays what it is",
	ArgsUsage: "REF NAME | --clear REF",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "clear", Usage: "take its name away"},
	},
	Action: func(c *cli.Context) error {
		want := 2
		if c.Bool("clear") {
			want = 1
		}
		if err := arguments(c, want, want); err != nil {
			return err
		}
		ref, name := c.Args().Get(0), c.Args().Get(1)
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			_, err := store.Rename(c.Context, ref, name)
			return err
		})(c)
	},
}
