package main

import (
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/snapshot"
)

var umountCommand = &cli.Command{
	Name:      "umount",
	Usage:     "take a mount away",
	ArgsUsage: "MOUNTPOINT",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "lazy", Usage: "detach now, end when nobody uses it any more"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		return umount(c)
	},
}

func umount(c *cli.Context) error {
	at, err := realMountpoint(c.Args().First())
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("no snapfs mount at %s: %w", c.Args().First(), snapshot.ErrNotMounted)
	}
	if err != nil {
		return err
	}
	m, err := mounted(at)
	if err != nil {
		return err
	}
	req := snapshot.UnmountRequest{Mountpoint: at, Lazy: c.Bool("lazy")}
	// The mount table says whose mount it is, whatever --store says.
	holder, err := client.Dial(c.Context, m.Store)
	if err == nil {
		err = errors.Join(holder.Unmount(c.Context, req), holder.Close())
		if !errors.Is(err, snapshot.ErrNotMounted) {
			return err
		}
	}
	// No daemon, or one that does not know it: its own is gone.
	return fs.Unmount(at, req.Lazy)
}

// mounted finds a snapfs mount in the mount table.
func mounted(at string) (snapshot.Mountpoint, error) {
	mounts, err := snapshot.Mountpoints()
	if err != nil {
		return snapshot.Mountpoint{}, err
	}
	for i := len(mounts) - 1; i >= 0; i-- { // the topmost
		if mounts[i].Mountpoint == at {
			return mounts[i], nil
		}
	}
	return snapshot.Mountpoint{}, fmt.Errorf("no snapfs mount at %s: %w", at, snapshot.ErrNotMounted)
}
