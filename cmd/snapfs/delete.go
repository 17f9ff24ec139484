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
			opt := snapshot.DeleteOptions{NoWait: c.Bool("no-wait")}
			if whole {
				thread := c.String("thread")
				done, err := store.BeginDeleteThread(c.Context, thread, opt)
				return deleted(c, done, err, "thread "+quote(thread))
			}
			cp, done, err := store.BeginDelete(c.Context, c.Args().First(), opt)
			return deleted(c, done, err, "checkpoint "+quote(cp.ID)+" of thread "+quote(cp.Thread))
		})(c)
	},
}

// deleted tells how a deletion went.
func deleted(c *cli.Context, done bool, err error, what string) error {
	switch {
	case err != nil:
		return err
	case done:
		summary(c, "deleted %s; snapfs gc frees its space", what)
	default:
		summary(c, "deleting %s: it is gone from mounts and references; snapfs gc frees its space", what)
	}
	return nil
}
