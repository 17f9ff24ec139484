package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// saveFlags are those of every verb that saves, beside [policyFlags].
var saveFlags = []cli.Flag{
	&cli.StringFlag{Name: "message", Usage: "a `TEXT` about it"},
	&cli.StringSliceFlag{KeepSpace: true, Name: "label", Usage: "a `KEY=VALUE` to find it by (may be repeated)"},
	&cli.BoolFlag{Name: "skip-unreadable", Usage: "leave out what cannot be read, and end with exit code 3"},
	&cli.BoolFlag{Name: "allow-torn", Usage: "keep a file that changes each time it is read, marked as torn, and end with exit code 3"},
	&cli.StringFlag{Name: "compression", Value: "auto", Usage: "`HOW` to compress: auto or off", EnvVars: []string{"SNAPFS_COMPRESSION"}},
	leaseFlag,
	waitFlag,
	&cli.BoolFlag{Name: "full-scan", Usage: "read all files, also those that have not changed since the last save"},
	&cli.BoolFlag{Name: "force", Usage: "also a home directory, the root of the file system, and what holds the store or a mount (which stay left out)"},
}

var saveCommand = &cli.Command{
	Name:      "save",
	Usage:     "save a directory as a checkpoint and print its id",
	ArgsUsage: "WORKSPACE",
	Flags: slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "thread", Usage: "the `THREAD` to save to", EnvVars: []string{"SNAPFS_THREAD"}},
		&cli.StringFlag{Name: "name", Usage: "a `NAME` for it, unique in the thread"},
		&cli.StringFlag{Name: "id", Usage: "the checkpoint's `ID`; made from the time if not given"},
		&cli.StringFlag{Name: "run", Usage: "the `RUN` of an agent that it comes from: its id becomes checkpoint-RUN"},
		&cli.StringFlag{Name: "parent", Usage: "only if `REF` is the thread's latest"},
		&cli.StringFlag{Name: "conversation", Usage: "keep the messages in `FILE`, a JSON array, with it; - is stdin"},
		&cli.StringSliceFlag{KeepSpace: true, Name: "artifact", Usage: "`NAME=FILE[;type=MEDIA]` becomes an artifact of the thread (may be repeated)"},
		&cli.BoolFlag{Name: "dry-run", Usage: "only print what would be stored (+), left out (-), or stored in part (~), and why"},
		zeroFlag,
	}, saveFlags, policyFlags),
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		if _, err := os.Stat(c.Args().First()); err != nil {
			return absent(fmt.Errorf("workspace: %w", err))
		}
		opt, err := saveOptions(c)
		if err != nil {
			return err
		}
		if opt.Artifacts, err = artifactFiles(c); err != nil {
			return err
		}
		if name := c.String("conversation"); name != "" {
			messages, err := conversationFile(c.Context, name)
			if err != nil {
				return err
			}
			defer messages.Close()
			opt.Conversation = messages
		}
		wait, err := durationFlag(c, waitFlag.Name)
		if err != nil {
			return err
		}
		if c.Bool("dry-run") {
			return planSave(c, opt)
		}
		if c.Bool("z") {
			return usagef("-z is for --dry-run")
		}
		return patiently(c, wait, true, func(c *cli.Context, store *snapshot.Store) error { return save(c, store, opt) })
	},
}

// saveOptions reads what verbs that save have in common, of all that does not need the store.
func saveOptions(c *cli.Context) (opt snapshot.SaveOptions, err error) {
	said, err := readPolicyFlags(c)
	if err != nil {
		return opt, err
	}
	declared, err := declare(c, said.redactEnv, said.redactFile)
	if err != nil {
		return opt, err
	}
	declared.Allowed = said.allowed
	opt = snapshot.SaveOptions{
		Files:          said.files,
		Settings:       said.settings,
		Secrets:        declared,
		Workspace:      c.Args().First(),
		Thread:         c.String("thread"),
		ID:             c.String("id"),
		Name:           c.String("name"),
		Parent:         c.String("parent"),
		Run:            c.String("run"),
		Message:        c.String("message"),
		SkipUnreadable: c.Bool("skip-unreadable"),
		AllowTorn:      c.Bool("allow-torn"),
		FullScan:       c.Bool("full-scan"),
		Force:          c.Bool("force"),
		Lease:          c.String(leaseFlag.Name),
	}
	if opt.Compression, err = local.ParseCompression(c.String("compression")); err != nil {
		return opt, usagef("--compression: %v", err)
	}
	if opt.Labels, err = labels(c); err != nil {
		return opt, err
	}
	return opt, nil
}

func save(c *cli.Context, store *snapshot.Store, opt snapshot.SaveOptions) error {
	res, err := saveWorkspace(c, store, opt)
	if err != nil {
		return err
	}
	err = printMade(c, "checkpoint", res.Checkpoint.ID, res.Checkpoint)
	if err == nil && incomplete(res) {
		err = exit(exitIncomplete)
	}
	return err
}

// incomplete reports whether something is missing in a checkpoint that should be in it.
func incomplete(res snapshot.SaveResult) bool { return res.Unreadable+res.Torn+res.Over > 0 }

// saveWorkspace saves, and tells on stderr what there is to know about it.
func saveWorkspace(c *cli.Context, store *snapshot.Store, opt snapshot.SaveOptions) (snapshot.SaveResult, error) {
	ctx, done := watch(c, "files")
	res, err := store.Save(ctx, opt)
	done()
	if err != nil {
		return res, saveHint(err)
	}
	cp := res.Checkpoint
	summary(c, "saved %s, %s, %s (%s new) to thread %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"),
		size(cp.Bytes), size(cp.NewBytes), quote(cp.Thread))
	if left := leftOut(res); left != "" {
		summary(c, "left out: %s; snapfs show %s lists them", left, quote(cp.ID))
	}
	if res.Scanned != "" {
		summary(c, "read all of the workspace, and not only its changes: %s", res.Scanned)
	}
	secretsTold(c, res, quote(cp.ID))
	warnings(res, cp.Files == 0 && cp.Dirs == 0, fmt.Sprintf("snapfs show %s lists them", quote(cp.ID)))
	if res.Grew > 0 {
		summary(c, "%s grew meanwhile: saved as at first; snapfs show %s lists them", plural(res.Grew, "file", "files"), quote(cp.ID))
	}
	if res.Torn > 0 {
		warn("torn: %s changed each time; snapfs show %s lists them", plural(res.Torn, "file", "files"), quote(cp.ID))
	}
	return res, nil
}

// warnings tells what the user should know of a save or of the plan of one. lists
// says where what is missing is listed.
func warnings(res snapshot.SaveResult, empty bool, lists string) {
	if empty {
		warn("the checkpoint is empty")
	}
	for _, w := range res.Warnings {
		warn("%s", w)
	}
	if res.Over > 0 {
		warn("not saved: %s over the limit; %s", plural(res.Over, "file", "files"), lists)
	}
	if res.Unreadable > 0 {
		warn("not saved: %s; %s", plural(res.Unreadable, "unreadable entry", "unreadable entries"), lists)
	}
}

// saveHint says what to do about a save that failed.
func saveHint(err error) error {
	var sizes *capture.SizeError
	switch {
	case snapshot.Hint(err) != "":
	case errors.As(err, &sizes):
		err = snapshot.WithHint(err, "--exclude PATTERN leaves out what need not be kept, --max-size raises the limit")
	case errors.Is(err, capture.ErrUnsavable) && errors.Is(err, capture.ErrUnfinished):
		err = snapshot.WithHint(err, "run that restore again, which finishes it, or --exclude the directory")
	case errors.Is(err, capture.ErrUnsavable) && errors.Is(err, cas.ErrTooLarge):
		err = snapshot.WithHint(err, "--exclude PATTERN leaves out what need not be kept, --max-file-size raises the limit; in a policy file, overLimit: skip saves the rest")
	case errors.Is(err, capture.ErrUnsavable):
		err = snapshot.WithHint(err, "--skip-unreadable saves the rest and lists what it left out, --allow-torn keeps what does not hold still; --exclude leaves out what need not be kept")
	case errors.Is(err, policy.ErrTooManyRules), errors.Is(err, policy.ErrTooMuchWork):
		err = snapshot.WithHint(err, "--exclude the directories with such files; without --gitignore only .snapfsignore files count")
	}
	return err
}

// leftOut counts what is not in the checkpoint on purpose.
func leftOut(res snapshot.SaveResult) string {
	var parts []string
	if res.Excluded > 0 {
		parts = append(parts, plural(res.Excluded, "excluded entry", "excluded entries"))
	}
	if res.Special > 0 {
		parts = append(parts, plural(res.Special, "special file", "special files"))
	}
	if res.Setuid > 0 {
		parts = append(parts, plural(res.Setuid, "setuid or setgid bit", "setuid or setgid bits"))
	}
	if res.Secret > 0 {
		parts = append(parts, plural(res.Secret, "entry with secrets", "entries with secrets"))
	}
	return strings.Join(parts, ", ")
}
