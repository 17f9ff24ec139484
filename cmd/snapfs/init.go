package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var initCommand = &cli.Command{
	Name:  "init",
	Usage: "create the store; fine if there is one",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		// Opening it shows that it works.
		return withStore(true, func(*cli.Context, *snapshot.Store) error { return nil })(c)
	},
}
