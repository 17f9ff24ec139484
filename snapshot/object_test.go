package snapshot

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
)

// TestOneObject: whoever embeds snapfs opens one thing, on a disk or in memory, and saves,
// forks and reads artifacts with it.
func TestOneObject(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (*Store, error){
		"on a disk": func(t *testing.T) (*Store, error) {
			return Open(t.Context(), filepath.Join(disktest.Memory(t), "store"), Options{Create: true})
		},
		"in memory": func(*testing.T) (*Store, error) { return OpenMemory(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			require.NoError(t, err)
			defer s.Close()
			ws, out := filepath.Join(t.TempDir(), "ws"), filepath.Join(t.TempDir(), "out")
			write(t, ws, map[string]string{"f": "content", "report": "the report"})
			saved, err := s.Save(t.Context(), SaveOptions{
				Workspace: ws, Thread: "a conversation", Run: "7", Conversation: strings.NewReader(`[{"role":"user"}]`),
				Artifacts: []ArtifactFile{{Path: filepath.Join(ws, "report"), Name: "a/report"}},
			})
			require.NoError(t, err)
			require.Equal(t, "checkpoint-7", saved.Checkpoint.ID)
			require.Equal(t, string(index.Automatic), saved.Checkpoint.Reason)
			fork, err := s.Fork(t.Context(), "a conversation@latest", ForkOptions{Thread: "another"})
			require.NoError(t, err)
			require.Equal(t, &Origin{Thread: "a conversation", Checkpoint: "checkpoint-7"}, fork.Origin)
			list, err := s.Artifacts(t.Context(), fork.ID)
			require.NoError(t, err)
			require.Len(t, list, 1)
			var b bytes.Buffer
			require.NoError(t, s.ReadArtifact(t.Context(), fork.ID, list[0].ID, &b))
			require.Equal(t, "the report", b.String())
			require.ErrorIs(t, s.ReadArtifact(t.Context(), fork.ID, "of another", &b), index.ErrArtifactNotFound)
			_, err = s.Restore(t.Context(), fork.ID, RestoreOptions{Dir: out})
			require.NoError(t, err)
			require.Empty(t, faults(t, s))
		})
	}
}

// TestPrepare: what a save would refuse at once is refused before a run, and nothing is
// made; else a new workspace has the thread's files and a live one what it had.
func TestPrepare(t *testing.T) {
	s := OpenMemory()
	defer s.Close()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "content"})
	first := save(t, s, ws, "t")
	named, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Name: "taken", Run: "1"})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "dir")
	for name, opt := range map[string]SaveOptions{
		"no thread":       {},
		"a taken run":     {Thread: "t", Run: "1"},
		"a taken name":    {Thread: "t", Name: "taken"},
		"a bad name":      {Thread: "t", Name: "latest"},
		"an older parent": {Thread: "t", Parent: first.ID},
		"no such parent":  {Thread: "t", Parent: "nothing"},
		"a bad thread":    {Thread: "\xff"},
	} {
		opt.Workspace = dir
		_, err := s.Prepare(t.Context(), opt)
		require.Error(t, err, name)
		require.NoDirExists(t, dir, name)
	}
	_, err = s.Prepare(t.Context(), SaveOptions{Workspace: filepath.Join(ws, "f"), Thread: "t"})
	require.ErrorIs(t, err, ErrRefused)

	res, err := s.Prepare(t.Context(), SaveOptions{Workspace: dir, Thread: "t"})
	require.NoError(t, err)
	require.True(t, res.Restored)
	require.Equal(t, named.Checkpoint.ID, res.Head)
	require.EqualValues(t, 1, res.Files)
	res, err = s.Prepare(t.Context(), SaveOptions{Workspace: dir, Thread: "t"})
	require.NoError(t, err)
	require.False(t, res.Restored, "it lives")
	res, err = s.Prepare(t.Context(), SaveOptions{Workspace: filepath.Join(dir, "of a new one"), Thread: "new"})
	require.NoError(t, err)
	require.Empty(t, res.Head)
	require.False(t, res.Restored)
	require.DirExists(t, filepath.Join(dir, "of a new one"))
}
