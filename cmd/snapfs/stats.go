package main

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var statsCommand = &cli.Command{
	Name:  "stats",
	Usage: "count what the store holds and what its mounts were asked",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		return withStore(false, stats)(c)
	},
}

func stats(c *cli.Context, store *snapshot.Store) error {
	st, err := store.Stats(c.Context)
	if err != nil {
		return err
	}
	dir := snapshot.NewPath(store.Dir())
	st.Store, st.StoreBytes = dir.Text, dir.Bytes
	if c.Bool("json") {
		return printJSON(st)
	}
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "store\t%s\nthreads\t%d\ncheckpoints\t%d\npacks\t%d (%s)\n", quote(store.Dir()), st.Threads, st.Checkpoints, st.Packs, size(st.PackBytes))
	for _, m := range st.Mounts {
		fmt.Fprintf(tw, "mount\t%s (%s)\n", quote(snapshot.Path{Text: m.Mountpoint, Bytes: m.Bytes}.Raw()), plural(m.Inodes, "inode", "inodes"))
	}
	for _, op := range slices.Sorted(maps.Keys(st.Fuse.Requests)) {
		fmt.Fprintf(tw, "fuse %s\t%d\n", op, st.Fuse.Requests[op])
	}
	return tw.Flush()
}
