package capture

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// TestRootOpen: only files below the directory are opened, and through no link.
func TestRootOpen(t *testing.T) {
	top := t.TempDir()
	ws := filepath.Join(top, "ws")
	require.NoError(t, os.MkdirAll(filepath.Join(ws, "d/e"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(top, "outside"), []byte("outside"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(ws, "d/e/f"), []byte("content"), 0o644))
	require.NoError(t, os.Symlink("../outside", filepath.Join(ws, "link")))
	require.NoError(t, os.Symlink("..", filepath.Join(ws, "up")))
	require.NoError(t, os.Symlink("e", filepath.Join(ws, "d/same")))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	root, err := OpenRoot(ws)
	require.NoError(t, err)
	defer root.Close()

	f, err := root.Open("d/e/f")
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "content", string(data))
	require.NoError(t, f.Close())
	for path, want := range map[string]error{
		"link": errNotRegular, "up/outside": errNotRegular, "d/same/f": errNotRegular, "fifo": errNotRegular, "d": errNotRegular, "d/e/f/g": errNotRegular,
		"nothing": unix.ENOENT, "d/nothing/f": unix.ENOENT,
		"../outside": tree.ErrInvalid, "": tree.ErrInvalid, "/etc/passwd": tree.ErrInvalid, "d//e/f": tree.ErrInvalid,
	} {
		_, err := root.Open(path)
		require.ErrorIs(t, err, want, path)
	}
	require.NoError(t, root.Close())
	require.NoError(t, root.Close())
	_, err = OpenRoot(filepath.Join(ws, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
