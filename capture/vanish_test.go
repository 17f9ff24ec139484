package capture

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
	require.NoError(t, os.Remove(filepath.Join(ws, "gone")))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	w := &worker{walker: newWalker(ctx, cancel, newMemory())}
	parent := &directory{}
	parent.left.Store(2)
	w.enter(&directory{fd: sub, path: "gone/", parent: parent}, rules(t).Root())
	require.Equal(t, []Problem{{Path: "gone", Err: errVanished}}, w.problems)
	require.Equal(t, int32(1), parent.left.Load())
	require.NoError(t, ctx.Err())
}
