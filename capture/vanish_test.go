package capture

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
)

// A directory that goes away between its opening and its listing is one of the
// entries that could not be saved, and nothing of it gets into a tree.
func TestDirectoryVanishesBeforeItIsListed(t *testing.T) {
	ws := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(ws, "gone"), 0o755))
	root, err := openRoot(ws)
	require.NoError(t, err)
	defer root.close()
	sub, err := root.openDir("gone")
	require.NoError(t, err)
	defer sub.close()
	require.NoError(t, os.Remove(filepath.Join(ws, "gone")))
	files, err := policy.CompileFiles(policy.FilesOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c := newWalker(ctx, cancel, newMemory())
	_, _, err = c.dir(sub, "gone/", files.Root())
	require.ErrorIs(t, err, errUnlisted)
	require.Equal(t, []Problem{{Path: "gone", Err: errVanished}}, c.problems)
	require.NoError(t, ctx.Err())
}
