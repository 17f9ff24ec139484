package main

import (
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/snapshot"
)

// restoreDoc is what restore --dry-run prints with --json.
type restoreDoc struct {
	Checkpoint string        `json:"checkpoint"`
	Create     int64         `json:"create"`
	Replace    int64         `json:"replace"`
	Delete     int64         `json:"delete"`
	Keep       int64         `json:"keep"`
	Skip       int64         `json:"skip"`
	Redacted   int64         `json:"redacted"` // of those that are created or replaced, files with zero bytes in place of secrets
	Changes    []restoreStep `json:"changes"`
}

type restoreStep struct {
	Op restore.Op `json:"op"`
	snapshot.Path
	Why      string `json:"why,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
}

// printRestorePlan prints what a restore would do.
func printRestorePlan(c *cli.Context, res snapshot.RestoreResult, plan []restore.Change) error {
	summary(c, "would create %d, replace %d, delete %d, keep %d, skip %d", res.Created, res.Replaced, res.Deleted, res.Kept, res.Skipped)
	if c.Bool("json") {
		doc := restoreDoc{
			Checkpoint: res.Checkpoint.ID, Create: res.Created, Replace: res.Replaced, Delete: res.Deleted, Keep: res.Kept, Skip: res.Skipped,
			Redacted: res.RedactedFiles,
			Changes:  make([]restoreStep, len(plan)),
		}
		for i, p := range plan {
			doc.Changes[i] = restoreStep{Op: p.Op, Path: snapshot.NewPath(p.Path), Why: p.Why, Redacted: p.Redacted}
		}
		return printJSON(doc)
	}
	if c.Bool("z") {
		return printNames(plan, func(p restore.Change) string { return string(p.Op) + " " + p.Path })
	}
	return printWhole(func(w io.Writer) error {
		for _, p := range plan {
			if _, err := fmt.Fprintln(w, planLine(p)); err != nil {
				return err
			}
		}
		return nil
	})
}

// planLine is a change as the plan of a restore shows it.
func planLine(p restore.Change) string {
	line := string(p.Op) + " " + quote(p.Path)
	if p.Why != "" {
		line += " (" + inLine(p.Why) + ")"
	}
	if p.Redacted {
		line += " with zero bytes where secrets were"
	}
	return line
}

// parseOwner reads USER:GROUP, or USER alone for that user's own group.
func parseOwner(text string) (*restore.Owner, error) {
	name, group, given := strings.Cut(text, ":")
	if name == "" || given && group == "" {
		return nil, fmt.Errorf("%s: want USER:GROUP", quote(text))
	}
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		u, err := user.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("%s: no user %s", quote(text), quote(name))
		}
		if uid, err = strconv.ParseUint(u.Uid, 10, 32); err != nil {
			return nil, err
		}
		if !given {
			group = u.Gid
		}
	} else if !given {
		u, err := user.LookupId(name)
		if err != nil {
			return nil, fmt.Errorf("%s: no user has that number, and no group is given: want USER:GROUP", quote(text))
		}
		group = u.Gid
	}
	gid, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		g, err := user.LookupGroup(group)
		if err != nil {
			return nil, fmt.Errorf("%s: no group %s", quote(text), quote(group))
		}
		if gid, err = strconv.ParseUint(g.Gid, 10, 32); err != nil {
			return nil, err
		}
	}
	const none = 1<<32 - 1 // chown(2) leaves the owner alone then
	if uid == none || gid == none {
		return nil, errors.New("-1 is nobody")
	}
	return &restore.Owner{UID: uint32(uid), GID: uint32(gid)}, nil
}
