package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var forkCommand = &cli.Command{
	Name:      "fork",
	Usage:     "start a new thread with the content of a checkpoint and print its first checkpoint's id",
	ArgsUsage: "REF THREAD",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "id", Usage: "the new checkpoint's `ID`; made from the time if not given"},
		leaseFlag,
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			cp, err := store.Fork(c.Context, c.Args().Get(0), snapshot.ForkOptions{Thread: c.Args().Get(1), ID: c.String("id"), Lease: c.String(leaseFlag.Name)})
			if err != nil {
				return err
			}
			return printMade(c, "checkpoint", cp.ID, cp)
		})(c)
	},
}
