package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

var mountCommand = &cli.Command{
	Name:      "mount",
	Usage:     "show all checkpoints as directories; returns when the mount is usable",
	ArgsUsage: "MOUNTPOINT",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "foreground", Usage: "stay, and end with the mount"},
		&cli.IntFlag{Name: readyFlag, Hidden: true},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		if c.IsSet(readyFlag) {
			return inBackground(c)
		}
		return mount(c)
	},
}

// mount adds a mount to the store's daemon, or becomes or starts one.
func mount(c *cli.Context) error {
	req, err := mountRequest(c)
	if err != nil {
		return err
	}
	dir, err := storeDir(c)
	if err != nil {
		return err
	}
	if c.Bool("foreground") {
		return serve(c, req, func(error) {})
	}
	err = addMount(c, dir, req)
	if ended(err) {
		return startDaemon(c, dir, req)
	}
	return err
}

// addMount has the store's daemon mount.
func addMount(c *cli.Context, dir string, req snapshot.MountRequest) error {
	holder, err := client.Dial(c.Context, dir)
	if err != nil {
		return err
	}
	return errors.Join(holder.Mount(c.Context, req), holder.Close())
}

// ended reports whether err says that there is no daemon, or none much longer.
func ended(err error) bool {
	return errors.Is(err, client.ErrNoDaemon) || errors.Is(err, client.ErrClosing)
}

// mountRequest makes the mountpoint a path that means the same to the daemon.
func mountRequest(c *cli.Context) (snapshot.MountRequest, error) {
	at, err := realMountpoint(c.Args().First())
	return snapshot.MountRequest{Mountpoint: at}, err
}

// realMountpoint resolves a mountpoint but for its last part: that one may be a
// mount whose daemon is gone, and would not answer.
func realMountpoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	mounts, err := snapshot.Mountpoints()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Mountpoint == abs {
			return abs, nil
		}
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", snapshot.WithHint(fmt.Errorf("mountpoint: %w", err), "create the directory first: mkdir -p %s", path)
	}
	return real, nil
}
