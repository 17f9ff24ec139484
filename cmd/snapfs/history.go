package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var historyCommand = &cli.Command{
	Name:      "history",
	Usage:     "list the checkpoints in which a path changed, newest first",
	ArgsUsage: "THREAD PATH",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		return withStore(false, history)(c)
	},
}

// revisionDoc is a checkpoint in which a path changed, in JSON.
type revisionDoc struct {
	Op string `json:"op"`
	snapshot.Checkpoint
}

func history(c *cli.Context, store *snapshot.Store) error {
	var docs []revisionDoc
	err := store.History(c.Context, c.Args().Get(0), c.Args().Get(1), func(r snapshot.Revision) error {
		docs = append(docs, revisionDoc{r.Op.String(), r.Checkpoint})
		return nil
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printLines(docs)
	}
	return table("OP\tCHECKPOINT\tCREATED\tNAME\tMESSAGE", func(row func(string, ...any)) {
		for _, d := range docs {
			row("%s\t%s\t%s\t%s\t%s", d.Op, quote(d.ID), when(d.Created), quoteOr(d.Name), firstLine(d.Message))
		}
	})
}

// shownMessage is how much of a message a table shows, in characters.
const shownMessage = 60

// firstLine shows the beginning of a message.
func firstLine(message string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(message), "\n")
	runes := []rune(line)
	if len(runes) > shownMessage {
		runes, rest = runes[:shownMessage], "more"
	}
	line = inLine(string(runes))
	if rest != "" {
		line += " ..."
	}
	return line
}
