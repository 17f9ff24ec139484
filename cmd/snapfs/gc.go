package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var gcCommand = &cli.Command{
	Name:  "gc",
	Usage: "free what nothing refers to and print how many bytes that were",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "only count"},
		&cli.BoolFlag{Name: "purge", Usage: "leave no byte, no name and no id of what was deleted anywhere in the store, which takes longer"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		if c.Bool("purge") && c.Bool("dry-run") {
			return snapshot.WithHint(usage(errors.New("--purge and --dry-run: one or the other")), "gc --dry-run counts what a gc --purge frees, too")
		}
		return withStore(false, gc)(c)
	},
}

func gc(c *cli.Context, store *snapshot.Store) error {
	dry := c.Bool("dry-run")
	ctx, done := watch(c, "objects")
	res, err := store.GC(ctx, snapshot.GCRequest{DryRun: dry, Purge: c.Bool("purge")})
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
	tellPurge(c, res)
	if c.Bool("json") {
		return printJSON(res)
	}
	_, err = fmt.Fprintln(stdout, bytes)
	return err
}

// tellPurge says whether something is left of what was deleted, where that was not to be.
func tellPurge(c *cli.Context, res snapshot.GCResult) {
	if res.Purged {
		summary(c, "nothing of what was deleted is left in packs, index, journal and caches")
	}
	for _, why := range res.Left {
		warn("some of what was deleted is left: %s", inLine(why))
	}
	if len(res.Left) > 0 {
		fmt.Fprintln(stderr, "hint: the next snapfs gc tries it again")
	}
	for _, path := range res.Aside {
		warn("%s may have some of what was deleted: delete it if you need it no more", quote(path))
	}
}
