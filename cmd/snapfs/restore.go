package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var restoreCommand = &cli.Command{
	Name:      "restore",
	Usage:     "copy a checkpoint's files into a directory that is missing or empty",
	ArgsUsage: "REF DIR",
	Flags:     []cli.Flag{includeFlag, excludeFlag},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		return withStore(false, restoreFiles)(c)
	},
}

// restoreCounts is what restore prints with --json.
type restoreCounts struct {
	Checkpoint string           `json:"checkpoint"`
	Files      int64            `json:"files"`
	Dirs       int64            `json:"dirs"`
	Bytes      int64            `json:"bytes"`
	Skipped    int64            `json:"skipped"`
	Incomplete []incompleteItem `json:"incomplete,omitempty"`
}

type incompleteItem struct {
	snapshot.Path
	Error string `json:"error"`
}

func restoreFiles(c *cli.Context, store *snapshot.Store) error {
	ref, dir := c.Args().Get(0), c.Args().Get(1)
	ctx, done := watch(c, "files")
	res, err := store.Restore(ctx, ref, snapshot.RestoreOptions{
		Dir: dir, Include: rules(c, "include"), Exclude: rules(c, "exclude"),
		Resuming: func() {
			if isTerminal(os.Stderr) && !c.Bool("quiet") {
				fmt.Fprint(os.Stderr, clearLine) // a bar may be there
			}
			summary(c, "resuming the unfinished restore of %s into %s", quote(ref), quote(dir))
		},
	})
	done()
	if err != nil {
		return err
	}
	counts := restoreCounts{Checkpoint: res.Checkpoint.ID, Files: res.Files, Dirs: res.Dirs, Bytes: res.Bytes, Skipped: res.Skipped}
	summary(c, "restored %s, %s, %s to %s", plural(res.Files, "file", "files"), plural(res.Dirs, "directory", "directories"), size(res.Bytes), dir)
	if res.Skipped > 0 {
		summary(c, "skipped: %s", plural(res.Skipped, "excluded entry", "excluded entries"))
	}
	for _, p := range res.Incomplete {
		fmt.Fprintf(os.Stderr, "incomplete: %s: %v\n", quote(p.Path), p.Err)
		counts.Incomplete = append(counts.Incomplete, incompleteItem{Path: snapshot.NewPath(p.Path), Error: p.Err.Error()})
	}
	if c.Bool("json") {
		if err := printJSON(counts); err != nil {
			return err
		}
	}
	if len(res.Incomplete) > 0 {
		return exit(exitIncomplete)
	}
	return nil
}
