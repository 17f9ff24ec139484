package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// TestRecordNamesIgnoreFiles: the record says which ignore files were in force, by the
// names that their contents have in the tree, and by which settings it was saved.
func TestRecordNamesIgnoreFiles(t *testing.T) {
	s, ws := newStore(t), t.TempDir()
	write(t, ws, map[string]string{"a/.gitignore": "x\n", ".snapfsignore": "y\n/a/.gitignore\n", "a/x": "", "y": "", "z": "", "b\n/.snapfsignore": "#\n"})
	settings := policy.Settings{GitIgnore: true, MaxSize: 1 << 20}
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: settings, Files: policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "*.o", Source: "--exclude"}}}})
	require.NoError(t, err)
	cp, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	rec, err := policy.Decode([]byte(cp.Policy))
	require.NoError(t, err)
	settings.Secrets = policy.SecretsWarn // as it is when nothing is said
	require.Equal(t, settings, rec.Settings)
	require.Equal(t, policy.Rule{Pattern: "*.o", Source: "--exclude"}, rec.Files.Exclude[len(rec.Files.Exclude)-1])
	require.Len(t, rec.Files.Exclude, len(policy.Defaults())+1)

	saved := map[string]tree.Entry{}
	_, full, err := s.record(t.Context(), cp.ID)
	require.NoError(t, err)
	require.NoError(t, tree.Walk(t.Context(), s.trees, full.Root.Tree, func(path string, e tree.Entry) error {
		saved[path] = e
		return nil
	}))
	require.Equal(t, []string{".snapfsignore", "a/.gitignore", "b\n/.snapfsignore"}, []string{rec.Ignore[0].Path, rec.Ignore[1].Path, rec.Ignore[2].Path})
	require.EqualValues(t, saved[".snapfsignore"].Hash, rec.Ignore[0].Hash)
	require.NotContains(t, saved, "a/.gitignore", "it was left out itself, and counted")
	require.NotContains(t, saved, "a/x")
	require.EqualValues(t, saved["b\n/.snapfsignore"].Hash, rec.Ignore[2].Hash)
}

// TestChangedIgnoreFile: it has its effect at the next save, for which nothing is read
// but what has changed; other settings read all, as other rules do.
func TestChangedIgnoreFile(t *testing.T) {
	s, ws := newStore(t), t.TempDir()
	noiseFile(t, ws+"/a", 1, 300_000)
	noiseFile(t, ws+"/b", 2, 2000)
	write(t, ws, map[string]string{ignoreFile: "/b\n"})
	files := func(cp Checkpoint) []string {
		var names []string
		require.NoError(t, s.Ls(t.Context(), cp.ID, "", false, func(path string, _ tree.Entry) error {
			names = append(names, path)
			return nil
		}))
		return names
	}
	saveIt := func(settings policy.Settings) SaveResult {
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: settings})
		require.NoError(t, err)
		require.Empty(t, faults(t, s))
		return res
	}
	res := saveIt(policy.Settings{})
	require.Equal(t, []string{ignoreFile, "a"}, files(res.Checkpoint))
	require.EqualValues(t, 300_003, res.Read)
	require.EqualValues(t, 0, saveIt(policy.Settings{}).Read)

	write(t, ws, map[string]string{ignoreFile: "/c\n"})
	res = saveIt(policy.Settings{})
	require.Equal(t, []string{ignoreFile, "a", "b"}, files(res.Checkpoint))
	require.EqualValues(t, 2003, res.Read, "what is let in, and the file itself")

	write(t, ws, map[string]string{ignoreFile: "/a\n"})
	res = saveIt(policy.Settings{})
	require.Equal(t, []string{ignoreFile, "b"}, files(res.Checkpoint))
	require.EqualValues(t, 3, res.Read)

	require.NoError(t, os.Remove(filepath.Join(ws, ignoreFile)))
	res = saveIt(policy.Settings{})
	require.Equal(t, []string{"a", "b"}, files(res.Checkpoint))
	require.EqualValues(t, 300_000, res.Read)
	require.EqualValues(t, 302_000, saveIt(policy.Settings{GitIgnore: true}).Read)
	require.EqualValues(t, 0, saveIt(policy.Settings{GitIgnore: true}).Read)
}

const ignoreFile = ".snapfsignore"
