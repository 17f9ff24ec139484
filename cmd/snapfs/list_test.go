package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// TestListLimit: a table is short unless more is asked for, and what scripts
// read is whole.
func TestListLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	store, err := snapshot.Open(t.Context(), dir, snapshot.Options{Create: true})
	require.NoError(t, err)
	defer store.Close()
	ws := t.TempDir()
	const all = tableLimit + 3
	for i := range all {
		labels := map[string]string{"odd": fmt.Sprint(i % 2)}
		_, err := store.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t", Labels: labels})
		require.NoError(t, err)
	}
	_, err = store.Verify(t.Context(), snapshot.VerifyOptions{}, func(problem string) error { return fmt.Errorf("verify: %s", problem) })
	require.NoError(t, err)
	require.NoError(t, store.Close())

	for _, c := range []struct {
		flags string
		lines int
	}{
		{"", 1 + tableLimit},
		{"--limit 0", 1 + all},
		{"--limit 102", 1 + 102},
		{"--json", all},
		{"-z", all},
		{"-z --limit 2", 2},
		{"--json --label odd=1", all / 2},
		{"--json --label odd=1 --limit 7", 7},
	} {
		t.Run(c.flags, func(t *testing.T) {
			stdout, _ := output(t, func() {
				args := append([]string{"snapfs", "--store", dir, "list", "t"}, strings.Fields(c.flags)...)
				require.Zero(t, run(t.Context(), args))
			})
			require.Equal(t, c.lines, strings.Count(stdout, "\n")+strings.Count(stdout, "\x00"))
		})
	}
}

// TestFiltered: a page of what is wanted is gathered from as many parts of the
// listing as that takes.
func TestFiltered(t *testing.T) {
	const all = 3*batch + 5
	list := func(p snapshot.Page) (got []int, err error) {
		first := 0
		if p.Before != "" {
			_, err = fmt.Sscan(p.Before, &first)
			first++
		}
		for i := first; i < all && (p.Limit == 0 || len(got) < p.Limit); i++ {
			got = append(got, i)
		}
		return got, err
	}
	wanted := func(n int) (bool, error) { return n >= batch && n%batch <= 1, nil }
	for _, c := range []struct {
		page snapshot.Page
		want []int
	}{
		{snapshot.Page{}, []int{batch, batch + 1, 2 * batch, 2*batch + 1, 3 * batch, 3*batch + 1}},
		{snapshot.Page{Limit: 3}, []int{batch, batch + 1, 2 * batch}},
		{snapshot.Page{Limit: 2, Before: fmt.Sprint(2 * batch)}, []int{2*batch + 1, 3 * batch}},
		{snapshot.Page{Limit: 9, Before: fmt.Sprint(3 * batch)}, []int{3*batch + 1}},
		{snapshot.Page{Before: fmt.Sprint(3*batch + 1)}, []int{}},
	} {
		got, err := filtered(c.page, list, func(n int) string { return fmt.Sprint(n) }, wanted)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
