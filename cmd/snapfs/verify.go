package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var verifyCommand = &cli.Command{
	Name:      "verify",
	Usage:     "look for damage: the structure, or with --data every byte",
	ArgsUsage: "[REF]",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "data", Usage: "read and check every byte"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		return withStore(false, verify)(c)
	},
}

// finding is one thing that is wrong, in JSON.
type finding struct {
	Problem string `json:"problem"`
}

func verify(c *cli.Context, store *snapshot.Store) error {
	found := 0
	ctx, done := watch(c, "objects")
	counts, err := store.Verify(ctx, snapshot.VerifyOptions{Ref: c.Args().First(), Data: c.Bool("data")}, func(problem string) error {
		found++
		if c.Bool("json") {
			return printJSON(finding{Problem: problem})
		}
		_, err := fmt.Fprintln(stdout, problem)
		return err
	})
	done()
	if err != nil {
		return err
	}
	summary(c, "checked %s, %s, %s: %s", plural(counts.Checkpoints, "checkpoint", "checkpoints"), plural(counts.Objects, "object", "objects"),
		plural(counts.Packs, "pack", "packs"), plural(found, "problem", "problems"))
	if found > 0 {
		return exit(exitCorrupt)
	}
	return nil
}
