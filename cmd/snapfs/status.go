package main

import (
	"cmp"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

var statusCommand = &cli.Command{
	Name:      "status",
	Usage:     "compare a directory with the latest checkpoint of the thread that it was saved to",
	ArgsUsage: "[DIR]",
	Flags:     diffFlags,
	Action: comparing(func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		return withStore(false, status)(c)
	}),
}

func status(c *cli.Context, store *snapshot.Store) error {
	dir := cmp.Or(c.Args().First(), ".")
	thread, err := store.LastThread(dir)
	if err != nil {
		return err
	}
	t, err := store.Thread(c.Context, thread)
	if err == nil && t.Head == "" {
		err = fmt.Errorf("thread %s has no checkpoints any more: %w", quote(thread), index.ErrCheckpointNotFound)
	}
	if err != nil {
		return snapshot.WithHint(err, "snapfs save makes one again, and snapfs diff REF DIR compares with another checkpoint")
	}
	head, err := store.Resolve(c.Context, t.Head)
	if err != nil {
		return err
	}
	compared, err := compareDir(c, store, head.ID, dir)
	if err != nil {
		return err
	}
	defer compared.Close()
	name := ""
	if head.Name != "" {
		name = " (" + quote(head.Name) + ")"
	}
	summary(c, "compared with checkpoint %s%s of thread %s, saved %s", quote(head.ID), name, quote(thread), when(head.Created))
	return printChanges(c, compared, nil)
}
