package snapshot

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClockSetBack: a checkpoint that was made later is the newer one, whatever
// the clock said.
func TestClockSetBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s, err := Open(t.Context(), dir, Options{Create: true, Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "1"})

	var ids []string
	for _, at := range []time.Time{now, now.Add(-48 * time.Hour), now.Add(-47 * time.Hour), time.Unix(-1, 0)} {
		now = at
		write(t, ws, map[string]string{"f": at.String()})
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t"})
		require.NoError(t, err)
		require.True(t, res.Checkpoint.Created.Equal(at), res.Checkpoint.Created)
		require.Equal(t, at.UTC().Format("20060102-150405-"), res.Checkpoint.ID[:16])
		ids = append([]string{res.Checkpoint.ID}, ids...)
		head, err := s.Resolve(t.Context(), "t@latest")
		require.NoError(t, err)
		require.Equal(t, res.Checkpoint.ID, head.ID)
	}
	forked, err := s.Fork(t.Context(), ids[0], ForkOptions{Thread: "fork"})
	require.NoError(t, err)
	require.True(t, forked.Created.Equal(now))

	// Also after the index was read anew, page by page, and when the head goes.
	require.NoError(t, s.Close())
	s = openStore(t, dir)
	list, err := s.Checkpoints(t.Context(), "t", Page{})
	require.NoError(t, err)
	for i, cp := range list {
		require.Equal(t, ids[i], cp.ID)
	}
	next, err := s.Checkpoints(t.Context(), "t", Page{Before: ids[1]})
	require.NoError(t, err)
	require.Equal(t, ids[2:], []string{next[0].ID, next[1].ID})
	_, err = s.Delete(t.Context(), ids[0])
	require.NoError(t, err)
	head, err := s.Thread(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, ids[1], head.Head)
	threads, err := s.Threads(t.Context(), Page{})
	require.NoError(t, err)
	require.Equal(t, "fork", threads[0].ID)
}
