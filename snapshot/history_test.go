package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/tree"
)

// TestHistory: however many checkpoints are asked for at once, over forks of forks.
func TestHistory(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	var want []string
	save := func(thread string, n int) {
		id := fmt.Sprintf("%s%d", thread, n)
		if n%3 == 1 {
			write(t, ws, map[string]string{"d/f": id})
			want = append([]string{"M " + id}, want...)
		}
		write(t, ws, map[string]string{"other": id})
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: thread, ID: id})
		require.NoError(t, err)
	}
	require.NoError(t, os.MkdirAll(ws, 0o755))
	for n := range 5 {
		save("a", n)
	}
	_, err := s.Fork(t.Context(), "a@latest", ForkOptions{Thread: "b"})
	require.NoError(t, err)
	save("b", 1)
	_, err = s.Fork(t.Context(), "b@latest", ForkOptions{Thread: "c"})
	require.NoError(t, err)
	write(t, ws, map[string]string{"d/f": "later"}) // which is no checkpoint of c's past
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "b", ID: "later"})
	require.NoError(t, err)
	save("c", 1)
	want[len(want)-1] = "A a1"
	for _, page := range []int{1, 2, 5, historyPage} {
		var got []string
		h := history{s: s, ctx: t.Context(), page: page, fn: func(r Revision) error {
			got = append(got, r.Op.String()+" "+r.Checkpoint.ID)
			return nil
		}}
		require.NoError(t, h.of("c", "d/f"))
		require.Equal(t, want, got, page)
	}
	require.ErrorIs(t, s.History(t.Context(), "c", "d/f/x", nil), tree.ErrNotFound)
	stop := fmt.Errorf("stop")
	require.Equal(t, stop, s.History(t.Context(), "c", "d", func(Revision) error { return stop }))
}
