package snapshot

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/policy"
)

// readBySave saves a workspace and returns how many bytes of contents were read.
func readBySave(t *testing.T, s *Store, opt SaveOptions) int64 {
	t.Helper()
	opt.Files.NoDefaults = true
	res, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	require.Empty(t, faults(t, s))
	return res.Read
}

// TestSaveReadsWhatChanged: a save reads what has changed since the last one, or all
// when it cannot rely on that.
func TestSaveReadsWhatChanged(t *testing.T) {
	const size = 300_000
	noDefaults := SaveOptions{}
	tests := map[string]struct {
		between func(t *testing.T, s *Store, ws string, first Checkpoint)
		opt     SaveOptions
		read    int64
	}{
		"nothing changed":  {func(*testing.T, *Store, string, Checkpoint) {}, noDefaults, 0},
		"one file changed": {func(t *testing.T, _ *Store, ws string, _ Checkpoint) { noiseFile(t, ws+"/b", 9, 1000) }, noDefaults, 1000},
		"full scan":        {func(*testing.T, *Store, string, Checkpoint) {}, SaveOptions{FullScan: true}, size + 2000},
		"another policy": {func(*testing.T, *Store, string, Checkpoint) {}, SaveOptions{Files: policy.FilesOptions{
			Exclude: []policy.Rule{{Pattern: "*.log", Source: "--exclude"}}}}, size + 2000},
		"another thread": {func(*testing.T, *Store, string, Checkpoint) {}, SaveOptions{Thread: "other"}, size + 2000},
		"a moved workspace": {func(t *testing.T, _ *Store, ws string, _ Checkpoint) {
			require.NoError(t, os.Rename(ws, ws+"2"))
			require.NoError(t, os.Symlink(ws+"2", ws))
		}, noDefaults, 0},
		"the last checkpoint was deleted": {func(t *testing.T, s *Store, _ string, first Checkpoint) {
			_, err := s.Delete(t.Context(), first.ID)
			require.NoError(t, err)
		}, noDefaults, size + 2000},
		"deleted, collected": {func(t *testing.T, s *Store, _ string, first Checkpoint) {
			_, err := s.Delete(t.Context(), first.ID)
			require.NoError(t, err)
			gc(t, s)
		}, noDefaults, size + 2000},
		"an older one was deleted and collected, the packs are others": {func(t *testing.T, s *Store, ws string, first Checkpoint) {
			noiseFile(t, ws+"/b", 9, 1000)
			save(t, s, ws, "t")
			_, err := s.Delete(t.Context(), first.ID)
			require.NoError(t, err)
			gc(t, s)
		}, noDefaults, size + 2000},
		"a pack is lost": {func(t *testing.T, s *Store, _ string, _ Checkpoint) {
			for _, path := range packFiles(t, s) {
				require.NoError(t, os.Remove(path))
			}
		}, noDefaults, size + 2000},
		"something is known to be damaged": {func(t *testing.T, s *Store, _ string, first Checkpoint) {
			hash, err := cas.ParseHash(first.Tree)
			require.NoError(t, err)
			at, err := s.holder.Locate(t.Context(), []cas.Key{{NS: cas.Trees, Hash: hash}})
			require.NoError(t, err)
			require.NoError(t, s.holder.Distrust(t.Context(), []cas.Located{{Key: cas.Key{NS: cas.Trees, Hash: hash}, Location: at[0]}}))
		}, noDefaults, size + 2000},
		"the cache is damaged": {func(t *testing.T, s *Store, _ string, _ Checkpoint) {
			for _, path := range knownFiles(t, s) {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				data[len(data)/2] ^= 1
				require.NoError(t, os.WriteFile(path, data, 0o600))
			}
		}, noDefaults, size + 2000},
		"the cache is gone": {func(t *testing.T, s *Store, _ string, _ Checkpoint) {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, cacheDir)))
		}, noDefaults, size + 2000},
		"the cache cannot be written": {func(t *testing.T, s *Store, _ string, _ Checkpoint) {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, cacheDir)))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, cacheDir), nil, 0o600))
		}, noDefaults, size + 2000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := unsound(t)
			ws := filepath.Join(t.TempDir(), "ws")
			noiseFile(t, ws+"/a", 1, size)
			noiseFile(t, ws+"/b", 2, 1000)
			noiseFile(t, ws+"/d/c", 3, 1000)
			time.Sleep(30 * time.Millisecond) // an older kernel's clock moves in ticks
			first := save(t, s, ws, "t")
			test.between(t, s, ws, first)
			opt := test.opt
			opt.Workspace, opt.Thread = ws, cmp.Or(opt.Thread, "t")
			opt.Files.NoDefaults = true
			res, err := s.Save(t.Context(), opt)
			require.NoError(t, err)
			require.Equal(t, test.read, res.Read)
			real, err := filepath.EvalSymlinks(ws)
			require.NoError(t, err)
			require.Equal(t, look(t, real), look(t, restored(t, s, res.Checkpoint.ID)))
			if !strings.Contains(name, "lost") {
				require.Empty(t, faults(t, s))
			}
			if !strings.Contains(name, "written") {
				again, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: opt.Thread, Files: opt.Files})
				require.NoError(t, err)
				require.Zero(t, again.Read, "now all is known")
			}
		})
	}
}

// TestKnownIsPruned: what no save has used for long goes with the next new one.
func TestKnownIsPruned(t *testing.T) {
	s := newStore(t)
	first, second := filepath.Join(t.TempDir(), "ws"), filepath.Join(t.TempDir(), "ws")
	noiseFile(t, first+"/a", 1, 1000)
	noiseFile(t, second+"/a", 1, 1000)
	save(t, s, first, "t")
	old := knownFiles(t, s)
	require.Len(t, old, 1)
	long := time.Now().Add(-2 * knownAge)
	require.NoError(t, os.Chtimes(old[0], long, long))
	save(t, s, second, "u")
	now := knownFiles(t, s)
	require.Len(t, now, 1)
	require.NotEqual(t, old, now)
}

// TestBigOutput: gigabytes that nobody has touched are not read again, and a limit
// names them.
func TestBigOutput(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, ws+"/src", 1, 1000)
	big, err := os.Create(ws + "/output.bin")
	require.NoError(t, err)
	_, err = big.WriteAt(castest.Noise(2, 1<<20), 1<<30)
	require.NoError(t, err)
	require.NoError(t, big.Truncate(4_800_000_000))
	require.NoError(t, big.Close())
	time.Sleep(30 * time.Millisecond)
	save(t, s, ws, "t")
	noiseFile(t, ws+"/src", 3, 1000)
	require.Equal(t, int64(1000), readBySave(t, s, SaveOptions{Workspace: ws, Thread: "t"}))
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxFileSize: 1 << 30}})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.ErrorContains(t, err, "output.bin: 4800000000 bytes long (4.5 GiB), the limit is 1073741824")
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxSize: 1 << 30}})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.ErrorContains(t, err, "\n  output.bin: 4.5 GiB")
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxFileSize: 1 << 30, SkipOver: true}})
	require.NoError(t, err)
	require.Equal(t, 1, res.Over)
	require.EqualValues(t, 1000, res.Read)
	cp, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	require.Equal(t, []Omission{{NewPath("output.bin"), "over the limit for files: 4800000000 bytes long (4.5 GiB), the limit is 1073741824"}}, cp.Omissions)
}

// knownFiles are the files of cache/known.
func knownFiles(t *testing.T, s *Store) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, cacheDir, knownDir, "*"))
	require.NoError(t, err)
	return files
}

// TestRemount: a file system that is mounted again under another device's number is
// not read again.
func TestRemount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system")
	}
	dir := t.TempDir()
	image, other, ws := filepath.Join(dir, "image"), filepath.Join(dir, "other"), filepath.Join(dir, "ws")
	require.NoError(t, os.Mkdir(ws, 0o755))
	for _, file := range []string{image, other} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, 16<<20))
	}
	command := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("%s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	mount := func() (device uint64, umount func()) {
		command("mount", "-o", "loop", image, ws)
		umount = sync.OnceFunc(func() { require.NoError(t, unix.Unmount(ws, 0)) })
		t.Cleanup(umount)
		var st unix.Stat_t
		require.NoError(t, unix.Stat(ws, &st))
		return st.Dev, umount
	}
	command("mkfs.ext4", "-q", image)
	first, umount := mount()
	noiseFile(t, ws+"/a", 1, 200_000)
	noiseFile(t, ws+"/d/b", 2, 2000)
	time.Sleep(30 * time.Millisecond)
	s := newStore(t)
	save(t, s, ws, "t")
	umount()
	taken := command("losetup", "-f", "--show", other) // the first mount's device
	t.Cleanup(func() { require.NoError(t, exec.Command("losetup", "-d", taken).Run()) })
	second, umount := mount()
	defer umount()
	require.NotEqual(t, first, second)
	require.Zero(t, readBySave(t, s, SaveOptions{Workspace: ws, Thread: "t"}))
	noiseFile(t, ws+"/d/b", 3, 1000)
	require.Equal(t, int64(1000), readBySave(t, s, SaveOptions{Workspace: ws, Thread: "t"}))
}
