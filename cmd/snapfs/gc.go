package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var gcCommand = &cli.Command{
	Name:  "gc",
	Usage: "free what nothing refers to and print how many bytes that were",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "only count"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		return withStore(false, gc)(c)
	},
}

func gc(c *cli.Context, store *snapshot.Store) error {
	dry := c.Bool("dry-run")
	ctx, done := watch(c, "objects")
	res, err := store.GC(ctx, snapshot.GCRequest{DryRun: dry})
	done()
	if err != nil {
		return err
	}
	bytes := res.Freed
	if dry {
		bytes = res.Bytes
		summary(c, "nothing refers to %s, %s", plural(res.Objects, "object", "objects"), size(res.Bytes))
	} else {
		summary(c, "removed %s, rewrote %s", plural(res.Removed, "pack", "packs"), plural(res.Rewritten, "pack", "packs"))
	}
	if res.Waiting > 0 {
		fmt.Fprintf(stderr, "waiting: %s may still need some of it; run snapfs gc again later\n", plural(res.Waiting, "save under way", "saves under way"))
	}
	if c.Bool("json") {
		return printJSON(res)
	}
	_, err = fmt.Fprintln(stdout, bytes)
	return err
}
