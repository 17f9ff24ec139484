package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// transferFlags are those of push and pull.
var transferFlags = []cli.Flag{
	&cli.BoolFlag{Name: "all", Usage: "all checkpoints of all threads, and the artifacts that threads have besides"},
	leaseFlag, waitFlag,
}

var (
	pushCommand = transferCommand("push", "send a checkpoint, with those before it in its thread, to another store and print the ids of those that arrive", "REF STORE | --all STORE")
	pullCommand = transferCommand("pull", "get a checkpoint, with those before it in its thread, from another store and print the ids of those that arrive", "STORE REF | --all STORE")
)

func transferCommand(name, usage, args string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args, Flags: transferFlags,
		Action: func(c *cli.Context) error {
			push := name == "push"
			at := 0
			if push {
				at = 1
			}
			ref, other, err := transferArguments(c, at)
			if err != nil {
				return err
			}
			own, err := storeDir(c)
			if err != nil {
				return err
			}
			if push {
				return transfer(c, ref, own, other)
			}
			return transfer(c, ref, other, own)
		},
	}
}

// transferArguments returns the reference, "" for everything, and the other store, which is
// the argument of that place.
func transferArguments(c *cli.Context, at int) (ref, other string, err error) {
	if c.Bool("all") {
		if err := arguments(c, 1, 1); err != nil {
			return "", "", err
		}
		if given(c, leaseFlag.Name) {
			return "", "", snapshot.WithHint(usage(errors.New("--all and --lease: a lease is of one thread")), "name a checkpoint of that thread instead of --all")
		}
		at = 0
	} else {
		if err := arguments(c, 2, 2); err != nil {
			return "", "", err
		}
		ref = c.Args().Get(1 - at)
	}
	other, err = otherStore(c.Args().Get(at))
	return ref, other, err
}

// otherStore is the directory of a store that an argument names.
func otherStore(arg string) (string, error) {
	if scheme, _, ok := strings.Cut(arg, "://"); ok {
		err := fmt.Errorf("store %s: %s:// is not supported yet, only a directory can be a store", quote(arg), scheme)
		return "", snapshot.WithHint(usage(err), "name the store's directory; one on another machine has to be mounted here")
	}
	dir, err := filepath.Abs(arg)
	if err != nil {
		return "", fmt.Errorf("store %s: %w", quote(arg), err)
	}
	return dir, nil
}

// transfer sends from one store to another.
func transfer(c *cli.Context, ref, fromDir, toDir string) error {
	var opt snapshot.Options
	if err := storeOptions(c, &opt); err != nil {
		return err
	}
	if own, err := storeDir(c); err != nil || own != toDir {
		opt.Limit = 0 // it is one's own store's
	}
	wait, err := durationFlag(c, waitFlag.Name)
	if err != nil {
		return err
	}
	from, to, err := client.OpenBoth(c.Context, fromDir, toDir, opt, waitingFor(c), func(from *snapshot.Store) error {
		if ref == "" {
			return nil
		}
		_, err := from.Resolve(c.Context, ref)
		return err
	})
	switch {
	case errors.Is(err, snapshot.ErrNoStore):
		return snapshot.WithHint(err, "only the store that gets checkpoints is made: --store names your own, the argument the other one")
	case errors.Is(err, snapshot.ErrNotAStore):
		return snapshot.WithHint(err, "name a store, or an empty or missing directory")
	case err != nil:
		return storeHint(err)
	}
	defer func() {
		for _, s := range []*snapshot.Store{from, to} {
			if cerr := s.Close(); cerr != nil {
				fmt.Fprintf(stderr, "warning: close the store: %v\n", cerr)
			}
		}
	}()
	code := exitDone
	ctx, done := watch(c, "objects")
	res, err := snapshot.Transfer(ctx, from, to, snapshot.TransferOptions{
		Ref: ref, Lease: c.String(leaseFlag.Name), Wait: wait,
		Arrived: func(cp snapshot.Checkpoint) error { return printMade(c, "checkpoint", cp.ID, cp) },
		Problem: func(err error) {
			if n := report(stderr, err); code != exitCorrupt {
				code = n
			}
		},
		Warn: func(text string) { warn("%s", inLine(text)) },
	})
	done()
	if err == nil || res.Objects > 0 || res.Salvaged > 0 {
		transferred(c, res)
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(res); err != nil {
			return err
		}
	}
	if code != exitDone {
		return exit(code)
	}
	return nil
}

// transferred says what was sent.
func transferred(c *cli.Context, res snapshot.TransferResult) {
	summary(c, "sent %s in %s, %s (%s stored)", plural(res.Checkpoints, "checkpoint", "checkpoints"), plural(res.Objects, "object", "objects"), size(res.Bytes), size(res.Stored))
	if res.Known > 0 || res.Present > 0 {
		summary(c, "%s and %s were there already", plural(res.Known, "checkpoint", "checkpoints"), plural(res.Present, "object", "objects"))
	}
	if res.Artifacts > 0 {
		summary(c, "threads got %s", plural(res.Artifacts, "artifact", "artifacts"))
	}
	if res.Salvaged > 0 {
		summary(c, "went on with %s that were sent before", size(res.Salvaged))
	}
}
