package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

var showCommand = &cli.Command{
	Name:      "show",
	Usage:     "show all that is known of a checkpoint, and what was left out of it",
	ArgsUsage: "REF",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		return withStore(false, show)(c)
	},
}

func show(c *cli.Context, store *snapshot.Store) error {
	cp, err := store.Show(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(cp)
	}
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	line := func(key, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			fmt.Fprintf(tw, "%s\t%s\n", key, text)
		}
	}
	line("checkpoint", "%s", quote(cp.ID))
	line("thread", "%s", quote(cp.Thread))
	if cp.Name != "" {
		line("name", "%s", quote(cp.Name))
	}
	if cp.Parent != "" {
		line("parent", "%s", quote(cp.Parent))
	}
	if cp.Origin != nil {
		line("origin", "%s of thread %s", quote(cp.Origin.Checkpoint), quote(cp.Origin.Thread))
	}
	line("created", "%s by %s, %s", when(cp.Created), quoteOr(cp.Creator.User), quote(cp.Reason))
	if cp.Run != "" {
		line("run", "%s", quote(cp.Run))
	}
	if cp.Message != "" {
		line("message", "%s", quote(cp.Message))
	}
	for _, key := range slices.Sorted(maps.Keys(cp.Labels)) {
		line("label", "%s=%s", quote(key), quote(cp.Labels[key]))
	}
	line("status", "%s", inLine(strings.TrimSuffix(cp.Status+": "+cp.StatusMessage, ": ")))
	line("content", "%s, %s, %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"), size(cp.Bytes))
	line("added", "%s", size(cp.NewBytes))
	if cp.Artifacts > 0 {
		line("artifacts", "%d", cp.Artifacts)
	}
	if cp.Conversation {
		line("conversation", "yes")
	}
	line("tree", "%s", cp.Tree)
	if rules, err := policy.Decode([]byte(cp.Policy)); err == nil { // a fork of an import may have none
		line("rules", "%s, %s, %s", plural(len(rules.Files.Exclude), "exclude", "excludes"), plural(len(rules.Files.Include), "include", "includes"), plural(len(rules.Ignore), "ignore file", "ignore files"))
	}
	line("left out", "%s", plural(cp.Omitted, "entry", "entries"))
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, o := range cp.Omissions {
		fmt.Fprintf(stdout, "  %s: %s\n", quote(o.Raw()), inLine(o.Why))
	}
	showSecrets(stdout, cp)
	return nil
}

// showSecrets prints what was found of secrets, if anything was.
func showSecrets(w io.Writer, cp snapshot.Checkpoint) {
	if cp.Redactions+cp.Findings == 0 && len(cp.Secrets) == 0 {
		return
	}
	fmt.Fprintf(w, "redactions  %s\nfindings    %s\n", plural(cp.Redactions, "value", "values"), humanize.Comma(int64(cp.Findings)))
	for _, doc := range cp.Secrets {
		at := secretPlace(doc.In, doc.Raw(), 0)
		if doc.Redacted > 0 {
			fmt.Fprintf(w, "  %s: %s redacted\n", at, plural(doc.Redacted, "value", "values"))
		}
		for _, f := range doc.Findings {
			fmt.Fprintf(w, "  %s: %s\n", secretPlace(doc.In, doc.Raw(), f.Line), inLine(f.Kind))
		}
		if doc.MoreFindings > 0 {
			fmt.Fprintf(w, "  %s: %s\n", at, plural(doc.MoreFindings, "more finding", "more findings"))
		}
	}
}
