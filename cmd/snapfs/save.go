package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

var saveCommand = &cli.Command{
	Name:      "save",
	Usage:     "save a directory as a checkpoint and print its id",
	ArgsUsage: "WORKSPACE",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "thread", Usage: "the `THREAD` to save to", EnvVars: []string{"SNAPFS_THREAD"}},
		&cli.StringFlag{Name: "id", Usage: "the checkpoint's `ID`; made from the time if not given"},
		&cli.StringFlag{Name: "name", Usage: "a `NAME` for it, unique in the thread"},
		includeFlag,
		excludeFlag,
		&cli.BoolFlag{Name: "no-default-excludes", Usage: "also what is left out by default (node_modules, .git, .env ...)"},
		&cli.StringFlag{Name: "compression", Value: "auto", Usage: "`HOW` to compress: auto or off", EnvVars: []string{"SNAPFS_COMPRESSION"}},
		&cli.BoolFlag{Name: "force", Usage: "also a home directory or the root of the file system"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		return withStore(true, save)(c)
	},
}

// The flags that choose among entries.
var (
	includeFlag = &cli.StringSliceFlag{Name: "include", Usage: "only what matches the `PATTERN` (gitignore syntax; may be repeated)"}
	excludeFlag = &cli.StringSliceFlag{Name: "exclude", Usage: "not what matches the `PATTERN` (gitignore syntax; may be repeated)"}
)

// rules makes policy rules of a flag's values.
func rules(c *cli.Context, flag string) []policy.Rule {
	var rules []policy.Rule
	for _, pattern := range c.StringSlice(flag) {
		rules = append(rules, policy.Rule{Pattern: pattern, Source: "--" + flag})
	}
	return rules
}

func save(c *cli.Context, store *snapshot.Store) error {
	compression, err := local.ParseCompression(c.String("compression"))
	if err != nil {
		return usagef("--compression: %v", err)
	}
	res, err := store.Save(c.Context, snapshot.SaveOptions{
		Workspace:   c.Args().First(),
		Thread:      c.String("thread"),
		ID:          c.String("id"),
		Name:        c.String("name"),
		Files:       policy.FilesOptions{NoDefaults: c.Bool("no-default-excludes"), Include: rules(c, "include"), Exclude: rules(c, "exclude")},
		Compression: compression,
		Force:       c.Bool("force"),
	})
	if err != nil {
		return err
	}
	cp := res.Checkpoint
	summary(c, "saved %s, %s, %s (%s new) to thread %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"),
		size(cp.Bytes), size(cp.NewBytes), quote(cp.Thread))
	if left := leftOut(res); left != "" {
		summary(c, "left out: %s; snapfs show %s lists them", left, quote(cp.ID))
	}
	if cp.Files == 0 && cp.Dirs == 0 {
		fmt.Fprintln(os.Stderr, "warning: the checkpoint is empty")
	}
	if c.Bool("json") {
		return printJSON(cp)
	}
	_, err = fmt.Println(cp.ID)
	return err
}

// leftOut counts what is not in the checkpoint.
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
	return strings.Join(parts, ", ")
}
