package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// run is the program but for the process's exit.
func run(ctx context.Context, args []string) int {
	app := newApp()
	err := app.RunContext(ctx, reorder(app, args))
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return report(os.Stderr, err)
}

func newApp() *cli.App {
	cli.FlagStringer = flagText
	return &cli.App{
		Name:      "snapfs",
		Usage:     "keep what agents made: save workspaces as checkpoints, browse them as directories, restore them",
		UsageText: "snapfs [flags] VERB [flags] ARGUMENTS",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "store", Usage: "the store's `DIR`", EnvVars: []string{"SNAPFS_STORE"}},
			&cli.BoolFlag{Name: "json", Usage: "print JSON: one document, or one a line for lists", EnvVars: []string{"SNAPFS_JSON"}},
			&cli.BoolFlag{Name: "quiet", Usage: "no summaries on stderr"},
			&cli.StringFlag{Name: "log-level", Value: "warn", Usage: "`LEVEL` of the log: debug, info, warn or error", EnvVars: []string{"SNAPFS_LOG_LEVEL"}},
			&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT` of the log: text or json", EnvVars: []string{"SNAPFS_LOG_FORMAT"}},
			cli.HelpFlag,
		},
		Commands: commands(
			initCommand, saveCommand, listCommand, showCommand, mountCommand, umountCommand, restoreCommand, catCommand,
			diffCommand, forkCommand, verifyCommand, statsCommand, versionCommand, helpCommand,
		),
		DisableSliceFlagSeparator: true,
		HideVersion:               true,
		HideHelpCommand:           true,                         // there is one of our own
		ExitErrHandler:            func(*cli.Context, error) {}, // report does it
		OnUsageError:              wrongFlag,
		CommandNotFound:           nil,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("unknown verb %q", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
}

// commands makes verbs report a wrong flag as the program itself does: the flag
// library does not hand that down.
func commands(verbs ...*cli.Command) []*cli.Command {
	all := make([]*cli.Command, len(verbs))
	for i, v := range verbs {
		verb := *v
		verb.OnUsageError = wrongFlag
		verb.UsageText = strings.TrimSpace("snapfs " + verb.Name + " [flags] " + verb.ArgsUsage)
		verb.HideHelpCommand = true
		all[i] = &verb
	}
	return all
}

// wrongFlag is what becomes of a flag that does not exist or lacks its value.
func wrongFlag(_ *cli.Context, err error, _ bool) error { return usagef("%w", err) }

// storeDir says where the store is.
func storeDir(c *cli.Context) (string, error) {
	if dir := c.String("store"); dir != "" {
		if strings.Contains(dir, "://") {
			return "", usagef("store %s: only a directory can be a store here", dir)
		}
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/snapfs", nil
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "snapfs"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", snapshot.WithHint(usage(fmt.Errorf("no place for the store: %w", err)), "name one with --store or SNAPFS_STORE")
	}
	return filepath.Join(home, ".local", "share", "snapfs"), nil
}

// openStore connects to the store's daemon, or works in this process; it waits
// for whoever holds the store.
func openStore(c *cli.Context, create bool) (*snapshot.Store, error) {
	dir, err := storeDir(c)
	if err != nil {
		return nil, err
	}
	log, err := logger(c, os.Stderr)
	if err != nil {
		return nil, err
	}
	store, err := client.Open(c.Context, dir, snapshot.Options{Create: create, Verb: c.Command.Name, Logger: log}, func(held *snapshot.LockedError) {
		fmt.Fprintf(os.Stderr, "waiting for %s, process %d\n", held.Verb, held.PID)
	})
	if errors.Is(err, snapshot.ErrNoStore) {
		return nil, snapshot.WithHint(err, "snapfs save makes one, or name another with --store")
	}
	return store, err
}

// withStore runs a verb on the store.
func withStore(create bool, fn func(c *cli.Context, store *snapshot.Store) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		store, err := openStore(c, create)
		if err != nil {
			return err
		}
		return errors.Join(fn(c, store), store.Close())
	}
}

// logger makes the program's log.
func logger(c *cli.Context, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, usagef("--log-level %s: want debug, info, warn or error", c.String("log-level"))
	}
	opt := &slog.HandlerOptions{Level: level}
	switch c.String("log-format") {
	case "text":
		return slog.New(slog.NewTextHandler(w, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opt)), nil
	}
	return nil, usagef("--log-format %s: want text or json", c.String("log-format"))
}

// arguments checks the number of arguments after the verb.
func arguments(c *cli.Context, least, most int) error {
	if n := c.NArg(); n < least || n > most {
		return usagef("%s: %d arguments given; usage: snapfs %s %s", c.Command.Name, n, c.Command.Name, c.Command.ArgsUsage)
	}
	return nil
}
