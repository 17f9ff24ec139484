package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// The exit codes of what compares, as those of diff(1).
const (
	exitDiffer      = 1
	exitDiffTrouble = 2
)

// diffFlags are those of all that compares.
var diffFlags = []cli.Flag{
	&cli.BoolFlag{Name: "owner", Usage: "owners count too"},
	&cli.BoolFlag{Name: "no-renames", Usage: "tell what was renamed as deleted and added"},
	&cli.BoolFlag{Name: "stat", Usage: "also how many lines were inserted and deleted, and a sum"},
	&cli.BoolFlag{Name: "patch", Usage: "print a patch with git's headers, for patch -p1 or git apply"},
	zeroFlag,
}

var diffCommand = &cli.Command{
	Name:      "diff",
	Usage:     "compare two checkpoints, or one and a directory: A added, D deleted, M content, m metadata, T kind, R renamed",
	ArgsUsage: "REF REF|DIR [PATH]...",
	Flags: append([]cli.Flag{
		&cli.BoolFlag{Name: "artifacts", Usage: "compare the artifacts, too"},
		&cli.BoolFlag{Name: "conversation", Usage: "compare the conversations, too"},
	}, diffFlags...),
	Action: comparing(func(c *cli.Context) error {
		if err := arguments(c, 2, maxArguments); err != nil {
			return err
		}
		return withStore(false, diff)(c)
	}),
}

// comparing gives what compares its own exit codes.
func comparing(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		err := checkForm(c)
		if err == nil {
			err = action(c)
		}
		var coded *codeError
		if err == nil || (errors.As(err, &coded) && coded.err == nil) {
			return err
		}
		return &codeError{code: exitDiffTrouble, err: err}
	}
}

// checkForm refuses flags that ask for two forms of output.
func checkForm(c *cli.Context) error {
	switch {
	case c.Bool("stat") && c.Bool("patch"):
		return usagef("--stat and --patch: want one of them")
	case c.Bool("z") && (c.Bool("stat") || c.Bool("patch")):
		return usagef("-z is for names alone: it goes with neither --stat nor --patch")
	}
	return nil
}

// changeDoc is a difference in JSON.
type changeDoc struct {
	Op string `json:"op"`
	snapshot.Path
	OldPath      string `json:"oldPath,omitempty"` // of what was renamed; see [snapshot.Path]
	OldPathBytes string `json:"oldPathBytes,omitempty"`
	// Changed says what of an entry is another than before, but for what was added,
	// deleted, or is of another kind.
	Changed []string `json:"changed,omitempty"`
}

func newChange(ch tree.Change, owner bool) changeDoc {
	doc := changeDoc{Op: ch.Op.String(), Path: snapshot.NewPath(ch.Path)}
	if ch.From != "" {
		from := snapshot.NewPath(ch.From)
		doc.OldPath, doc.OldPathBytes = from.Text, from.Bytes
	}
	if ch.Old == nil || ch.New == nil || ch.Op == tree.Type {
		return doc
	}
	old, new := ch.Old, ch.New
	for _, what := range []struct {
		name    string
		differs bool
	}{
		{"content", ch.Op == tree.Modified && (old.Hash != new.Hash || old.Target != new.Target)},
		{"mode", old.Mode != new.Mode},
		{"owner", owner && (old.Owned != new.Owned || old.UID != new.UID || old.GID != new.GID)},
		{"mtime", old.MtimeSec != new.MtimeSec || old.MtimeNsec != new.MtimeNsec},
		{"attributes", old.XAttrs != new.XAttrs},
		{"flags", old.Flags != new.Flags},
	} {
		if what.differs {
			doc.Changed = append(doc.Changed, what.name)
		}
	}
	return doc
}

func diff(c *cli.Context, store *snapshot.Store) error {
	compared, err := compare(c, store, c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return err
	}
	defer compared.Close()
	return printChanges(c, compared, c.Args().Slice()[2:])
}

// compare begins to compare a checkpoint with another one, or with a directory. What
// begins like a path is a directory if there is one; anything else is a directory if it
// is no reference.
func compare(c *cli.Context, store *snapshot.Store, old, new string) (*snapshot.Comparison, error) {
	path := pathLike(new)
	if path && isDirectory(new) {
		return compareDir(c, store, old, new)
	}
	compared, err := store.Compare(c.Context, old, new)
	if !errors.Is(err, index.ErrCheckpointNotFound) {
		return compared, err
	}
	_, second := store.Resolve(c.Context, new)
	switch missing := errors.Is(second, index.ErrCheckpointNotFound); {
	case missing && isDirectory(new):
		return compareDir(c, store, old, new)
	case missing && path:
		err = snapshot.WithHint(fmt.Errorf("%s: no such directory, and no checkpoint", quote(new)), "snapfs diff REF DIR compares a checkpoint with a directory that is there")
	case !missing && isDirectory(old):
		err = snapshot.WithHint(fmt.Errorf("%s is a directory, and no checkpoint", quote(old)), "the directory comes second: snapfs diff REF DIR")
	}
	return nil, err
}

// pathLike reports whether an argument begins as only a path does.
func pathLike(arg string) bool {
	return arg == "." || arg == ".." || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// compareDir begins to compare a checkpoint with a directory.
func compareDir(c *cli.Context, store *snapshot.Store, ref, dir string) (*snapshot.Comparison, error) {
	if c.Bool("artifacts") || c.Bool("conversation") {
		return nil, usagef("--artifacts and --conversation are for two checkpoints: a directory has neither")
	}
	ctx, done := watch(c, "files")
	defer done()
	return store.CompareDir(ctx, ref, dir)
}

// printChanges prints the differences, below some paths if there are any.
func printChanges(c *cli.Context, compared *snapshot.Comparison, paths []string) error {
	opt := snapshot.DiffOptions{Owner: c.Bool("owner"), NoRenames: c.Bool("no-renames"), Paths: paths}
	opt.TooMany = func() {
		warn("more than %d entries were added or deleted: not all that was renamed is told as that", tree.MaxRenames)
	}
	differ := false
	var sum statSum
	err := printWhole(func(w io.Writer) error {
		err := compared.Changes(c.Context, opt, func(ch tree.Change) error {
			differ = true
			switch {
			case c.Bool("patch"):
				return compared.Patch(c.Context, w, ch)
			case c.Bool("stat"):
				return printStat(c, w, compared, ch, &sum)
			}
			return printChange(c, w, ch)
		})
		if err == nil {
			var more bool
			more, err = printBeside(c, w, compared)
			differ = differ || more
		}
		if err == nil && differ && c.Bool("stat") {
			err = sum.print(c, w)
		}
		return err
	})
	if err == nil && differ {
		return exit(exitDiffer)
	}
	return err
}

func printChange(c *cli.Context, w io.Writer, ch tree.Change) error {
	var err error
	switch {
	case c.Bool("json"):
		err = writeJSON(w, newChange(ch, c.Bool("owner")))
	case c.Bool("z") && ch.From != "":
		_, err = fmt.Fprintf(w, "%s %s\x00%s\x00", ch.Op, ch.From, ch.Path)
	case c.Bool("z"):
		_, err = fmt.Fprintf(w, "%s %s\x00", ch.Op, ch.Path)
	default:
		_, err = fmt.Fprintf(w, "%s %s\n", ch.Op, changedPath(ch))
	}
	return err
}

// artifactDoc is an artifact that only one checkpoint holds, in JSON.
type artifactDoc struct {
	Op       string            `json:"op"`
	Artifact snapshot.Artifact `json:"artifact"`
}

// conversationDoc says in JSON that conversations differ.
type conversationDoc struct {
	Op           string `json:"op"`
	Conversation bool   `json:"conversation"`
	Appended     int    `json:"appended,omitempty"` // messages, after all of the first one
}

// printBeside prints what differs beside the files, as far as that is asked for.
func printBeside(c *cli.Context, w io.Writer, compared *snapshot.Comparison) (differ bool, err error) {
	end := "\n"
	if c.Bool("z") {
		end = "\x00"
	}
	name := quote
	if c.Bool("z") {
		name = func(s string) string { return s }
	}
	if c.Bool("artifacts") {
		list, err := compared.Artifacts(c.Context)
		if err != nil {
			return false, err
		}
		for _, a := range list {
			differ = true
			if c.Bool("json") {
				err = writeJSON(w, artifactDoc{a.Op.String(), a.Artifact})
			} else {
				_, err = fmt.Fprintf(w, "%s artifact %s (%s)%s", a.Op, name(a.Artifact.Name), name(a.Artifact.ID), end)
			}
			if err != nil {
				return false, err
			}
		}
	}
	if c.Bool("conversation") {
		ch, err := compared.Conversation(c.Context)
		if ch == nil || err != nil {
			return differ, err
		}
		differ = true
		switch {
		case c.Bool("json"):
			err = writeJSON(w, conversationDoc{ch.Op.String(), true, ch.Appended})
		case c.Bool("patch") && ch.Appended > 0:
			_, err = fmt.Fprintf(w, "%s conversation (%s appended)\n", ch.Op, plural(ch.Appended, "message", "messages"))
		default:
			_, err = fmt.Fprintf(w, "%s conversation%s", ch.Op, end)
		}
		return differ, err
	}
	return differ, nil
}

// arrow stands between the two paths of what was renamed.
const arrow = " -> "

// changedPath shows the path of a change, or both of them.
func changedPath(ch tree.Change) string {
	if ch.From == "" {
		return quote(ch.Path)
	}
	word := func(path string) string {
		if q := quote(path); q != path || !strings.Contains(path, arrow) {
			return q
		}
		return `"` + path + `"`
	}
	return word(ch.From) + arrow + word(ch.Path)
}
