package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/workspace"
)

var workspaceCommand = &cli.Command{
	Name:  "workspace",
	Usage: "writable workspaces over checkpoints, ready at once and saved at the cost of their changes",
	Subcommands: []*cli.Command{
		{
			Name:      "create",
			Usage:     "make DIR, missing or empty, a workspace with a checkpoint's files, and print its path",
			ArgsUsage: "REF DIR",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "thread", Usage: "save it to `THREAD`, which is made as a fork of REF if it does not exist"},
				&cli.StringFlag{Name: "upper", Usage: "keep what changes in `DIR`, missing or empty, on a file system that overlayfs can write to"},
			},
			Action: func(c *cli.Context) error {
				if err := arguments(c, 2, 2); err != nil {
					return err
				}
				return withStore(false, createWorkspace)(c)
			},
		},
		{
			Name:  "list",
			Usage: "list the workspaces of the store and their states",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 0, 0); err != nil {
					return err
				}
				return withStore(false, listWorkspaces)(c)
			},
		},
		{
			Name:      "show",
			Usage:     "tell what a workspace is made of, and whether it has changes that were not saved",
			ArgsUsage: "DIR",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return withStore(false, showWorkspace)(c)
			},
		},
		{
			Name:      "repair",
			Usage:     "mount a workspace again with all its changes, after a crash or a new start of the machine; without DIR, all of them",
			ArgsUsage: "[DIR]",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 0, 1); err != nil {
					return err
				}
				return withStore(false, repairWorkspaces)(c)
			},
		},
		{
			Name:      "remove",
			Usage:     "take a workspace away",
			ArgsUsage: "DIR",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "force", Usage: "also with changes that were not saved, and while it is used"},
			},
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
					return workspace.Remove(c.Context, store, c.Args().First(), c.Bool("force"))
				})(c)
			},
		},
		workspaceServeCommand,
	},
}

// serverStarter starts the process that serves what lies below workspaces.
func serverStarter(c *cli.Context, store *snapshot.Store) func() error {
	return func() error { return startWorkspaceServer(c, store.Dir()) }
}

func createWorkspace(c *cli.Context, store *snapshot.Store) error {
	w, err := workspace.Create(c.Context, store, c.Args().Get(0), workspace.CreateOptions{
		Dir: c.Args().Get(1), Thread: c.String("thread"), Layer: c.String("upper"), Start: serverStarter(c, store),
	})
	if err != nil {
		return err
	}
	return printMade(c, "workspace", w.Mountpoint(), w)
}

func listWorkspaces(c *cli.Context, store *snapshot.Store) error {
	all, err := workspace.List(c.Context, store)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printLines(all)
	}
	return table("DIR\tSTATE\tTHREAD\tCHECKPOINT\tCREATED", func(row func(string, ...any)) {
		for _, w := range all {
			row("%s\t%s\t%s\t%s\t%s", quote(w.Mountpoint()), w.State, quote(w.Thread), quote(w.Checkpoint), when(w.Created))
		}
	})
}

func showWorkspace(c *cli.Context, store *snapshot.Store) error {
	w, err := workspace.Show(c.Context, store, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(w)
	}
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "directory\t%s\nstate\t%s\ncheckpoint\t%s\nthread\t%s\ncreated\t%s\nlayer\t%s\n",
		quote(w.Mountpoint()), w.State, quote(w.Checkpoint), quote(w.Thread), when(w.Created), quote(w.LayerDir()))
	if w.Changes != nil {
		fmt.Fprintf(tw, "changed\t%s, %s\n", plural(w.Changes.Entries, "entry", "entries"), size(w.Changes.Bytes))
	}
	if w.Unsaved != nil {
		fmt.Fprintf(tw, "unsaved\t%s\n", map[bool]string{true: "yes", false: "no"}[*w.Unsaved])
	}
	return tw.Flush()
}

// repairWorkspaces mends one workspace, or all that can be.
func repairWorkspaces(c *cli.Context, store *snapshot.Store) error {
	if c.Args().Present() {
		return repairWorkspace(c, store, c.Args().First())
	}
	all, err := workspace.List(c.Context, store)
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range all {
		if w.State == workspace.Unmounted || w.State == workspace.Broken {
			errs = append(errs, repairWorkspace(c, store, w.Mountpoint()))
		}
	}
	return errors.Join(errs...)
}

func repairWorkspace(c *cli.Context, store *snapshot.Store, dir string) error {
	w, err := workspace.Repair(c.Context, store, dir, serverStarter(c, store))
	if err != nil {
		return err
	}
	return printMade(c, "workspace", w.Mountpoint(), w)
}
