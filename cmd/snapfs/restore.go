package main

import (
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/workspace"
)

var restoreCommand = &cli.Command{
	Name:      "restore",
	Usage:     "copy a checkpoint's files into a directory",
	ArgsUsage: "REF DIR",
	Flags: []cli.Flag{
		includeFlag,
		excludeFlag,
		// Not by a variable or the configuration: what was saved comes back unless
		// somebody says otherwise.
		&cli.StringFlag{Name: "policy", Usage: "leave out what the rules of `FILE` leave out"},
		&cli.BoolFlag{Name: "strict", Usage: "fail if the checkpoint has what --exclude or the policy leaves out"},
		&cli.BoolFlag{Name: "overlay", Usage: "into a directory with content: write over what has the same names, keep the rest"},
		&cli.BoolFlag{Name: "mirror", Usage: "like --overlay, and delete what the checkpoint would have, but has not"},
		&cli.BoolFlag{Name: "instant", Usage: "copy nothing: make DIR an instant workspace (root), as snapfs workspace create does"},
		&cli.BoolFlag{Name: "dry-run", Usage: "change nothing, and print what would be done"},
		&cli.BoolFlag{Name: "force", Usage: "also when more is deleted than written, or what the policy protects is in the way"},
		&cli.StringFlag{Name: "owner", Usage: "give everything to `USER:GROUP`, names or numbers"},
		&cli.BoolFlag{Name: "preserve-owner", Usage: "give everything to its saved owner (root)"},
		&cli.BoolFlag{Name: "no-hardlinks", Usage: "make a file of each of a file's names"},
		&cli.StringFlag{Name: "artifacts", Usage: "also the artifacts, into `DIR`, which must be missing or empty"},
		&cli.StringFlag{Name: "conversation", Usage: "also the conversation, into `FILE`, which must be missing"},
		zeroFlag,
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		opt, err := restoreOptions(c)
		if err != nil {
			return err
		}
		if c.Bool("instant") {
			if err := instantOnly(c); err != nil {
				return err
			}
			return withStore(false, func(c *cli.Context, store *snapshot.Store) error { return restoreInstant(c, store, opt) })(c)
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error { return restoreFiles(c, store, opt) })(c)
	},
}

// restoreOptions reads the flags.
func restoreOptions(c *cli.Context) (opt snapshot.RestoreOptions, err error) {
	opt = snapshot.RestoreOptions{
		Dir:           c.Args().Get(1),
		Strict:        c.Bool("strict"),
		Force:         c.Bool("force"),
		DryRun:        c.Bool("dry-run"),
		PreserveOwner: c.Bool("preserve-owner"),
		NoHardlinks:   c.Bool("no-hardlinks"),
		Artifacts:     c.String("artifacts"),
		Conversation:  c.String("conversation"),
	}
	switch {
	case c.Bool("overlay") && c.Bool("mirror"):
		return opt, usagef("--overlay keeps what --mirror deletes: choose one of them")
	case c.Bool("overlay"):
		opt.Mode = restore.Overlay
	case c.Bool("mirror"):
		opt.Mode = restore.Mirror
	}
	if opt.Conversation == "-" {
		return opt, snapshot.WithHint(usage(fmt.Errorf("--conversation - is no file")), "snapfs conversation REF prints it")
	}
	if path := c.String("policy"); given(c, "policy") {
		file, err := readPolicy(c.Context, path, "policy file "+quote(path))
		if err != nil {
			return opt, err
		}
		opt.Include, opt.Exclude = file.files.Include, file.files.Exclude
	}
	opt.Include = append(opt.Include, rules(c, "include")...)
	opt.Exclude = append(opt.Exclude, rules(c, "exclude")...)
	if owner := c.String("owner"); owner != "" {
		if opt.PreserveOwner {
			return opt, usagef("--owner and --preserve-owner: choose one of them")
		}
		if opt.Owner, err = parseOwner(owner); err != nil {
			return opt, usagef("--owner %w", err)
		}
	}
	if me := os.Geteuid(); me != 0 && (opt.PreserveOwner || opt.Owner != nil && int(opt.Owner.UID) != me) {
		return opt, snapshot.WithHint(fmt.Errorf("only root gives files to others: %w", snapshot.ErrForbidden), "leave --owner and --preserve-owner out, and the files are yours")
	}
	return opt, nil
}

// restoreCounts is what restore prints with --json.
type restoreCounts struct {
	Checkpoint string           `json:"checkpoint"`
	Files      int64            `json:"files"`
	Dirs       int64            `json:"dirs"`
	Bytes      int64            `json:"bytes"`
	Skipped    int64            `json:"skipped"`
	Created    int64            `json:"created"`
	Replaced   int64            `json:"replaced"`
	Deleted    int64            `json:"deleted"`
	Kept       int64            `json:"kept"`
	Redacted   int64            `json:"redacted"` // files with zero bytes in place of secrets
	Incomplete []incompleteItem `json:"incomplete,omitempty"`
}

type incompleteItem struct {
	snapshot.Path
	Error string `json:"error"`
}

func restoreFiles(c *cli.Context, store *snapshot.Store, opt snapshot.RestoreOptions) error {
	ref := c.Args().First()
	opt.Resuming = func() {
		if isTerminal(os.Stderr) && !c.Bool("quiet") {
			fmt.Fprint(stderr, clearLine) // a bar may be there
		}
		summary(c, "resuming the unfinished restore of %s into %s", quote(ref), quote(opt.Dir))
	}
	var plan []restore.Change
	if opt.DryRun {
		opt.Plan = func(all []restore.Change) { plan = all }
	}
	ctx, done := watch(c, "files")
	res, err := store.Restore(ctx, ref, opt)
	done()
	if opt.DryRun && (err == nil || len(plan) > 0) {
		if perr := printRestorePlan(c, res, plan); err == nil {
			err = perr
		}
		return err
	}
	if err != nil {
		return err
	}
	counts := restoreCounts{
		Checkpoint: res.Checkpoint.ID, Files: res.Files, Dirs: res.Dirs, Bytes: res.Bytes, Skipped: res.Skipped,
		Created: res.Created, Replaced: res.Replaced, Deleted: res.Deleted, Kept: res.Kept,
		Redacted: res.RedactedFiles,
	}
	changed := ""
	if opt.Mode != restore.New && res.Created+res.Replaced+res.Deleted+res.Kept > 0 {
		changed = fmt.Sprintf(": %d created, %d replaced, %d deleted, %d kept", res.Created, res.Replaced, res.Deleted, res.Kept)
	}
	summary(c, "restored %s, %s, %s to %s%s", plural(res.Files, "file", "files"), plural(res.Dirs, "directory", "directories"), size(res.Bytes), quote(opt.Dir), changed)
	if len(opt.Include) > 0 && res.Created+res.Replaced+res.Kept == 0 {
		fmt.Fprintln(stderr, "warning: nothing in the checkpoint matches what is included")
	}
	if res.Skipped > 0 {
		summary(c, "skipped: %s", plural(res.Skipped, "excluded entry", "excluded entries"))
	}
	reportRedacted(stderr, res.Result)
	reportIncomplete(res.Incomplete)
	for _, p := range res.Incomplete {
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

// instantOnly refuses flags that change what is copied: nothing is.
func instantOnly(c *cli.Context) error {
	for _, name := range []string{"include", "exclude", "policy", "strict", "overlay", "mirror", "dry-run", "force", "owner", "no-hardlinks", "z"} {
		if given(c, name) || c.Bool(name) {
			dashes := "--"
			if len(name) == 1 {
				dashes = "-"
			}
			return snapshot.WithHint(usagef("--instant shows a whole checkpoint as it was saved, not together with %s%s", dashes, name), "without --instant the files are copied")
		}
	}
	return nil
}

// restoreInstant makes an instant workspace of a directory that a restore may fill.
func restoreInstant(c *cli.Context, store *snapshot.Store, opt snapshot.RestoreOptions) error {
	ref := c.Args().First()
	var w snapshot.InstantWorkspace
	err := store.RestoreBeside(c.Context, ref, opt, func() (err error) {
		w, err = workspace.Create(c.Context, store, ref, workspace.CreateOptions{Dir: opt.Dir, Start: serverStarter(c, store)})
		return err
	})
	if err != nil {
		return err
	}
	cp, err := store.Resolve(c.Context, w.Checkpoint)
	if err != nil {
		return err
	}
	summary(c, "mounted %s, %s, %s at %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"), size(cp.Bytes), quote(opt.Dir))
	if c.Bool("json") {
		return printJSON(restoreCounts{Checkpoint: cp.ID, Files: int64(cp.Files), Dirs: int64(cp.Dirs), Bytes: int64(cp.Bytes)})
	}
	return nil
}

// reportRedacted warns of files that lack the secrets that they had.
func reportRedacted(w io.Writer, res restore.Result) {
	if res.RedactedFiles == 0 {
		return
	}
	const few = 10
	have := "has"
	if res.RedactedFiles > 1 {
		have = "have"
	}
	fmt.Fprintf(w, "warning: %s %s zero bytes where declared secrets were; put those back before they are used:\n", plural(res.RedactedFiles, "file", "files"), have)
	for _, path := range res.Redacted[:min(few, len(res.Redacted))] {
		fmt.Fprintf(w, "  %s\n", quote(path))
	}
	if more := res.RedactedFiles - few; more > 0 {
		fmt.Fprintf(w, "  and %s more, which snapfs show lists\n", humanize.Comma(more))
	}
}

// reportIncomplete lists what could not be made as it was saved. A file system that
// cannot hold something would say so of each file: of one kind some are named.
func reportIncomplete(problems []restore.Problem) {
	const few = 20
	seen := map[string]int{}
	var order []string
	for _, p := range problems {
		why := p.Err.Error()
		if seen[why]++; seen[why] == 1 {
			order = append(order, why)
		}
		if seen[why] <= few {
			fmt.Fprintf(stderr, "incomplete: %s: %s\n", quote(p.Path), inLine(p.Err.Error()))
		}
	}
	for _, why := range order {
		if more := seen[why] - few; more > 0 {
			fmt.Fprintf(stderr, "incomplete: and %d more, which --json lists: %s\n", more, inLine(why))
		}
	}
}
