package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var listCommand = &cli.Command{
	Name:      "list",
	Usage:     "list the threads, or a thread's checkpoints, newest first",
	ArgsUsage: "[THREAD]",
	Flags: []cli.Flag{
		&cli.IntFlag{Name: "limit", Usage: "at most `N`; 0 is all (default: 100, with --json all)"},
		&cli.StringFlag{Name: "before", Usage: "only what is older than `ID`"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		if c.Int("limit") < 0 {
			return usagef("--limit %d: want 0 or more", c.Int("limit"))
		}
		return withStore(false, list)(c)
	},
}

// tableLimit is how many rows a table has unless more are asked for.
const tableLimit = 100

func list(c *cli.Context, store *snapshot.Store) error {
	page := snapshot.Page{Limit: c.Int("limit"), Before: c.String("before")}
	if !c.IsSet("limit") && !c.Bool("json") {
		page.Limit = tableLimit
	}
	if c.NArg() == 1 {
		return listCheckpoints(c, store, c.Args().First(), page)
	}
	threads, err := store.Threads(c.Context, page)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printLines(threads)
	}
	if err := table(os.Stdout, "THREAD\tCHECKPOINTS\tADDED\tUPDATED\tLATEST", func(row func(string, ...any)) {
		for _, t := range threads {
			row("%s\t%d\t%s\t%s\t%s", quote(t.ID), t.Checkpoints, size(t.Bytes), when(t.Updated), quote(t.Head))
		}
	}); err != nil {
		return err
	}
	more(c, page, len(threads))
	return nil
}

func listCheckpoints(c *cli.Context, store *snapshot.Store, thread string, page snapshot.Page) error {
	cps, err := store.Checkpoints(c.Context, thread, page)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printLines(cps)
	}
	if err := table(os.Stdout, "CHECKPOINT\tCREATED\tFILES\tSIZE\tADDED\tREASON\tNAME", func(row func(string, ...any)) {
		for _, cp := range cps {
			name := ""
			if cp.Name != "" {
				name = quote(cp.Name)
			}
			row("%s\t%s\t%d\t%s\t%s\t%s\t%s", quote(cp.ID), when(cp.Created), cp.Files, size(cp.Bytes), size(cp.NewBytes), cp.Reason, name)
		}
	}); err != nil {
		return err
	}
	more(c, page, len(cps))
	return nil
}

// more says that a listing may go on.
func more(c *cli.Context, page snapshot.Page, n int) {
	if page.Limit > 0 && n == page.Limit {
		summary(c, "the first %d; --limit 0 shows all", n)
	}
}
