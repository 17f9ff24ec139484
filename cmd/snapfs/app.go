package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// program is what users type.
const program = "snapfs"

// run is the program but for the process's exit.
func run(ctx context.Context, args []string) int {
	app := newApp()
	line := parseArgs(app, args)
	app.Metadata = map[string]any{flagsGiven: line.given, commandGiven: line.command}
	hide(slices.Concat(line.before, line.after))
	err := line.check()
	if err == nil {
		err = app.RunContext(ctx, line.ordered())
	}
	if err == nil {
		err = stdout.err
	}
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return report(stderr, err)
}

func newApp() *cli.App {
	cli.FlagStringer = flagText
	return &cli.App{
		Name:      program,
		HelpName:  program,
		Usage:     "keep what agents made: save workspaces as checkpoints, browse them as directories, restore them",
		UsageText: "snapfs [flags] VERB [flags] ARGUMENTS",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "store", Usage: "the store's `DIR`", EnvVars: []string{"SNAPFS_STORE"}},
			&cli.BoolFlag{Name: "json", Usage: "print JSON: one document, or one a line for lists", EnvVars: []string{"SNAPFS_JSON"}},
			&cli.BoolFlag{Name: "quiet", Usage: "no summaries on stderr"},
			&cli.StringFlag{Name: "progress", Value: "auto", Usage: "`WHEN` to show progress on stderr: auto (on a terminal), on, off or json"},
			&cli.StringFlag{Name: "config", Usage: "the configuration `FILE`, instead of the system's and the user's own", EnvVars: []string{configEnv}},
			&cli.StringFlag{Name: "log-level", Value: "warn", Usage: "`LEVEL` of the log: debug, info, warn or error", EnvVars: []string{"SNAPFS_LOG_LEVEL"}},
			&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT` of the log: text or json", EnvVars: []string{"SNAPFS_LOG_FORMAT"}},
			&cli.StringFlag{Name: "log-file", Usage: "append the log to `FILE` instead of stderr"},
			cli.HelpFlag,
		},
		Commands: commands(program,
			initCommand, saveCommand, runCommand, listCommand, showCommand, mountCommand, umountCommand, restoreCommand, workspaceCommand, catCommand, lsCommand, duCommand,
			diffCommand, statusCommand, historyCommand, forkCommand, renameCommand, deleteCommand, forgetCommand, gcCommand, pushCommand, pullCommand, exportCommand, importCommand, scrubCommand, verifyCommand, repairCommand, artifactCommand, conversationCommand, leaseCommand,
			policyCommand, statsCommand, configCommand, versionCommand, helpCommand,
		),
		Writer:                    stdout,
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

// commands makes verbs report a wrong flag as the program itself does, which the
// flag library does not hand down, and has them read the configuration first.
// parent is what stands before them on the command line.
func commands(parent string, verbs ...*cli.Command) []*cli.Command {
	all := make([]*cli.Command, len(verbs))
	for i, v := range verbs {
		verb, full := *v, parent+" "+v.Name
		if parent != program { // there the flag library puts it together itself
			verb.HelpName = full
		}
		verb.OnUsageError = wrongFlag
		verb.UsageText = strings.TrimSpace(full + " [flags] " + verb.ArgsUsage)
		verb.HideHelpCommand = true
		verb.Flags = slices.Clone(v.Flags)
		for i, f := range verb.Flags {
			if n, ok := f.(*cli.IntFlag); ok {
				verb.Flags[i] = &cli.GenericFlag{Name: n.Name, Usage: n.Usage, DefaultText: n.DefaultText, Hidden: n.Hidden, Value: new(decimal)}
			}
		}
		switch {
		case len(v.Subcommands) > 0:
			verb.Subcommands = commands(full, v.Subcommands...)
			verb.UsageText = full + " VERB [flags] ARGUMENTS"
			verb.Action = noSuchVerb
		case v != helpCommand && v != versionCommand:
			verb.Action = func(c *cli.Context) error {
				if err := configure(c); err != nil {
					return err
				}
				if err := checkProgress(c.String("progress")); err != nil {
					return usagef("--progress %w", err)
				}
				return v.Action(c)
			}
		}
		all[i] = &verb
	}
	return all
}

// decimal is the value of a flag that is a whole number. The flag library's own takes 010
// for eight.
type decimal int

// String returns the number; the flag library reads it from there.
func (d *decimal) String() string { return strconv.Itoa(int(*d)) }

// Set implements [flag.Value].
func (d *decimal) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want a whole number")
	}
	*d = decimal(n)
	return nil
}

// noSuchVerb is what becomes of a verb that needs another one below it.
func noSuchVerb(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("unknown verb %q", verbName(c)+" "+c.Args().First())
	}
	var known []string
	for _, cmd := range c.Command.Subcommands {
		if cmd.Hidden {
			continue
		}
		known = append(known, cmd.Name)
	}
	return usagef("%s: want one of %s", verbName(c), strings.Join(known, ", "))
}

// verbName is the verb as it was typed: "save", "artifact add".
func verbName(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, program+" ") }

// wrongFlag is what becomes of a flag that does not exist or lacks its value.
func wrongFlag(_ *cli.Context, err error, _ bool) error {
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		return usagef("unknown flag %s", quote("--"+name))
	}
	return usagef("%w", err)
}

// storeDir says where the store is.
func storeDir(c *cli.Context) (string, error) {
	if dir := c.String("store"); dir != "" {
		if strings.Contains(dir, "://") {
			return "", usagef("store %s: only a directory can be a store here", quote(dir))
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("store %s: %w", quote(dir), err)
		}
		return abs, nil
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

// whenWaiting is the key of what a verb wants to be told when it waits for the store.
const whenWaiting = "when waiting"

// openStore connects to the store's daemon, or works in this process; it waits
// for whoever holds the store.
func openStore(c *cli.Context, create bool) (*snapshot.Store, error) {
	return openStoreAs(c, snapshot.Options{Create: create})
}

// openStoreAs is openStore with further options.
func openStoreAs(c *cli.Context, opt snapshot.Options) (*snapshot.Store, error) {
	dir, err := storeDir(c)
	if err != nil {
		return nil, err
	}
	if err := storeOptions(c, &opt); err != nil {
		return nil, err
	}
	store, err := client.Open(c.Context, dir, opt, waitingFor(c))
	return store, storeHint(err)
}

// storeOptions sets those that come from the command line and the configuration.
func storeOptions(c *cli.Context, opt *snapshot.Options) (err error) {
	opt.Verb = verbName(c)
	if opt.Logger, err = logger(c, stderr); err != nil {
		return err
	}
	opt.Limit, err = parseBytes(setIn(c, storeLimit).Value)
	return err
}

// waitingFor says who has the store.
func waitingFor(c *cli.Context) func(*snapshot.LockedError) {
	return func(held *snapshot.LockedError) {
		fmt.Fprintf(stderr, "waiting for %s, process %d\n", held.Verb, held.PID)
		if told, ok := c.App.Metadata[whenWaiting].(func(*snapshot.LockedError)); ok {
			told(held)
		}
	}
}

// storeHint says what to do about a store that cannot be opened.
func storeHint(err error) error {
	switch {
	case errors.Is(err, snapshot.ErrNoStore):
		return snapshot.WithHint(err, "snapfs save makes one, or name another with --store")
	case errors.Is(err, iofs.ErrPermission), errors.Is(err, unix.EROFS):
		return snapshot.WithHint(err, "a store is its owner's alone, who must be able to write to it: name another with --store")
	}
	return err
}

// withStore runs a verb on the store. What it did is durable when it returns, so
// trouble with closing the store afterwards does not make it a failure.
func withStore(create bool, fn func(c *cli.Context, store *snapshot.Store) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		store, err := openStore(c, create)
		if err != nil {
			return err
		}
		err = fn(c, store)
		if cerr := store.Close(); cerr != nil {
			fmt.Fprintf(stderr, "warning: close the store: %v\n", cerr)
		}
		return err
	}
}

// logger makes the program's log, which goes to w unless a file is named.
func logger(c *cli.Context, w io.Writer) (*slog.Logger, error) {
	if err := checkLevel(c.String("log-level")); err != nil {
		return nil, usagef("--log-level %w", err)
	}
	if err := checkFormat(c.String("log-format")); err != nil {
		return nil, usagef("--log-format %w", err)
	}
	if path := c.String("log-file"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK, 0o600) // a FIFO would wait for a reader
		if err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
		w = masked{f} // for as long as the program runs
	}
	opt := &slog.HandlerOptions{}
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.String("log-level"))) // checked
	opt.Level = level
	if c.String("log-format") == "json" {
		return slog.New(slog.NewJSONHandler(w, opt)), nil
	}
	return slog.New(slog.NewTextHandler(w, opt)), nil
}

// checkLevel checks how much is logged.
func checkLevel(s string) error {
	switch s {
	case "debug", "info", "warn", "error":
		return nil
	}
	return fmt.Errorf("%s: want debug, info, warn or error", quote(s))
}

// checkFormat checks the form of the log.
func checkFormat(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%s: want text or json", quote(s))
	}
	return nil
}

// maxArguments is for verbs that take as many as there are.
const maxArguments = 1 << 30

// arguments checks the number of arguments after the verb.
func arguments(c *cli.Context, least, most int) error {
	if n := c.NArg(); n < least || n > most {
		return usagef("%s: %s given; usage: %s", verbName(c), plural(n, "argument", "arguments"), strings.TrimSpace(c.Command.HelpName+" "+c.Command.ArgsUsage))
	}
	return nil
}
