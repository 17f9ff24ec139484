package snapshot

import (
	"context"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// changesOf returns the differences as lines. Without dirTimes those are left out that
// are a directory's time alone.
func changesOf(t require.TestingT, c *Comparison, opt DiffOptions, dirTimes bool) []string {
	lines := []string{}
	require.NoError(t, c.Changes(context.Background(), opt, func(ch tree.Change) error {
		if ch.Op == tree.Metadata && ch.New.Kind == tree.Dir && !dirTimes {
			old := *ch.Old
			old.Hash, old.MtimeSec, old.MtimeNsec = ch.New.Hash, ch.New.MtimeSec, ch.New.MtimeNsec
			if !metadataDiffers(&old, ch.New, opt) {
				return nil
			}
		}
		lines = append(lines, fmt.Sprintf("%s %q %q", ch.Op, ch.From, ch.Path))
		return nil
	}))
	return lines
}

// TestCompareDirIsASave: what differs in a directory is what differs in a checkpoint of
// it, whether something is known of the directory or not, and nothing is written.
func TestCompareDirIsASave(t *testing.T) {
	s := newStore(t)
	top := t.TempDir()
	t.Cleanup(func() { removable(top) })
	everything := policy.FilesOptions{NoDefaults: true}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > 20 && os.Getenv("SNAPFS_LARGE") != "1" {
			return // it is not cheap
		}
		ws := filepath.Join(top, fmt.Sprint(n), "ws")
		defer func() {
			removable(filepath.Dir(ws))
			require.NoError(rt, os.RemoveAll(filepath.Dir(ws)))
		}()
		check(os.MkdirAll(ws, 0o700))
		var files []string
		growTree(rt, ws, 2, &files)
		check(os.Chmod(ws, 0o700))
		opt := SaveOptions{Workspace: ws, Thread: fmt.Sprint(n), Files: everything}
		first, err := s.Save(t.Context(), opt)
		require.NoError(rt, err)
		same, err := s.CompareDir(t.Context(), first.Checkpoint.ID, ws)
		require.NoError(rt, err)
		require.Empty(rt, changesOf(rt, same, DiffOptions{Owner: true}, true))
		require.NoError(rt, same.Close())

		removable(ws)
		for _, f := range files {
			if _, err := os.Lstat(f); err != nil {
				continue
			}
			switch rapid.IntRange(0, 6).Draw(rt, "change") {
			case 0:
				check(os.Remove(f))
			case 1:
				check(os.WriteFile(f, []byte("other"), 0o600))
			case 2:
				check(os.Rename(f, filepath.Join(ws, "renamed")))
			case 3:
				check(os.Remove(f))
				check(os.Mkdir(f, 0o700))
			}
		}
		growTree(rt, filepath.Dir(ws), 1, new([]string)) // beside it, which is nothing
		before := entriesOf(rt, ws)
		packs := packsOf(t, s)
		c, err := s.CompareDir(t.Context(), first.Checkpoint.ID, ws)
		require.NoError(rt, err)
		defer c.Close()
		live := changesOf(rt, c, DiffOptions{Owner: true}, true)
		require.Equal(rt, before, entriesOf(rt, ws))
		require.Equal(rt, packs, packsOf(t, s))

		opt.Thread += "-second"
		second, err := s.Save(t.Context(), opt)
		require.NoError(rt, err)
		saved, err := s.Compare(t.Context(), first.Checkpoint.ID, second.Checkpoint.ID)
		require.NoError(rt, err)
		require.Equal(rt, changesOf(rt, saved, DiffOptions{Owner: true}, false), live)
	})
}

// entriesOf lists a directory with all times that a look could move.
func entriesOf(t require.TestingT, dir string) []string {
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ iofs.DirEntry, err error) error {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		all = append(all, fmt.Sprintf("%q %d %o %d %v %v", path, st.Ino, st.Mode, st.Size, st.Mtim, st.Ctim))
		return err
	}))
	return all
}

// packsOf lists the store's packs and the journal with their lengths.
func packsOf(t *testing.T, s *Store) []string {
	var all []string
	for _, dir := range []string{"packs", "journal", "tmp"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(s.dir, dir), func(path string, e iofs.DirEntry, err error) error {
			info, ierr := e.Info()
			require.NoError(t, ierr)
			if !e.IsDir() {
				all = append(all, fmt.Sprint(path, info.Size()))
			}
			return err
		}))
	}
	return all
}

// look captures a directory as CompareDir does.
func lookAt(t *testing.T, s *Store, ref, ws string) (capture.Result, *live) {
	t.Helper()
	cp, rec, err := s.record(t.Context(), ref)
	require.NoError(t, err)
	l := &live{dir: ws}
	got, err := s.look(t.Context(), l, cp, rec, ws)
	require.NoError(t, err)
	return got, l
}

// TestCompareDirReadsLittle: what is known from the last save is not read, nor is
// anything kept of it, as long as the checkpoint of that save is there.
func TestCompareDirReadsLittle(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("d%d/f", i)] = strings.Repeat("x", 1000+i)
	}
	write(t, ws, files)
	old := unix.Timespec{Sec: 1_700_000_000}
	for name := range files { // beyond doubt
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(ws, name), []unix.Timespec{old, old}, 0))
	}
	opt := SaveOptions{Workspace: ws, Thread: "t", ID: "a", Settings: policy.Settings{GitIgnore: true, MaxFileSize: 1 << 20}, Files: policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "*.log", Source: "--exclude"}}}}
	_, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	for range 2 { // the clock's tick may be in the way of the first one
		opt.ID += "a"
		_, err := s.Save(t.Context(), opt)
		require.NoError(t, err)
	}
	got, l := lookAt(t, s, "a", ws)
	require.Zero(t, got.Read)
	require.Len(t, l.trees.objs, 1, "the root")

	write(t, ws, map[string]string{"d7/f": "changed"})
	got, l = lookAt(t, s, "a", ws)
	require.EqualValues(t, len("changed"), got.Read)
	require.Len(t, l.trees.objs, 2)

	// A fork of it is good for the same. The known of a checkpoint that is gone is not.
	_, err = s.Fork(t.Context(), "a", ForkOptions{Thread: "u", ID: "fork"})
	require.NoError(t, err)
	got, _ = lookAt(t, s, "fork", ws)
	require.EqualValues(t, len("changed"), got.Read)
	_, err = s.Delete(t.Context(), "aaa")
	require.NoError(t, err)
	got, _ = lookAt(t, s, "a", ws)
	require.Greater(t, got.Read, int64(50_000))
}

// TestCompareDirLimits: a limit that would fail a save hides nothing; one that leaves
// files out does.
func TestCompareDirLimits(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "1", "g": "1"})
	for id, settings := range map[string]policy.Settings{"fails": {MaxFileSize: 3, MaxSize: 3}, "skips": {MaxFileSize: 3, SkipOver: true}} {
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: id, ID: id, Settings: settings})
		require.NoError(t, err)
	}
	write(t, ws, map[string]string{"f": "longer", "long": "longer"})
	for id, want := range map[string][]string{"fails": {`M "" "f"`, `A "" "long"`}, "skips": {}} {
		c, err := s.CompareDir(t.Context(), id, ws)
		require.NoError(t, err)
		require.Equal(t, want, changesOf(t, c, DiffOptions{}, true), id)
		require.NoError(t, c.Close())
	}
}

// TestCompareDirSecrets: what looks like a secret and would be left out is neither there
// nor gone; a file that has got its declared secrets back is the same.
func TestCompareDirSecrets(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	const key = "ghp_" + "k7Qm2ZxV9bTr4LwY8nHc3JdF6sGa1PeK5uXi\n"
	write(t, ws, map[string]string{"key": key, "was": "1\n", "same": "1\n"})
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ID: "a", Settings: policy.Settings{Secrets: policy.SecretsExclude}})
	require.NoError(t, err)
	write(t, ws, map[string]string{"was": key, "new": key})
	c, err := s.CompareDir(t.Context(), "a", ws)
	require.NoError(t, err)
	defer c.Close()
	require.Empty(t, changesOf(t, c, DiffOptions{}, true))
}

// TestCompareDirRefuses: a directory is not compared in part.
func TestCompareDirRefuses(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "1"})
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ID: "a"})
	require.NoError(t, err)
	for dir, want := range map[string]error{
		filepath.Join(ws, "f"):         ErrRefused,
		filepath.Join(ws, "nothing"):   os.ErrNotExist,
		s.dir:                          ErrRefused,
		filepath.Join(s.dir, "packs"):  ErrRefused,
		filepath.Join(ws, "../../..."): os.ErrNotExist,
	} {
		_, err := s.CompareDir(t.Context(), "a", dir)
		require.ErrorIs(t, err, want, dir)
	}
	_, err = s.CompareDir(t.Context(), "nothing", ws)
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.CompareDir(ctx, "a", ws)
	require.ErrorIs(t, err, context.Canceled)

	// A file that changes between the look and the reading is an error, not a difference.
	write(t, ws, map[string]string{"f": "other\n"})
	c, err := s.CompareDir(t.Context(), "a", ws)
	require.NoError(t, err)
	defer c.Close()
	write(t, ws, map[string]string{"f": ""})
	err = c.Changes(t.Context(), DiffOptions{}, func(ch tree.Change) error {
		_, err := c.Lines(t.Context(), ch)
		return err
	})
	require.ErrorIs(t, err, errChanged)
	require.NoError(t, os.Remove(filepath.Join(ws, "f")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(ws, "f")))
	err = c.Changes(t.Context(), DiffOptions{}, func(ch tree.Change) error {
		_, err := c.Lines(t.Context(), ch)
		return err
	})
	require.ErrorContains(t, err, "regular file")
}
