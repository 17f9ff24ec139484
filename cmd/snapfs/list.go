package main

import (
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

var listCommand = &cli.Command{
	Name:      "list",
	Usage:     "list the threads, or a thread's checkpoints, newest first",
	ArgsUsage: "[THREAD]",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "all", Usage: "also checkpoints that are not ready, or being deleted"},
		&cli.StringSliceFlag{KeepSpace: true, Name: "label", Usage: "only checkpoints with this `KEY=VALUE`, or threads that have one (may be repeated)"},
		&cli.IntFlag{Name: "limit", Usage: "at most `N`; 0 is all", DefaultText: "100, with --json or -z all"},
		&cli.StringFlag{Name: "before", Usage: "only what comes after `REF`, a checkpoint or a thread, in the listing"},
		&cli.BoolFlag{Name: "graph", Usage: "draw what came from what"},
		zeroFlag,
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		if c.Bool("graph") {
			for _, other := range []string{"--label", "--limit", "--before", "-z", "--json"} {
				if name := strings.TrimLeft(other, "-"); given(c, name) || c.Bool(name) {
					return snapshot.WithHint(usagef("--graph draws a picture of all, not together with %s", other), "snapfs list THREAD --json has each checkpoint's parent and origin")
				}
			}
			return withStore(false, func(c *cli.Context, store *snapshot.Store) error { return listGraph(c, store, c.Args().First()) })(c)
		}
		if c.Int("limit") < 0 {
			return usagef("--limit %d: want 0 or more", c.Int("limit"))
		}
		want, err := labels(c)
		if err != nil {
			return err
		}
		page := snapshot.Page{Limit: c.Int("limit"), Before: c.String("before"), Deleting: c.Bool("all")}
		if !given(c, "limit") && !c.Bool("json") && !c.Bool("z") {
			page.Limit = tableLimit
		}
		keep := func(cp snapshot.Checkpoint) bool {
			return (c.Bool("all") || cp.Status == string(index.Ready)) && cp.Labelled(want)
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			if c.NArg() == 1 {
				return listCheckpoints(c, store, c.Args().First(), page, keep)
			}
			return listThreads(c, store, page, func(t snapshot.Thread) (bool, error) {
				if len(want) == 0 {
					return true, nil
				}
				return hasCheckpoint(c, store, t.ID, keep)
			})
		})(c)
	},
}

// tableLimit is how many rows a table has unless more are asked for.
const tableLimit = 100

// batch is how much of a listing is asked for at once when the first part did
// not have enough of what is wanted.
const batch = 1000

// filtered gathers a page of what keep keeps. list asks for a part of the
// listing, id names an item in it.
func filtered[T any](page snapshot.Page, list func(snapshot.Page) ([]T, error), id func(T) string, keep func(T) (bool, error)) ([]T, error) {
	all := []T{}
	ask := page
	for {
		got, err := list(ask)
		if err != nil {
			return nil, err
		}
		for _, v := range got {
			ok, err := keep(v)
			if err != nil {
				return nil, err
			}
			if ok {
				all = append(all, v)
			}
			if page.Limit > 0 && len(all) == page.Limit {
				return all, nil
			}
		}
		if ask.Limit == 0 || len(got) < ask.Limit {
			return all, nil
		}
		ask.Limit, ask.Before = max(page.Limit, batch), id(got[len(got)-1])
	}
}

func listThreads(c *cli.Context, store *snapshot.Store, page snapshot.Page, keep func(snapshot.Thread) (bool, error)) error {
	id := func(t snapshot.Thread) string { return t.ID }
	threads, err := filtered(page, func(p snapshot.Page) ([]snapshot.Thread, error) { return store.Threads(c.Context, p) }, id, keep)
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printLines(threads)
	case c.Bool("z"):
		return printNames(threads, id)
	}
	if err := table("THREAD\tCHECKPOINTS\tADDED\tUPDATED\tLATEST", func(row func(string, ...any)) {
		for _, t := range threads {
			row("%s\t%d\t%s\t%s\t%s", quote(t.ID), t.Checkpoints, size(t.Bytes), when(t.Updated), quoteOr(t.Head))
		}
	}); err != nil {
		return err
	}
	more(c, page, len(threads))
	return nil
}

// hasCheckpoint reports whether a thread has one that keep keeps.
func hasCheckpoint(c *cli.Context, store *snapshot.Store, thread string, keep func(snapshot.Checkpoint) bool) (bool, error) {
	found, err := checkpoints(c, store, thread, snapshot.Page{Limit: 1}, keep)
	if errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
		return false, nil
	}
	return len(found) > 0, err
}

func checkpoints(c *cli.Context, store *snapshot.Store, thread string, page snapshot.Page, keep func(snapshot.Checkpoint) bool) ([]snapshot.Checkpoint, error) {
	return filtered(page, func(p snapshot.Page) ([]snapshot.Checkpoint, error) { return store.Checkpoints(c.Context, thread, p) }, checkpointID,
		func(cp snapshot.Checkpoint) (bool, error) { return keep(cp), nil })
}

func checkpointID(cp snapshot.Checkpoint) string { return cp.ID }

func listCheckpoints(c *cli.Context, store *snapshot.Store, thread string, page snapshot.Page, keep func(snapshot.Checkpoint) bool) error {
	if page.Before != "" {
		last, err := store.Resolve(c.Context, page.Before)
		if err != nil {
			return err
		}
		page.Before = last.ID
	}
	cps, err := checkpoints(c, store, thread, page, keep)
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printLines(cps)
	case c.Bool("z"):
		return printNames(cps, checkpointID)
	}
	head := "CHECKPOINT\tCREATED\tFILES\tSIZE\tADDED\tREASON\tNAME"
	if c.Bool("all") {
		head = "CHECKPOINT\tCREATED\tFILES\tSIZE\tADDED\tREASON\tSTATUS\tNAME"
	}
	if err := table(head, func(row func(string, ...any)) {
		for _, cp := range cps {
			reason, name := quote(cp.Reason), ""
			if c.Bool("all") {
				reason += "\t" + cp.Status
			}
			if cp.Name != "" {
				name = quote(cp.Name)
			}
			row("%s\t%s\t%d\t%s\t%s\t%s\t%s", quote(cp.ID), when(cp.Created), cp.Files, size(cp.Bytes), size(cp.NewBytes), reason, name)
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
