package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

func TestDiffPaths(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"d/f": "1", "dd": "1", "same": "1", "gone/x": "1"})
	a := save(t, s, ws, "t")
	write(t, ws, map[string]string{"d/f": "2", "d/g": "2", "dd": "2"})
	require.NoError(t, os.RemoveAll(filepath.Join(ws, "gone")))
	b := save(t, s, ws, "t")

	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{nil, []string{"M d/f", "A d/g", "M dd", "D gone", "D gone/x"}},
		{[]string{"d"}, []string{"M d/f", "A d/g"}}, // and not dd
		{[]string{"./d/", "dd"}, []string{"M d/f", "A d/g", "M dd"}},
		{[]string{"d/g"}, []string{"A d/g"}},
		{[]string{"gone/x"}, []string{"D gone/x"}},
		{[]string{"same"}, nil},
		{[]string{"same", "."}, []string{"M d/f", "A d/g", "M dd", "D gone", "D gone/x"}},
	} {
		var got []string
		err := s.Diff(t.Context(), a.ID, b.ID, DiffOptions{Paths: c.paths}, func(ch tree.Change) error {
			got = append(got, ch.Op.String()+" "+ch.Path)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%q", c.paths)
	}
	for _, path := range []string{"nothing", "d/f/x", "../etc"} {
		err := s.Diff(t.Context(), a.ID, b.ID, DiffOptions{Paths: []string{"d", path}}, func(tree.Change) error {
			t.Error("a difference was reported")
			return nil
		})
		require.ErrorIs(t, err, tree.ErrNotFound, path)
	}
}

// TestParentOfNewThread: a thread without checkpoints has no head to go on from.
func TestParentOfNewThread(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	other := save(t, s, ws, "t")
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "new", Parent: other.ID})
	require.ErrorIs(t, err, index.ErrStaleHead)
	require.ErrorContains(t, err, "thread new has no checkpoints")
	_, err = s.Thread(t.Context(), "new")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
}
