package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// growTree fills a directory at random and returns the paths of its files.
func growTree(rt *rapid.T, dir string, depth int, files *[]string) {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c.~\x01-\x05\x80-\xff -]{1,3}|x{250,255}`), 0, 5, rapid.ID[string]).Draw(rt, "names")
	for _, name := range names {
		if name == "." || name == ".." || strings.Contains(name, "/") || len(name) > 255 {
			continue
		}
		path := filepath.Join(dir, name)
		kind := rapid.IntRange(0, 9).Draw(rt, "kind")
		switch {
		case kind < 3 && depth > 0:
			check(os.Mkdir(path, 0o700))
			growTree(rt, path, depth-1, files)
		case kind == 3:
			check(os.Symlink(rapid.StringMatching(`[a-z./\x80-\xff]{1,20}`).Draw(rt, "target"), path))
		case kind == 4 && len(*files) > 0:
			check(os.Link(rapid.SampledFrom(*files).Draw(rt, "link"), path))
			continue // its metadata is that of the other name
		default:
			data := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "data")
			if rapid.IntRange(0, 19).Draw(rt, "large") == 0 {
				data = []byte(strings.Repeat(string(data)+"\x00", 60_000))
			}
			check(os.WriteFile(path, data, 0o600))
			*files = append(*files, path)
		}
		decorate(rt, path, kind == 3)
	}
	decorate(rt, dir, false)
}

// decorate gives an entry metadata at random.
func decorate(rt *rapid.T, path string, symlink bool) {
	if !symlink {
		if rapid.IntRange(0, 3).Draw(rt, "xattr") == 0 {
			err := unix.Lsetxattr(path, rapid.StringMatching(`user\.[a-z]{1,4}`).Draw(rt, "attribute"), rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "value"), 0)
			if err != nil && err != unix.ENOTSUP {
				panic(err)
			}
		}
		mode := uint32(rapid.SampledFrom([]int{0o644, 0o755, 0o600, 0o444, 0o555, 0o1777, 0o700, 0o711, 0}).Draw(rt, "mode"))
		if os.Geteuid() != 0 {
			mode |= 0o700 // the test looks at it, too
		}
		check(unix.Chmod(path, mode))
	}
	ts := unix.Timespec{Sec: rapid.Int64Range(-1<<31+1, 1<<33).Draw(rt, "sec"), Nsec: rapid.Int64Range(0, 999_999_999).Draw(rt, "nsec")}
	check(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
}

// TestSaveAndRestoreIsTheIdentity: on trees at random, and saving what was
// restored changes nothing.
func TestSaveAndRestoreIsTheIdentity(t *testing.T) {
	s := newStore(t)
	top := t.TempDir()
	t.Cleanup(func() { removable(top) })
	everything := policy.FilesOptions{NoDefaults: true}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		ws, dir := filepath.Join(top, fmt.Sprint(n), "ws"), filepath.Join(top, fmt.Sprint(n), "dir")
		defer func() {
			removable(filepath.Dir(ws))
			require.NoError(rt, os.RemoveAll(filepath.Dir(ws)))
		}()
		require.NoError(rt, os.MkdirAll(ws, 0o700))
		if rapid.Bool().Draw(rt, "existing") {
			require.NoError(rt, os.Mkdir(dir, 0o700))
		}
		var files []string
		growTree(rt, ws, 3, &files)
		want := look(t, ws)
		first, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Files: everything})
		require.NoError(rt, err)
		require.Equal(rt, want, look(t, ws), "the workspace is as it was")
		res, err := s.Restore(t.Context(), first.Checkpoint.ID, RestoreOptions{Dir: dir})
		require.NoError(rt, err)
		require.Empty(rt, res.Incomplete)
		require.Equal(rt, want, look(t, dir))
		require.Equal(rt, first.Checkpoint.Files, uint64(res.Files))
		require.Equal(rt, first.Checkpoint.Dirs, uint64(res.Dirs))
		second, err := s.Save(t.Context(), SaveOptions{Workspace: dir, Thread: "T", Files: everything})
		require.NoError(rt, err)
		require.Equal(rt, first.Checkpoint.Tree, second.Checkpoint.Tree)
		require.Zero(rt, second.Checkpoint.NewBytes)
		require.NoError(rt, s.Diff(t.Context(), first.Checkpoint.ID, second.Checkpoint.ID, DiffOptions{Owner: true}, func(c tree.Change) error {
			return fmt.Errorf("%v %s", c.Op, c.Path)
		}))
	})
}

// check panics: a test of rapid has no testing.T at hand.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
