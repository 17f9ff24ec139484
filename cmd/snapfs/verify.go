package main

import (
	"errors"
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
		&cli.BoolFlag{Name: "repair", Usage: "as --data, then move damaged packs aside after what can be read of them was copied"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		if c.Bool("repair") && c.Args().Present() {
			return snapshot.WithHint(usage(errors.New("--repair is for the whole store: no REF goes with it")), "snapfs verify --data REF only looks")
		}
		return withStore(false, verify)(c)
	},
}

// finding is one thing that is wrong, in JSON.
type finding struct {
	Problem string `json:"problem"`
}

// printFinding prints one, on a line of its own.
func printFinding(c *cli.Context, problem string) error {
	if c.Bool("json") {
		return printJSON(finding{Problem: problem})
	}
	_, err := fmt.Fprintln(stdout, problem)
	return err
}

func verify(c *cli.Context, store *snapshot.Store) error {
	found := 0
	ctx, done := watch(c, "objects")
	counts, err := store.Verify(ctx, snapshot.VerifyOptions{Ref: c.Args().First(), Data: c.Bool("data"), Repair: c.Bool("repair")}, func(problem string) error {
		found++
		return printFinding(c, problem)
	})
	done()
	if err != nil {
		return err
	}
	summary(c, "checked %s, %s, %s: %s", plural(counts.Checkpoints, "checkpoint", "checkpoints"), plural(counts.Objects, "object", "objects"),
		plural(counts.Packs, "pack", "packs"), plural(found, "problem", "problems"))
	if r := counts.Repaired; r.Moved > 0 || r.Lost > 0 || r.Restored > 0 {
		lost := plural(r.Lost, "object is", "objects are") + " lost"
		if r.Moved > 0 {
			summary(c, "moved %s to %s, %s", plural(r.Moved, "damaged pack", "damaged packs"), quote(r.Dir), lost)
		} else {
			summary(c, "%s, with packs that are gone", lost)
		}
		if r.Restored > 0 {
			summary(c, "wrote %s anew", plural(r.Restored, "record of a checkpoint", "records of checkpoints"))
		}
	}
	if found > 0 {
		return exit(exitCorrupt)
	}
	return nil
}
