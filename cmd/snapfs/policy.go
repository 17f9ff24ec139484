package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

var policyCommand = &cli.Command{
	Name:  "policy",
	Usage: "tell what the rules for saving mean; no store is needed",
	Subcommands: []*cli.Command{
		{
			Name:      "explain",
			Usage:     "tell whether a path is saved, and which rule decides",
			ArgsUsage: "PATH",
			Flags: append([]cli.Flag{
				&cli.StringFlag{Name: "workspace", Value: ".", Usage: "the `DIR` that the path is in"},
			}, policyFlags...),
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return explainPolicy(c)
			},
		},
		{
			Name:      "check",
			Usage:     "look for rules of a policy file that have no effect",
			ArgsUsage: "FILE",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "workspace", Usage: "also for rules that match nothing in `DIR`"},
			},
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return checkPolicy(c)
			},
		},
		{
			Name:  "defaults",
			Usage: "list what is left out by default, and why",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 0, 0); err != nil {
					return err
				}
				return listDefaults(c)
			},
		},
	},
}

// findingDoc is a finding about a rule in JSON.
type findingDoc struct {
	Source  string `json:"source"` // FILE:LINE
	Pattern string `json:"pattern"`
	Problem string `json:"problem"`
}

func checkPolicy(c *cli.Context) error {
	name := c.Args().First()
	file, err := readPolicy(c.Context, name, quote(name))
	if err != nil {
		return err
	}
	files, err := policy.CompileFiles(file.files)
	if err != nil {
		return err
	}
	findings := policy.Lint(file.files)
	if dir := c.String("workspace"); dir != "" {
		unmatched, err := unmatchedRules(c, files, dir)
		if err != nil {
			return err
		}
		found := map[policy.Rule]bool{}
		for _, f := range findings {
			found[f.Rule] = true
		}
		for _, r := range unmatched {
			if !found[r] && r.Source != policy.DefaultSource {
				findings = append(findings, policy.Finding{Rule: r, Problem: "matches nothing in " + quote(dir)})
			}
		}
	}
	err = printWhole(func(w io.Writer) error {
		for _, f := range findings {
			var err error
			if c.Bool("json") {
				err = writeJSON(w, findingDoc{f.Rule.Source, f.Rule.Pattern, f.Problem})
			} else {
				_, err = fmt.Fprintf(w, "%s: %s: %s\n", f.Rule.Source, quote(f.Rule.Pattern), printableText(f.Problem))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(findings) > 0 {
		err = exit(exitTrouble)
	}
	return err
}

// unmatchedRules goes through a workspace as a save does, and returns the rules that
// match nothing in it. It warns when no file is left.
func unmatchedRules(c *cli.Context, files *policy.Files, dir string) ([]policy.Rule, error) {
	files, unmatched := files.Watched()
	ctx, done := watch(c, "files")
	got, stored, err := capture.Plan(ctx, dir, capture.Options{Files: files, SkipUnreadable: true})
	done()
	if err != nil {
		return nil, absent(err)
	}
	isFile := func(e capture.Planned) bool { return e.Kind != tree.Dir }
	if len(got.Left) > 0 && !slices.ContainsFunc(stored, isFile) {
		warn("of %s no file is saved", quote(dir))
	}
	return unmatched(), nil
}

// defaultDoc is a default in JSON.
type defaultDoc struct {
	Pattern string `json:"pattern"`
	Reason  string `json:"reason"`
}

func listDefaults(c *cli.Context) error {
	var docs []defaultDoc
	for _, d := range policy.DefaultList() {
		docs = append(docs, defaultDoc(d))
	}
	if c.Bool("json") {
		return printLines(docs)
	}
	return table("PATTERN\tREASON", func(row func(string, ...any)) {
		for _, d := range docs {
			row("%s\t%s", d.Pattern, d.Reason)
		}
	})
}

// explainDoc is what policy explain prints with --json.
type explainDoc struct {
	snapshot.Path
	Kind string `json:"kind,omitempty"` // absent: nothing is there
	verdictDoc
	Restore verdictDoc `json:"restore"`
}

// verdictDoc is what becomes of a path, and why.
type verdictDoc struct {
	Verdict string         `json:"verdict"` // include or exclude
	Rule    *ruleDoc       `json:"rule,omitempty"`
	At      *snapshot.Path `json:"at,omitempty"` // the directory above at which the rule decided
	Why     string         `json:"why"`
}

type ruleDoc struct {
	Pattern string `json:"pattern"`
	Source  string `json:"source"`
}

func explainPolicy(c *cli.Context) error {
	said, err := readPolicyFlags(c)
	if err != nil {
		return err
	}
	files, settings := said.files, said.settings
	path, isDir, err := pathIn(c.String("workspace"), c.Args().First())
	if err != nil {
		return err
	}
	save, err := policy.CompileFiles(files)
	if err != nil {
		return err
	}
	files.NoDefaults = true
	restore, err := policy.CompileFiles(files)
	if err != nil {
		return err
	}
	e, err := capture.Explain(c.String("workspace"), path, isDir, capture.Options{Files: save, Settings: settings})
	if err != nil {
		return absent(err)
	}
	for _, w := range e.Warnings {
		warn("%s", w)
	}
	if e.Kind == "" {
		summary(c, "nothing is at %s: its name decides", quote(e.Path))
	}
	if max := settings.MaxFileSize; e.Kind == "file" && e.Kept() && max > 0 && e.Size > max {
		warn("%s is %d bytes long, the limit is %d: a save fails", quote(e.Path), e.Size, max)
	}
	doc := explainDoc{Path: snapshot.NewPath(e.Path), Kind: e.Kind, verdictDoc: verdict(e.Path, e.Trace, e.Why), Restore: verdict(e.Path, restore.Explain(path, e.IsDir), "")}
	if c.Bool("json") {
		return printJSON(doc)
	}
	_, err = fmt.Fprintf(stdout, "%s %s: %s\nrestore: %s: %s\n", doc.Verdict, quote(e.Path), printableText(doc.Why), doc.Restore.Verdict, printableText(doc.Restore.Why))
	return err
}

// verdict says what rules have decided about a path, or why something else has.
func verdict(path string, t policy.Trace, why string) verdictDoc {
	doc := verdictDoc{Verdict: "exclude"}
	if why == "" && (t.Decision.Keep || t.Decision.Descend) {
		doc.Verdict = "include"
	}
	switch r := t.Decision.Rule; {
	case why != "":
		doc.Why = why
	case r != (policy.Rule{}):
		doc.Rule = &ruleDoc{r.Pattern, r.Source}
		doc.Why = fmt.Sprintf("rule %s (%s)", quote(r.Pattern), r.Source)
		if t.At != path {
			at := snapshot.NewPath(t.At)
			doc.At = &at
			doc.Why += " at " + quote(t.At)
		}
	case t.Decision.Keep:
		doc.Why = "no rule excludes it"
	case t.Decision.Descend:
		doc.Why = "what includes match below it"
	default:
		doc.Why = "no include matches it"
	}
	doc.Why = strings.ToValidUTF8(doc.Why, "\uFFFD")
	return doc
}
