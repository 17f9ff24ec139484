package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var repairCommand = &cli.Command{
	Name:  "repair",
	Usage: "make the index anew from packs and journal, and mend the journal",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "reindex", Usage: "that: what is lost is printed, one a line"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		if !c.Bool("reindex") {
			return usagef("repair: say --reindex; damaged contents are set aside by snapfs verify --repair")
		}
		return repair(c)
	},
}

func repair(c *cli.Context) error {
	dir, err := storeDir(c)
	if err != nil {
		return err
	}
	log, err := logger(c, stderr)
	if err != nil {
		return err
	}
	found := 0
	res, err := snapshot.Reindex(c.Context, dir, snapshot.Options{Verb: "repair", Logger: log}, func(problem string) error {
		found++
		return printFinding(c, problem)
	})
	if errors.Is(err, snapshot.ErrLocked) {
		err = snapshot.WithHint(err, "end that first; a daemon ends with its last mount: snapfs umount MOUNTPOINT")
	}
	if err != nil {
		return storeHint(err)
	}
	summary(c, "made the index anew: %s, %s, %s: %s", plural(res.Threads, "thread", "threads"), plural(res.Checkpoints, "checkpoint", "checkpoints"),
		plural(res.Packs, "pack", "packs"), plural(found, "problem", "problems"))
	if found > 0 {
		return exit(exitCorrupt)
	}
	return nil
}
