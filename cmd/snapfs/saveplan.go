package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// What becomes of an entry in a plan.
const (
	planStored = "+"
	planLeft   = "-"
	planPart   = "~" // it is stored, but not all of it
)

// planDoc is an entry of a plan in JSON.
type planDoc struct {
	Op string `json:"op"`
	snapshot.Path
	Kind string `json:"kind,omitempty"`
	Size uint64 `json:"size,omitempty"`
	Why  string `json:"why,omitempty"`
}

// planSave prints what a save would store and leave out.
func planSave(c *cli.Context, opt snapshot.SaveOptions) error {
	store, err := storeDir(c)
	if err != nil {
		return err
	}
	ctx, done := watch(c, "files")
	plan, err := snapshot.PlanSave(ctx, store, opt)
	done()
	if err != nil {
		return saveHint(err)
	}
	docs, counts := planDocs(plan)
	err = printWhole(func(w io.Writer) error {
		for _, d := range docs {
			if err := d.print(c, w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	summary(c, "would save %s, %s, %s", plural(counts.files, "file", "files"), plural(counts.dirs, "directory", "directories"), size(counts.bytes))
	if left := leftOut(plan.Result); left != "" {
		summary(c, "would leave out: %s", left)
	}
	warnings(plan.Result, len(plan.Stored) == 0, "they are listed above")
	if plan.Result.Unreadable+plan.Result.Over > 0 {
		return exit(exitIncomplete)
	}
	return nil
}

// planCounts are of what would be stored.
type planCounts struct{ files, dirs, bytes uint64 }

// planDocs merges what is stored and what is left out in order of paths.
func planDocs(plan snapshot.SavePlan) (docs []planDoc, counts planCounts) {
	left, redacted := plan.Left, map[string]int{}
	for _, f := range plan.Result.Found {
		redacted[f.Path] += len(f.Redacted)
	}
	for _, e := range plan.Stored {
		for len(left) > 0 && left[0].Path < e.Path {
			docs = append(docs, planDoc{Op: planLeft, Path: snapshot.NewPath(left[0].Path), Why: left[0].Why})
			left = left[1:]
		}
		doc := planDoc{Op: planStored, Path: snapshot.NewPath(e.Path), Kind: e.Kind.String(), Size: e.Size}
		var why []string
		if n := redacted[e.Path]; n > 0 {
			why = append(why, "without "+plural(n, "declared secret", "declared secrets"))
		}
		for len(left) > 0 && left[0].Path == e.Path {
			why = append(why, left[0].Why)
			left = left[1:]
		}
		if len(why) > 0 {
			doc.Op, doc.Why = planPart, strings.Join(why, "; ")
		}
		docs = append(docs, doc)
		if e.Kind == tree.Dir {
			counts.dirs++
			continue
		}
		counts.files++
		if e.Kind == tree.File {
			counts.bytes += e.Size
		}
	}
	for _, o := range left {
		docs = append(docs, planDoc{Op: planLeft, Path: snapshot.NewPath(o.Path), Why: o.Why})
	}
	return docs, counts
}

func (d planDoc) print(c *cli.Context, w io.Writer) (err error) {
	switch {
	case c.Bool("json"):
		err = writeJSON(w, d)
	case c.Bool("z"):
		_, err = fmt.Fprintf(w, "%s %s\x00", d.Op, d.Raw())
	case d.Why != "":
		_, err = fmt.Fprintf(w, "%s %s: %s\n", d.Op, quote(d.Raw()), printableText(d.Why))
	default:
		_, err = fmt.Fprintf(w, "%s %s\n", d.Op, quote(d.Raw()))
	}
	return err
}
