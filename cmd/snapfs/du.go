package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var duCommand = &cli.Command{
	Name:      "du",
	Usage:     "tell what a directory of a checkpoint and each entry in it take",
	ArgsUsage: "REF [PATH]",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 2); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			return printWhole(func(w io.Writer) error { return du(c, store, w) })
		})(c)
	},
}

func du(c *cli.Context, store *snapshot.Store, w io.Writer) error {
	row := func(s snapshot.Sizes) error { return writeJSON(w, s) }
	if !c.Bool("json") {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		defer tw.Flush()
		fmt.Fprintln(tw, "SIZE\tUNIQUE\tSTORED\tFILES\tPATH")
		row = func(s snapshot.Sizes) error {
			_, err := fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\n", size(s.Bytes), size(s.UniqueBytes), size(s.StoredBytes), s.Files, quote(s.Raw()))
			return err
		}
	}
	return store.Du(c.Context, c.Args().Get(0), c.Args().Get(1), row)
}
