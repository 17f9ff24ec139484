package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// TestArtifactsDirIsNotLeft: what was listed in a directory of artifacts and is swapped for a
// symlink, or lies behind one then, is not read: somebody else may be at work there.
func TestArtifactsDirIsNotLeft(t *testing.T) {
	s := OpenMemory()
	defer s.Close()
	ws, secret := filepath.Join(t.TempDir(), "ws"), filepath.Join(t.TempDir(), "elsewhere")
	write(t, ws, map[string]string{"f": "content"})
	write(t, secret, map[string]string{"f": "a secret", "report": "a secret"})
	for name, swap := range map[string]func(dir string) error{
		"a file": func(dir string) error {
			return os.Symlink(filepath.Join(secret, "f"), filepath.Join(dir, "new"))
		},
		"a directory": func(dir string) error { return os.Symlink(secret, filepath.Join(dir, "new")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			write(t, dir, map[string]string{"sub/report": "mine"})
			made, err := s.artifactsIn(dir, nil)
			require.NoError(t, err)
			defer made.root.Close()
			require.Len(t, made.files, 1)
			f, err := made.files[0].open()
			require.NoError(t, err)
			require.NoError(t, f.Close())

			require.NoError(t, swap(dir))
			old := filepath.Join(dir, "sub")
			if name == "a file" {
				old = filepath.Join(old, "report")
			}
			require.NoError(t, os.RemoveAll(old))
			require.NoError(t, os.Rename(filepath.Join(dir, "new"), old))
			_, err = made.files[0].open()
			require.Error(t, err)
		})
	}
	// The directory itself may be a link, and what is left out is counted.
	dir := filepath.Join(t.TempDir(), "out")
	write(t, dir, map[string]string{"report": "mine", "bad\xff": "no name"})
	require.NoError(t, os.Symlink("report", filepath.Join(dir, "link")))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ArtifactsDir: link})
	require.NoError(t, err)
	require.Len(t, res.Warnings, 1)
	require.Contains(t, res.Warnings[0], "no artifacts: 2 symlinks")
	for range 2 { // the second time it is there already
		list, err := s.Artifacts(t.Context(), "t@latest")
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "report", list[0].Name)
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ArtifactsDir: dir})
		require.NoError(t, err)
	}
}

// TestForkIntoAThreadThatGetsAnArtifact: also when that comes after the fork has begun, the
// thread is not empty.
func TestForkIntoAThreadThatGetsAnArtifact(t *testing.T) {
	s := OpenMemory()
	defer s.Close()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "content"})
	first := save(t, s, ws, "t")
	session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "new", Empty: true})
	require.NoError(t, err)
	defer session.Close()
	_, rec, err := s.record(t.Context(), first.ID)
	require.NoError(t, err)
	w, end, err := s.newWriter(t.Context(), session, local.Auto)
	require.NoError(t, err)
	defer end()
	beside, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "new", Beside: true})
	require.NoError(t, err)
	require.NoError(t, beside.AddArtifact(t.Context(), Artifact{ID: "a", Name: "a", Hash: rec.Root.Tree.String()}))
	require.NoError(t, beside.Close())
	rec.ID, rec.Thread = "forked", "new"
	_, err = publish(t.Context(), session, w, rec, PublishRequest{})
	require.ErrorIs(t, err, index.ErrStaleHead)
}
