package scripts_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bootstrap makes what a checkpoint does not hold, and something that it has not.
const bootstrap = "mkdir -p node_modules old && touch node_modules/dep old/x .env && echo bootstrapped >f && pwd >&2"

// TestBootstrap: the bootstrap's files become the checkpoint's, and what checkpoints do
// not hold stays. Nobody sees the directory before.
func TestBootstrap(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		require.NoError(w, os.Chmod(w.path("ws-one"), 0o750))
		w.save("task", "two")
		for _, dir := range []string{"missing", "empty", "above/missing"} {
			if dir == "empty" {
				w.mkdir(dir)
			}
			got := w.run(restoreScript, "--bootstrap", bootstrap+"; ! ls "+w.path(dir)+"/* 2>/dev/null", "--hook", hook, "task", dir)
			require.Equal(w, 0, got.code, got.stderr)
			require.True(w, w.hookedBeside(dir))
			require.Contains(w, got.stderr, filepath.Dir(w.path(dir))+"/.snapfs-bootstrap-")
			require.Equal(w, []string{".env", "f", "node_modules"}, w.names(dir))
			data, err := os.ReadFile(w.path(dir + "/f"))
			require.NoError(w, err)
			require.Equal(w, "two", string(data))
			require.FileExists(w, w.path(dir+"/node_modules/dep"))
			require.Equal(w, mtime(w, "ws-two"), mtime(w, dir))
			require.False(w, w.exists(filepath.Dir(dir)+"/.snapfs-bootstrap-*"))
			require.Contains(w, w.run(restoreScript, "--bootstrap", "touch never", "task", dir).stderr, "left alone")
			require.NotContains(w, w.names(dir), "never")
		}
		w.must("snapfs", "save", "--thread", "task", "missing")
		require.Empty(w, w.must("snapfs", "diff", "task@latest", "task@latest"))
	})
}

// hookedBeside is hooked for a directory that need not lie in the world's own.
func (w *world) hookedBeside(dir string) bool {
	return os.Remove(filepath.Join(filepath.Dir(w.path(dir)), "hooked")) == nil
}

func TestBootstrapNoCheckpointYet(t *testing.T) {
	eachWay(t, func(w *world) {
		require.NoError(w, os.Chmod(w.mkdir("empty"), 0o711))
		for dir, mode := range map[string]os.FileMode{"missing": 0o755, "empty": 0o711} {
			got := w.run(restoreScript, "--bootstrap", bootstrap, "--hook", hook, "task", dir)
			require.Equal(w, 0, got.code, got.stderr)
			require.Contains(w, got.stderr, "starts with what the bootstrap made")
			require.True(w, w.hooked())
			require.Equal(w, []string{".env", "f", "node_modules", "old"}, w.names(dir))
			info, err := os.Stat(w.path(dir))
			require.NoError(w, err)
			require.Equal(w, mode, info.Mode().Perm(), dir)
		}
	})
}

// TestBootstrapFails: whatever fails, the directory is as it was and no hook runs.
func TestBootstrapFails(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		w.write("ws-bad/f", "BYTES THAT CHANGE")
		w.must("snapfs", "save", "--thread", "bad", "--compression", "off", "ws-bad")
		w.damage("BYTES THAT")
		w.mkdir("empty")
		for _, dir := range []string{"empty", "missing", "above/it/missing"} {
			for _, c := range []struct {
				code                    int
				text, bootstrap, thread string
			}{
				{1, "the bootstrap failed (exit code 7)", "touch made; exit 7", "task"},
				{8, "the sandbox cannot start", "touch made", "bad"},
				{1, "the bootstrap failed", "rm -rf \"$PWD\"; exit 1", "task"},
			} {
				w.fails(c.code, c.text, restoreScript, "--bootstrap", c.bootstrap, "--hook", hook, c.thread, dir)
				require.False(w, w.hooked())
				require.False(w, w.exists("missing"))
				require.False(w, w.exists("above"))
				require.Empty(w, w.names("empty"))
				require.False(w, w.exists(".snapfs-bootstrap-*"))
			}
		}
		w.write("cut/"+marker, `{"version":1}`)
		w.fails(6, "is unfinished", restoreScript, "--bootstrap", "touch made", "task", "cut")
		w.fails(2, "needs a value", restoreScript, "task", "missing", "--bootstrap")
	})
}

// TestBootstrapKilled: what a killed one left is taken away, unless it lives.
func TestBootstrapKilled(t *testing.T) {
	w := newWorld(t)
	w.save("task", "one")
	for _, dir := range []string{"missing", "empty"} {
		if dir == "empty" {
			w.mkdir(dir)
		}
		r := w.start(restoreScript, "--bootstrap", "touch made && exec sleep 100", "task", dir)
		w.until("the bootstrap", func() bool { return w.exists(".snapfs-bootstrap-*/tree/made") })
		w.fails(6, "another bootstrap", restoreScript, "--bootstrap", "true", "task", dir)
		require.NoError(t, syscall.Kill(r.Process.Pid, syscall.SIGTERM))
		require.Equal(t, 130, r.end().code)
		require.False(t, w.exists(".snapfs-bootstrap-*"))

		r = w.start(restoreScript, "--bootstrap", "echo $$ >"+w.path("pid")+" && touch made && exec sleep 100", "task", dir)
		w.until("the bootstrap", func() bool { return w.exists(".snapfs-bootstrap-*/tree/made") })
		require.NoError(t, syscall.Kill(r.Process.Pid, syscall.SIGKILL))
		r.end()
		w.killNoted("pid")
		require.True(t, w.exists(".snapfs-bootstrap-*"))
		w.must(restoreScript, "--bootstrap", "true", "task", dir)
		require.Equal(t, []string{"f"}, w.names(dir))
		require.False(t, w.exists(".snapfs-bootstrap-*"))
	}
}

// killNoted kills the process whose number is in a file, and waits for its end.
func (w *world) killNoted(name string) {
	w.Helper()
	data, err := os.ReadFile(w.path(name))
	require.NoError(w, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(w, err)
	require.NoError(w, syscall.Kill(pid, syscall.SIGKILL))
	w.until("its end", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestBootstrapMounts: what the bootstrap mounts in its directory is not emptied, whatever
// fails; and nothing else is taken for that directory.
func TestBootstrapMounts(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	w.save("task", "one")
	w.write("cache/precious", "mine")
	w.write("shared/precious", "mine")
	unmount := func() {
		points, err := filepath.Glob(w.path("*bootstrap-*/tree/node_modules"))
		require.NoError(t, err)
		more, err := filepath.Glob(w.path("*/.snapfs-bootstrap-*/tree/node_modules"))
		require.NoError(t, err)
		for _, p := range append(append(points, more...), w.path("done/node_modules")) {
			_ = unix.Unmount(p, unix.MNT_DETACH)
		}
	}
	t.Cleanup(unmount)
	mount := "mkdir node_modules && mount --bind " + w.path("cache") + " node_modules"
	w.fails(1, "something is mounted in", restoreScript, "--bootstrap", mount+"; false", "task", "failed")
	require.FileExists(t, w.path("cache/precious"))
	w.fails(1, "which a killed bootstrap left", restoreScript, "--bootstrap", "true", "task", "failed")
	require.FileExists(t, w.path("cache/precious"))
	unmount()
	w.must(restoreScript, "--bootstrap", "true", "task", "failed")

	w.must(restoreScript, "--bootstrap", mount, "task", "done")
	require.FileExists(t, w.path("done/node_modules/precious"), "it moves with the directory")
	unmount()

	volume := w.mkdir("volume")
	require.NoError(t, unix.Mount("none", volume, "tmpfs", 0, "size=512k"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(volume, unix.MNT_DETACH)) })
	w.fails(1, "something is mounted in", restoreScript, "--bootstrap", mount, "task", volume)
	require.FileExists(t, w.path("cache/precious"))
	unmount()

	for _, instead := range []string{`rmdir "$PWD"; ln -s ` + w.path("shared") + ` "$PWD"`, `mv "$PWD" ../was; mkdir "$PWD"`, `rmdir "$PWD"; touch "$PWD"`} {
		w.fails(1, "something else in the place", restoreScript, "--bootstrap", instead, "task", "instead")
		require.Equal(t, []string{"precious"}, w.names("shared"))
		require.False(t, w.exists("instead"))
	}
}

// TestBootstrapOwner: an empty directory of somebody's stays that user's.
func TestBootstrapOwner(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	w.save("task", "one")
	for _, thread := range []string{"task", "new"} {
		dir := "of-" + thread
		require.NoError(t, os.Chown(w.mkdir(dir), 1000, 1001))
		w.must(restoreScript, "--bootstrap", "touch made", thread, dir)
		st, err := os.Stat(w.path(dir))
		require.NoError(t, err)
		require.Equal(t, [2]uint32{1000, 1001}, [2]uint32{st.Sys().(*syscall.Stat_t).Uid, st.Sys().(*syscall.Stat_t).Gid})
	}
}

// TestBootstrapVolume: a mountpoint stays one, and is filled in place; so is what a link
// leads to.
func TestBootstrapVolume(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	volume := w.mkdir("volume")
	if err := unix.Mount("none", volume, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(volume, unix.MNT_DETACH)) })
	w.mkdir("volume/lost+found")
	require.NoError(t, os.Symlink(w.mkdir("behind"), w.path("link")))
	w.save("small", "one")
	w.write("ws-large/f", strings.Repeat("x", 1<<20))
	w.must("snapfs", "save", "--thread", "large", "ws-large")

	w.fails(9, "the sandbox cannot start", restoreScript, "--bootstrap", bootstrap, "--hook", "touch ../hooked", "large", volume)
	require.False(t, w.hooked())
	require.Equal(t, []string{"lost+found"}, w.names("volume"))
	for _, dir := range []string{"volume", "link"} {
		got := w.run(restoreScript, "--bootstrap", bootstrap, "--hook", "touch ../hooked", "--owner", "1000:1000", "small", dir)
		require.Equal(t, 0, got.code, got.stderr)
		require.Contains(t, got.stderr, w.path(dir)+"/.snapfs-bootstrap-")
		require.True(t, w.hooked())
		require.Subset(t, []string{".env", "f", "lost+found", "node_modules"}, w.names(dir))
		require.FileExists(t, w.path(dir+"/node_modules/dep"))
		require.Equal(t, mtime(w, "ws-one"), mtime(w, dir))
		for _, path := range []string{dir + "/.", dir + "/f"} {
			info, err := os.Stat(w.path(path))
			require.NoError(t, err)
			require.Equal(t, uint32(1000), info.Sys().(*syscall.Stat_t).Uid, path)
		}
	}
}
