package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
)

// TestOrdinaryUser: what only root may read or set is no obstacle where nothing
// of it is needed.
func TestOrdinaryUser(t *testing.T) {
	top := userDir(t)
	store, ws, dir := filepath.Join(top, "store"), filepath.Join(top, "ws"), filepath.Join(top, "new", "dir")
	t.Cleanup(func() { removable(top) })
	write(t, ws, map[string]string{"ro/sub/child": "1", "su": "2", "dir/x": "3", "file": "4", "none/in": "5"})
	own := func() {
		require.NoError(t, filepath.WalkDir(ws, func(path string, _ os.DirEntry, _ error) error {
			if os.Geteuid() == 0 {
				return os.Lchown(path, ordinary, ordinary)
			}
			return nil
		}))
	}
	own()
	for name, mode := range map[string]uint32{"ro/sub": 0o555, "ro": 0o555, "su": 0o6755, "dir": 0o3775, "file": 0o444} {
		require.NoError(t, unix.Chmod(filepath.Join(ws, name), mode))
	}
	saved := asUser(t, "save", store, ws, "T")
	require.Empty(t, saved.Err)
	require.Empty(t, asUser(t, "restore", store, saved.Out, dir).Err)
	want, got := look(t, ws), look(t, dir)
	for _, name := range []string{"su", "dir"} {
		n := want[name]
		n.Mode &^= unix.S_ISUID | unix.S_ISGID
		want[name] = n
	}
	require.Equal(t, want, got)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(dir, "file"), &st))
	if os.Geteuid() == 0 {
		require.Equal(t, uint32(ordinary), st.Uid)
	}

	// A failure takes away what it made, whatever the modes are: here the parent
	// may not be written.
	locked := filepath.Join(top, "locked")
	require.NoError(t, os.Mkdir(locked, 0o555))
	own()
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(locked, ordinary, ordinary))
	}
	require.Contains(t, asUser(t, "restore", store, saved.Out, filepath.Join(locked, "x")).Err, "permission denied")
	entries, err := os.ReadDir(locked)
	require.NoError(t, err)
	require.Empty(t, entries)
	s := openStore(t, store)
	require.Empty(t, tempFiles(t, s))
}

// TestUnreadable: all that cannot be read is named, and nothing is published;
// what is excluded is not even looked at.
func TestUnreadable(t *testing.T) {
	top := userDir(t)
	store, ws := filepath.Join(top, "store"), filepath.Join(top, "ws")
	t.Cleanup(func() { removable(top) })
	write(t, ws, map[string]string{"ok": "1", "secret": "2", "dir/key": "3", "closed/x": "4", "nosearch/y": "5", "cache/locked/z": "6"})
	modes := map[string]uint32{"secret": 0, "dir/key": 0o200, "closed": 0o300, "nosearch": 0o444, "cache/locked": 0}
	require.NoError(t, filepath.WalkDir(ws, func(path string, _ os.DirEntry, _ error) error {
		if os.Geteuid() == 0 {
			return os.Lchown(path, ordinary, ordinary)
		}
		return nil
	}))
	for name, mode := range modes {
		require.NoError(t, unix.Chmod(filepath.Join(ws, name), mode))
	}
	res := asUser(t, "save", store, ws, "T")
	require.Equal(t, []string{"cache/locked", "closed", "dir/key", "nosearch/y", "secret"}, res.Problems)
	for _, path := range res.Problems {
		require.Contains(t, res.Err, path+": permission denied")
	}
	require.Equal(t, []string{"dir/key"}, asUser(t, "save", store, ws, "T", "secret", "closed", "nosearch", "/cache/*").Problems)

	s := openStore(t, store)
	threads, err := s.Threads(t.Context(), Page{})
	require.NoError(t, err)
	require.Empty(t, threads)
	require.Empty(t, tempFiles(t, s))
	require.Empty(t, faults(t, s))
	require.NoError(t, s.Close())

	require.Empty(t, asUser(t, "save", store, ws, "T", "secret", "/closed", "nosearch", "locked", "key").Err)
	s = openStore(t, store)
	cp, err := s.Show(t.Context(), "T@latest")
	require.NoError(t, err)
	require.Equal(t, uint64(1), cp.Files)
	require.Len(t, cp.Omissions, 5)
}

// TestRootInAnothersStore: what root makes in it, its owner can use.
func TestRootInAnothersStore(t *testing.T) {
	needRoot(t)
	top := userDir(t)
	store, ws := filepath.Join(top, "store"), filepath.Join(top, "ws")
	write(t, ws, map[string]string{"x": "1"})
	require.Empty(t, asUser(t, "save", store, ws, "T").Err)
	s, err := Open(t.Context(), store, Options{})
	require.NoError(t, err)
	// Only root can save this; everybody can restore it.
	closed := filepath.Join(top, "closed")
	write(t, closed, map[string]string{"none/sub/deeper/y": "2", "none/z": "3"})
	for _, name := range []string{"none/sub/deeper/y", "none/sub/deeper", "none/sub", "none"} {
		require.NoError(t, os.Chmod(filepath.Join(closed, name), 0))
	}
	cp := save(t, s, closed, "T")
	require.NoError(t, s.Close())
	require.NoError(t, filepath.WalkDir(store, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		require.NoError(t, errors.Join(err, unix.Lstat(path, &st)))
		require.Equal(t, uint32(ordinary), st.Uid, path)
		return nil
	}))
	write(t, ws, map[string]string{"z": "3"})
	require.Empty(t, asUser(t, "save", store, ws, "T").Err)
	dir := filepath.Join(top, "dir")
	require.Empty(t, asUser(t, "restore", store, cp.ID, dir).Err)
	require.Equal(t, look(t, closed), look(t, dir))
	openStore(t, store)
}

// stuckStore stops for ever after it has read some contents.
type stuckStore struct {
	cas.Store
	left atomic.Int32
}

func (s *stuckStore) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	if key.NS == cas.Files {
		if s.left.Add(-1) < 0 {
			fmt.Println("stuck")
			select {}
		}
	}
	return s.Store.Read(ctx, key, dst)
}

// stuckRestore restores and never ends: the parent kills it.
func stuckRestore(ctx context.Context, args []string) (string, error) { // ref, dir, contents that are read
	s, err := Open(ctx, args[0], Options{})
	if err != nil {
		return "", err
	}
	_, rec, err := s.record(ctx, args[1])
	if err != nil {
		return "", err
	}
	stuck := &stuckStore{Store: s.blobs}
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return "", err
	}
	stuck.left.Store(int32(n))
	_, err = restore.Tree(ctx, stuck, s.trees, source(rec), args[2], restore.Options{Checkpoint: args[1]})
	return "", err
}

// TestKilledRestore: after it the target does not exist, or it is marked and nobody
// takes it for whole. Another restore does not use it, the same one completes it.
func TestKilledRestore(t *testing.T) {
	top := userDir(t)
	store, ws := filepath.Join(top, "store"), filepath.Join(top, "ws")
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("d%d/f%d", i%3, i)] = fmt.Sprint(i)
	}
	write(t, ws, files)
	s := openStore(t, store)
	cp, want := save(t, s, ws, "T"), look(t, ws)
	write(t, ws, map[string]string{"more": "1"})
	other := save(t, s, ws, "T")
	require.NoError(t, s.Close())
	for n := range 8 {
		for _, existing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d existing %v", n, existing), func(t *testing.T) {
				dir := filepath.Join(top, fmt.Sprintf("dir-%d-%v", n, existing))
				if existing {
					require.NoError(t, os.Mkdir(dir, 0o755))
				}
				killRestore(t, store, cp.ID, dir, n)
				s := openStore(t, store)
				if existing {
					refusesUnfinished(t, s, dir, cp.ID, other.ID)
				} else {
					require.NoDirExists(t, dir)
					left, err := filepath.Glob(filepath.Join(top, ".snapfs-restore-*"))
					require.NoError(t, err)
					require.Len(t, left, 1)
					for _, force := range []bool{false, true} {
						_, err = s.Save(t.Context(), SaveOptions{Workspace: left[0], Thread: "T", Force: force})
						require.ErrorIs(t, err, capture.ErrUnfinished)
						require.Contains(t, Hint(err), cp.ID)
					}
				}
				resumed := false
				res, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir, Resuming: func() { resumed = true }})
				require.NoError(t, err)
				require.True(t, resumed)
				require.Equal(t, int64(20), res.Files)
				require.Equal(t, want, look(t, dir))
				left, err := filepath.Glob(filepath.Join(top, ".snapfs-restore-*"))
				require.NoError(t, err)
				require.Empty(t, left)
				require.NoError(t, s.Close())
			})
		}
	}
}

// killRestore kills a restore after it has read some contents.
func killRestore(t *testing.T, store, ref, dir string, contents int) {
	t.Helper()
	cmd := childCommand(t, uint32(os.Geteuid()), "stuck restore", store, ref, dir, strconv.Itoa(contents))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "stuck\n", line)
}

// refusesUnfinished looks for every way in which the directory of a killed restore must
// not be used, and for what is said about it.
func refusesUnfinished(t *testing.T, s *Store, dir, ref, other string) {
	t.Helper()
	require.FileExists(t, filepath.Join(dir, capture.Marker))
	before := look(t, dir)
	head, err := s.Thread(t.Context(), "T")
	require.NoError(t, err)
	hint := "snapfs restore " + ref + " " + dir
	_, err = s.Restore(t.Context(), other, RestoreOptions{Dir: dir})
	require.ErrorIs(t, err, restore.ErrUnfinished)
	require.Contains(t, Hint(err), hint)
	_, err = s.Restore(t.Context(), ref, RestoreOptions{Dir: dir, Include: []policy.Rule{{Pattern: "d0"}}})
	require.ErrorIs(t, err, restore.ErrUnfinished)
	require.Contains(t, Hint(err), hint)
	for _, force := range []bool{false, true} {
		_, err = s.Save(t.Context(), SaveOptions{Workspace: dir, Thread: "T", Force: force})
		require.ErrorIs(t, err, capture.ErrUnfinished)
		require.Contains(t, Hint(err), hint)
	}
	planted := filepath.Join(dir, "d9")
	write(t, dir, map[string]string{"d9": "mine"})
	_, err = s.Restore(t.Context(), ref, RestoreOptions{Dir: dir})
	require.ErrorIs(t, err, restore.ErrNotEmpty)
	require.Contains(t, Hint(err), "move it away")
	require.FileExists(t, planted)
	require.NoError(t, os.Remove(planted))
	after := look(t, dir)
	root := after["."]
	root.Mtime = before["."].Mtime
	after["."] = root
	require.Equal(t, before, after)
	again, err := s.Thread(t.Context(), "T")
	require.NoError(t, err)
	require.Equal(t, head.Head, again.Head)
}
