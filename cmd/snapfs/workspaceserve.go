package main

import (
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/workspace"
)

// workspaceServeCommand is for the program itself: the process that serves what lies below
// instant workspaces.
var workspaceServeCommand = &cli.Command{
	Name:   "serve",
	Hidden: true,
	Usage:  "serve what lies below workspaces; the program itself starts it",
	Flags:  []cli.Flag{&cli.IntFlag{Name: readyFlag, Hidden: true}},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		tell, err := teller(c)
		if err != nil {
			return err
		}
		dir, err := storeDir(c)
		if err == nil {
			err = serveWorkspaces(c, dir, func() { tell(nil) })
		}
		if err != nil {
			tell(err)
		}
		return err
	},
}

func serveWorkspaces(c *cli.Context, dir string, ready func()) error {
	log, err := logger(c, &daemonLog{path: filepath.Join(dir, workspace.LogFile)})
	if err != nil {
		return err
	}
	return workspace.Serve(c.Context, dir, log, ready)
}

// startWorkspaceServer starts the process that serves what lies below a store's workspaces.
func startWorkspaceServer(c *cli.Context, dir string) error {
	args, err := logFlags(c)
	if err != nil {
		return err
	}
	return startBackground(c.Context, "the server of lower layers", filepath.Join(dir, workspace.LogFile), append(args, "--store", dir, "workspace", "serve", "--"+readyFlag, "3")...)
}
