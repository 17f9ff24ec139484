package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

var forgetCommand = &cli.Command{
	Name:      "forget",
	Usage:     "delete the checkpoints that no rule keeps",
	ArgsUsage: "[THREAD]",
	Flags: []cli.Flag{
		&cli.StringSliceFlag{KeepSpace: true, Name: "label", Usage: "look only at checkpoints with this `KEY=VALUE` (may be repeated)"},
		&cli.IntFlag{Name: "keep-last", Usage: "keep the `N` newest of a thread"},
		&cli.IntFlag{Name: "keep-hourly", Usage: "keep the newest of each of `N` hours"},
		&cli.IntFlag{Name: "keep-daily", Usage: "keep the newest of each of `N` days"},
		&cli.IntFlag{Name: "keep-weekly", Usage: "keep the newest of each of `N` weeks"},
		&cli.StringFlag{Name: "keep-within", Usage: "keep all that were made within `TIME` before the newest"},
		&cli.BoolFlag{Name: "dry-run", Usage: "change nothing, print what would be deleted"},
		zeroFlag,
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		opt := snapshot.ForgetOptions{Thread: c.Args().First(), DryRun: c.Bool("dry-run")}
		var err error
		if opt.Labels, err = labels(c); err != nil {
			return err
		}
		if opt.Rules, err = retention(c); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error { return forget(c, store, opt) })(c)
	},
}

// retention reads the rules of the command line.
func retention(c *cli.Context) (r policy.Retention, err error) {
	for _, rule := range []struct {
		flag string
		n    *int
	}{{"keep-last", &r.KeepLast}, {"keep-hourly", &r.KeepHourly}, {"keep-daily", &r.KeepDaily}, {"keep-weekly", &r.KeepWeekly}} {
		if *rule.n = c.Int(rule.flag); *rule.n < 0 {
			return r, usagef("--%s %d: want 0 or more", rule.flag, *rule.n)
		}
	}
	if c.IsSet("keep-within") {
		if r.KeepWithin, err = parseWithin(c.String("keep-within")); err != nil {
			return r, usagef("--keep-within %w", err)
		}
	}
	if err := r.Validate(); errors.Is(err, policy.ErrNoRetention) {
		return r, snapshot.WithHint(usage(fmt.Errorf("forget: %w", err)), "snapfs forget --keep-last 10 keeps the ten newest of each thread; snapfs delete --thread THREAD deletes a whole one")
	}
	return r, r.Validate()
}

// forget prints what is dropped, also when something fails or it is interrupted.
func forget(c *cli.Context, store *snapshot.Store, opt snapshot.ForgetOptions) error {
	res, err := store.Forget(c.Context, opt)
	if err != nil && len(res.Dropped) == 0 {
		return err
	}
	if perr := printDropped(c, res.Dropped); perr != nil {
		return errors.Join(err, perr)
	}
	if err != nil {
		return err
	}
	text := "dropped %s, kept %s in %s"
	switch {
	case opt.DryRun:
		text = "would drop %s, and keep %s in %s"
	case len(res.Dropped) > 0:
		text += "; snapfs gc frees their space"
	}
	summary(c, text, plural(len(res.Dropped), "checkpoint", "checkpoints"), plural(res.Kept, "checkpoint", "checkpoints"), plural(res.Threads, "thread", "threads"))
	for _, f := range res.Failed {
		ids := make([]string, len(f.Checkpoints))
		for i, id := range f.Checkpoints {
			ids[i] = quote(id)
		}
		warn("could not drop from thread %s: %s", quote(f.Thread), inLine(strings.TrimPrefix(strings.Join(ids, ", ")+": ", ": ")+f.Err.Error()))
	}
	if len(res.Failed) > 0 {
		fmt.Fprintln(stderr, "hint: run it again; snapfs list --all THREAD tells what is being deleted still")
		return exit(exitTrouble)
	}
	return nil
}

func printDropped(c *cli.Context, dropped []snapshot.Checkpoint) error {
	switch {
	case c.Bool("json"):
		return printLines(dropped)
	case c.Bool("z"):
		return printNames(dropped, checkpointID)
	}
	return printWhole(func(w io.Writer) error {
		for _, cp := range dropped {
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\n", quote(cp.ID), quote(cp.Thread), when(cp.Created)); err != nil {
				return err
			}
		}
		return nil
	})
}
