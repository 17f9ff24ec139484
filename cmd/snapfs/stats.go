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
	Usage: "tell what takes the room in the store, and what its mounts were asked",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		return withStore(false, stats)(c)
	},
}

// statsDoc is what stats prints in JSON.
type statsDoc struct {
	snapshot.Stats
	Usage *snapshot.Usage `json:"usage,omitempty"` // none where something is damaged
}

// stats prints what can be counted without the trees, even if one of them is damaged.
func stats(c *cli.Context, store *snapshot.Store) error {
	st, err := store.Stats(c.Context)
	if err != nil {
		return err
	}
	dir := snapshot.NewPath(store.Dir())
	st.Store, st.StoreBytes = dir.Text, dir.Bytes
	doc := statsDoc{Stats: st}
	ctx, end := watch(c, "objects")
	u, damage := store.Usage(ctx)
	end()
	if damage == nil {
		doc.Usage = &u
	}
	if c.Bool("json") {
		err = printJSON(doc)
	} else {
		err = doc.print()
	}
	if damage != nil {
		return damage
	}
	return err
}

func (d statsDoc) print() error {
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "store\t%s\nthreads\t%d\ncheckpoints\t%d\npacks\t%d (%s)\n", quote(snapshot.Path{Text: d.Store, Bytes: d.StoreBytes}.Raw()), d.Threads, d.Checkpoints, d.Packs, size(d.PackBytes))
	if u := d.Usage; u != nil {
		fmt.Fprintf(tw, "logical\t%s\nunique\t%s (dedup ratio %.1f)\nstored\t%s (compression ratio %.1f)\nreclaimable\t%s\n",
			size(u.LogicalBytes), size(u.UniqueBytes), u.DedupRatio, size(u.StoredBytes), u.CompressionRatio, size(u.ReclaimableBytes))
		if u.Limit > 0 {
			fmt.Fprintf(tw, "limit\t%s (%s used)\n", size(u.Limit), size(u.LimitedBytes))
		}
	}
	for _, m := range d.Mounts {
		fmt.Fprintf(tw, "mount\t%s (%s)\n", quote(snapshot.Path{Text: m.Mountpoint, Bytes: m.Bytes}.Raw()), plural(m.Inodes, "inode", "inodes"))
	}
	for _, op := range slices.Sorted(maps.Keys(d.Fuse.Requests)) {
		fmt.Fprintf(tw, "fuse %s\t%d\n", op, d.Fuse.Requests[op])
	}
	if err := tw.Flush(); err != nil || d.Usage == nil || len(d.Usage.Threads) == 0 {
		return err
	}
	fmt.Fprintln(stdout)
	threads := slices.Clone(d.Usage.Threads)
	slices.SortStableFunc(threads, func(a, b snapshot.ThreadUsage) int { return int(b.FreedBytes - a.FreedBytes) })
	more := max(0, len(threads)-tableLimit)
	return table("THREAD\tCHECKPOINTS\tSIZE\tDELETING IT FREES", func(row func(string, ...any)) {
		for _, t := range threads[:len(threads)-more] {
			row("%s\t%d\t%s\t%s", quote(t.Thread), t.Checkpoints, size(t.LogicalBytes), size(t.FreedBytes))
		}
		if more > 0 {
			row("and %d more", more)
		}
	})
}
