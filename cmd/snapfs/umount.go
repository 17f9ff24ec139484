package main

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
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
		return fmt.Errorf("no snapfs mount at %s: %w", quote(c.Args().First()), snapshot.ErrNotMounted)
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
	err = askDaemon(c.Context, m.Store, req)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoAnswer) && !req.Lazy:
		return snapshot.WithHint(fmt.Errorf("unmount %s: %w", quote(at), err), "end the daemon, or take the mount away: snapfs umount --lazy %s", tree.QuoteShell(at))
	case !ended(err) && !errors.Is(err, snapshot.ErrNotMounted) && !errors.Is(err, errNoAnswer):
		return err
	}
	// No daemon, or one that is about to end or does not know it: its own is gone.
	// Whoever takes it away first, what is wanted is that it goes.
	if err := fs.Unmount(at, req.Lazy); err != nil && isMount(at) {
		return err
	}
	return nil
}

// answerTime bounds how long a daemon may take to answer at all.
const answerTime = 3 * time.Second

// errNoAnswer: a daemon has the socket, and does not answer.
var errNoAnswer = errors.New("the daemon does not answer")

// askDaemon has a store's daemon take a mount away.
func askDaemon(ctx context.Context, store string, req snapshot.UnmountRequest) error {
	soon, cancel := context.WithTimeoutCause(ctx, answerTime, errNoAnswer)
	defer cancel()
	holder, err := client.Dial(soon, store)
	if err != nil {
		return err
	}
	return errors.Join(holder.Unmount(ctx, req), holder.Close())
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
	return snapshot.Mountpoint{}, fmt.Errorf("no snapfs mount at %s: %w", quote(at), snapshot.ErrNotMounted)
}
