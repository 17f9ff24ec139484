package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// Flags that a daemon in the background is given again.
const (
	allowOtherFlag  = "allow-other"
	xattrsFlag      = "xattrs"
	mountThreadFlag = "thread"
)

var mountCommand = &cli.Command{
	Name:      "mount",
	Usage:     "show all checkpoints as directories; returns when the mount is usable",
	ArgsUsage: "MOUNTPOINT",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "foreground", Usage: "stay, and end with the mount"},
		&cli.BoolFlag{Name: allowOtherFlag, Usage: "let other users enter; a thread's directory is its owner's"},
		&cli.BoolFlag{Name: xattrsFlag, Usage: "show extended attributes, which makes listings slow"},
		&cli.StringSliceFlag{KeepSpace: true, Name: mountThreadFlag, Usage: "only this thread's `ID` is there; may be repeated"},
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
	if _, _, err := configuredRetention(c); err != nil { // the daemon would only log it
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

// silence is how long a daemon may take to say that it is there.
const silence = 5 * time.Second

// addMount has the store's daemon mount.
func addMount(c *cli.Context, dir string, req snapshot.MountRequest) error {
	ctx, cancel := context.WithTimeout(c.Context, silence)
	defer cancel()
	holder, err := client.Dial(ctx, dir)
	if ctx.Err() != nil && c.Context.Err() == nil {
		err := fmt.Errorf("the daemon of the store %s does not answer (it may be stopped): %w", quote(dir), snapshot.ErrMounted)
		return snapshot.WithHint(err, "the first word of %s is its process id", quote(filepath.Join(dir, "lock")))
	}
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
	return request(c, at), err
}

// request is what the flags say about a mount.
func request(c *cli.Context, mountpoint string) snapshot.MountRequest {
	return snapshot.MountRequest{Mountpoint: mountpoint, AllowOther: c.Bool(allowOtherFlag), XAttrs: c.Bool(xattrsFlag), Threads: c.StringSlice(mountThreadFlag)}
}

// again are the arguments that make the same request of another process of this
// program, whatever its configuration says.
func again(req snapshot.MountRequest) []string {
	args := []string{fmt.Sprintf("--%s=%t", allowOtherFlag, req.AllowOther), fmt.Sprintf("--%s=%t", xattrsFlag, req.XAttrs)}
	for _, id := range req.Threads {
		args = append(args, "--"+mountThreadFlag+"="+id)
	}
	return append(args, "--", req.Mountpoint)
}

// realMountpoint resolves a mountpoint. It does not look at one that is a snapfs
// mount, which may be one whose daemon is gone, and would not answer.
func realMountpoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if isMount(abs) {
		return abs, nil
	}
	missing := func(err error) error {
		err = fmt.Errorf("mountpoint: %w", err)
		if _, lerr := os.Lstat(abs); lerr != nil {
			err = snapshot.WithHint(err, "create the directory first: mkdir -p %s", tree.QuoteShell(path))
		} else {
			err = snapshot.WithHint(err, "%s is a symbolic link that leads nowhere", quote(path))
		}
		return absent(err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", missing(err)
	}
	if at := filepath.Join(parent, filepath.Base(abs)); isMount(at) {
		return at, nil
	}
	if to, err := os.Readlink(abs); err == nil { // a link to a mount
		if !filepath.IsAbs(to) {
			to = filepath.Join(parent, to)
		}
		if isMount(filepath.Clean(to)) {
			return filepath.Clean(to), nil
		}
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", missing(err)
	}
	return real, nil
}

// isMount looks for a snapfs mount in the mount table.
func isMount(path string) bool {
	_, err := mounted(path)
	return err == nil
}
