package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// limited opens a store with a limit.
func limited(t *testing.T, dir string, limit int64) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{Create: true, Limit: limit})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Empty(t, faults(t, s))
		require.NoError(t, s.Close())
	})
	return s
}

// A store never grows over its limit, a save that would make it is refused whole, and
// what is deleted makes room again.
func TestLimit(t *testing.T) {
	const limit = 10 << 20 // of which 1 MiB is in reserve
	s := limited(t, filepath.Join(t.TempDir(), "store"), limit)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, filepath.Join(ws, "a"), 1, 6<<20)
	kept := save(t, s, ws, "kept")
	noiseFile(t, filepath.Join(ws, "b"), 2, 4<<20)
	all := SaveOptions{Workspace: ws, Thread: "kept", Files: policy.FilesOptions{NoDefaults: true}}
	for range 3 {
		_, err := s.Save(t.Context(), all)
		require.ErrorIs(t, err, cas.ErrNoSpace)
		require.ErrorContains(t, err, "of its limit of 10 MiB, 1.0 MiB of which are kept in reserve")
		require.Contains(t, Hint(err), "snapfs gc")
	}
	head, err := s.Thread(t.Context(), "kept")
	require.NoError(t, err)
	require.Equal(t, kept.ID, head.Head)
	u := usage(t, s)
	require.EqualValues(t, limit, u.Limit)
	require.Less(t, u.LimitedBytes, u.StoredBytes+200<<10, "nothing of what was refused is left")
	fork, err := s.Fork(t.Context(), kept.ID, ForkOptions{Thread: "fork"})
	require.NoError(t, err, "there is room for a record")
	require.Equal(t, look(t, restored(t, s, fork.ID)), look(t, restored(t, s, kept.ID)))
	// Into the reserve only deletions and collections reach.
	require.NoError(t, os.Remove(filepath.Join(ws, "b")))
	noiseFile(t, filepath.Join(ws, "c"), 3, 2800<<10)
	save(t, s, ws, "kept")
	noiseFile(t, filepath.Join(ws, "d"), 4, 500<<10)
	_, err = s.Save(t.Context(), all)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.NoError(t, os.RemoveAll(ws))
	noiseFile(t, filepath.Join(ws, "d"), 4, 1<<20)
	_, err = s.Save(t.Context(), all)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.NoError(t, s.DeleteThread(t.Context(), "kept"))
	require.NoError(t, s.DeleteThread(t.Context(), "fork"))
	gc(t, s)
	save(t, s, ws, "new")
	require.Less(t, usage(t, s).LimitedBytes, int64(2<<20))
}

// A store that is over its limit, which was set later, is read and cleaned as ever; a save
// is refused before it reads a file.
func TestOverTheLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openStore(t, dir)
	ws := workspace(t)
	cp := save(t, s, ws, "t")
	require.NoError(t, s.Close())
	s = limited(t, dir, 100)
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t"})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	_, err = s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "u"})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: filepath.Join(ws, "src/main.go")}, policy.SecretsOff, SecretsOptions{})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	restored(t, s, cp.ID)
	_, err = s.Rename(t.Context(), cp.ID, "name")
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), cp.ID)
	require.NoError(t, err)
	gc(t, s)
	_, err = s.Resolve(t.Context(), cp.ID)
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
}
