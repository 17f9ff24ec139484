package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var deleteCommand = &cli.Command{
	Name:      "delete",
	Usage:     "delete a checkpoint, or a thread with all that it has",
	ArgsUsage: "REF | --thread THREAD",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "thread", Usage: "the whole `THREAD`"},
		&cli.BoolFlag{Name: "no-wait", Usage: "return once it is decided, where the rest takes long"},
	},
	Action: func(c *cli.Context) error {
		whole := given(c, "thread")
		want := 1
		if whole {
			want = 0
		}
		if err := arguments(c, want, want); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			if whole {
				return deleteThread(c, store, c.String("thread"))
			}
			cp, err := store.Delete(c.Context, c.Args().First())
			if err != nil {
				return err
			}
			summary(c, "deleted checkpoint %s of thread %s; snapfs gc frees its space", quote(cp.ID), quote(cp.Thread))
			return nil
		})(c)
	},
}

func deleteThread(c *cli.Context, store *snapshot.Store, thread string) error {
	if err := store.DeleteThread(c.Context, thread); err != nil {
		return err
	}
	summary(c, "deleted thread %s; snapfs gc frees its space", quote(thread))
	return nil
}
