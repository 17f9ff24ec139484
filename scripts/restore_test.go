package scripts_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	restoreScript = "restore-sandbox.sh"
	marker        = ".snapfs-restoring"
	hook          = "pwd >../hooked"
)

// hooked tells whether the hook has run, and forgets it.
func (w *world) hooked() bool { return os.Remove(w.path("hooked")) == nil }

func TestRestoreNew(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		w.save("task", "two")
		w.save("other", "three")
		for _, dir := range []string{"missing", "empty", "above/missing"} {
			if dir == "empty" {
				w.mkdir(dir)
			}
			got := w.run(restoreScript, "--hook", `pwd; echo "$SNAPFS_THREAD"`, "task", dir)
			require.Equal(w, 0, got.code, got.stderr)
			require.Equal(w, w.path(dir)+"\ntask\n", got.stdout)
			require.Equal(w, []string{"f"}, w.names(dir))
			data, err := os.ReadFile(w.path(dir + "/f"))
			require.NoError(w, err)
			require.Equal(w, "two", string(data))
		}
		require.Contains(w, w.must(restoreScript, "--store", "store", "--hook", "snapfs list", "task", "relative"), "task")
		// What the script did in the directory for the hook does not show.
		w.must("snapfs", "save", "--thread", "task", "missing")
		w.must("snapfs", "restore", "task@latest", "again")
		require.Equal(w, mtime(w, "ws-two"), mtime(w, "missing"))
		require.Equal(w, mtime(w, "ws-two"), mtime(w, "again"))
	})
}

func mtime(w *world, name string) time.Time {
	info, err := os.Stat(w.path(name))
	require.NoError(w, err)
	return info.ModTime()
}

func TestRestoreNoCheckpointYet(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("a", "one", "--name", "b@latest") // a@b@latest is its checkpoint, and no newest one of a@b
		w.save("emptied", "two", "--id", "only")
		w.must("snapfs", "delete", "only")
		require.NoError(w, os.MkdirAll(w.path("lost/lost+found"), 0o755))
		for _, c := range []struct{ thread, dir string }{
			{"task", "missing"}, {"task", "above/it/missing/"}, {"emptied", "thread-emptied"}, {"a@b", "at"}, {"task", "lost"},
		} {
			got := w.run(restoreScript, "--hook", hook, c.thread, c.dir)
			require.Equal(w, 0, got.code, got.stderr)
			require.Contains(w, got.stderr, "no checkpoint yet")
			require.Subset(w, []string{"hooked", "lost+found"}, w.names(c.dir))
			require.Equal(w, c.dir != "above/it/missing/", w.hooked(), c.dir)
		}
	})
}

func TestRestoreLive(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		w.write("live/.hidden", "mine")
		for _, store := range []string{w.store, w.path("nowhere")} {
			got := w.run(restoreScript, "--store", store, "--hook", hook, "task", "live")
			require.Equal(w, 0, got.code, got.stderr)
			require.Contains(w, got.stderr, "left alone")
			require.False(w, w.hooked())
			require.Equal(w, []string{".hidden"}, w.names("live"))
		}
	})
}

// TestRestoreFails is about what must never look like a thread without
// checkpoints: no hook, and the directory as it was.
func TestRestoreFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		code   int
		text   string
		thread string // task if empty
		harm   func(w *world)
	}{
		{"missing store", 4, "no store at", "", func(w *world) { w.env = append(w.env, "SNAPFS_STORE="+w.path("stoer")) }},
		{"missing store, new thread", 4, "no store at", "new", func(w *world) { w.env = append(w.env, "SNAPFS_STORE=stoer") }},
		{"empty directory", 4, "no store at", "new", func(w *world) { w.env = append(w.env, "SNAPFS_STORE="+w.mkdir("disk")) }},
		{"other directory", 1, "not a snapfs store", "new", func(w *world) { w.env = append(w.env, "SNAPFS_STORE="+w.dir) }},
		{"away while it is asked", 4, "the store cannot be read", "new", func(w *world) {
			w.stub(`case $* in *" -- new") mv store away ;; esac`)
			w.Cleanup(func() { require.NoError(w, os.Rename(w.path("away"), w.store)) })
		}},
		{"away until it was asked", 4, "the store cannot be read", "new", func(w *world) {
			require.NoError(w, os.Rename(w.store, w.path("away")))
			w.stub(`trap 'case $* in *" -- new") mv away store ;; esac' EXIT; ` + w.script("snapfs") + ` "$@"; exit`)
			w.Cleanup(func() { _ = os.Rename(w.path("away"), w.store) })
		}},
		{"away while it was asked only", 4, "the store cannot be read", "new", func(w *world) {
			w.stub(`case $* in *" -- new") SNAPFS_STORE=away ;; esac`)
		}},
		{"other words", 1, "cannot understand", "", func(w *world) { w.stub(`[ "$1" != list ] || exec echo '{"thread":"task"}'`) }},
		{"damaged file", 8, "the sandbox cannot start", "", func(w *world) { w.damage("one") }},
		{"another thread's id", 6, "is the id of a checkpoint", "", func(w *world) { w.save("evil", "two", "--id", "task@latest") }},
		{"thread not UTF-8", 2, "no thread can be called", "x\xff", func(*world) {}},
		{"thread too long", 2, "no thread can be called", strings.Repeat("ä", 256) + "x", func(*world) {}},
		{"thread a slash", 2, "no thread can be called", "/", func(*world) {}},
		{"no program", 1, "no snapfs command", "", func(w *world) { w.env = append(w.env, "PATH=/usr/bin:/bin") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.thread == "" {
				c.thread = "task"
			}
			w.save("task", "one")
			script := w.script(restoreScript)
			c.harm(w)
			w.mkdir("empty")
			for _, dir := range []string{"missing", "empty"} {
				w.fails(c.code, c.text, script, "--hook", hook, c.thread, dir)
				require.False(w, w.hooked())
				if strings.HasPrefix(c.name, "away") {
					break // it is elsewhere now
				}
			}
			require.False(w, w.exists("missing"))
			require.Empty(w, w.names("empty"))
			require.False(w, w.exists(".snapfs-*"))
		})
	}
}

// TestRestoreDamagedWithDaemon is the case of a damaged file once more: the daemon
// has the index, the restore reads the packs.
func TestRestoreDamagedWithDaemon(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		w.damage("one")
		w.fails(8, "the sandbox cannot start", restoreScript, "--hook", hook, "task", "missing")
		require.False(w, w.hooked() || w.exists("missing"))
		w.fails(4, "no store at", restoreScript, "--store=elsewhere", "--hook", hook, "new", "missing")
		require.False(w, w.hooked() || w.exists("missing") || w.exists("elsewhere"))
	})
}

// TestRestoreOthersStore runs as a user who may not look into the store.
func TestRestoreOthersStore(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	w.save("task", "one")
	require.NoError(t, os.Chown(w.mkdir("home"), 65534, 65534))
	for _, thread := range []string{"task", "new"} {
		cmd, stdout, stderr := w.command(restoreScript, "--hook", hook, thread, "home/dir")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		require.Error(t, cmd.Run())
		require.Contains(t, []int{1, 7}, cmd.ProcessState.ExitCode())
		require.Contains(t, stderr.String(), "permission denied")
		require.Empty(t, stdout.String())
		require.Empty(t, w.names("home"))
	}
}

// TestRestoreVolume restores into the root of a file system, which has room for a
// small checkpoint only.
func TestRestoreVolume(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	volume := w.mkdir("volume")
	if err := unix.Mount("none", volume, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(volume, unix.MNT_DETACH)) })
	w.mkdir("volume/lost+found")
	w.save("small", "one")
	w.write("ws-large/f", strings.Repeat("x", 1<<20))
	w.must("snapfs", "save", "--thread", "large", "ws-large")

	w.fails(9, "the sandbox cannot start", restoreScript, "--hook", "touch ../hooked", "large", volume)
	require.False(t, w.hooked())
	require.Equal(t, []string{"lost+found"}, w.names("volume"))

	w.must(restoreScript, "--hook", "touch ../hooked", "small", volume)
	require.True(t, w.hooked())
	require.Equal(t, []string{"f", "lost+found"}, w.names("volume"))
}

// TestRestoreUnfinished is about directories that look like live ones.
func TestRestoreUnfinished(t *testing.T) {
	eachWay(t, func(w *world) {
		w.save("task", "one")
		w.write("cut/f", "half of")
		w.write("cut/"+marker, "")
		for _, thread := range []string{"task", "new"} {
			w.fails(6, "is unfinished", restoreScript, "--hook", hook, thread, "cut")
			require.Equal(w, []string{marker, "f"}, w.names("cut"))
		}
		require.False(w, w.hooked())

		for _, thread := range []string{"task", "new"} {
			dir := "dir-" + thread
			w.fails(1, "the hook failed (exit code 7)", restoreScript, "--hook", "exit 7", thread, dir)
			w.fails(6, "is unfinished", restoreScript, "--hook", hook, thread, dir)
			w.fails(6, "unfinished", "snapfs", "save", "--thread", thread, dir)
			require.False(w, w.hooked())
			require.NoError(w, os.RemoveAll(w.path(dir)))
			w.must(restoreScript, "--hook", hook, thread, dir)
			require.True(w, w.hooked())
			require.NotContains(w, w.names(dir), marker)
		}
	})
}

// TestRestoreCutOff is about a sandbox in which a restore was killed: it gets the rest
// before its hook runs, and never looks live before.
func TestRestoreCutOff(t *testing.T) {
	eachWay(t, func(w *world) {
		w.write("ws/a", "first")
		w.write("ws/big/f", strings.Repeat("0123456789abcde\n", 6<<20))
		w.must("snapfs", "save", "--thread", "task", "--compression", "off", "ws")
		w.save("other", "one")
		for _, dir := range []string{"missing", "empty"} {
			if dir == "empty" {
				w.mkdir(dir)
			}
			made := dir + "/a"
			if dir == "missing" {
				made = ".snapfs-restore-*/tree/a"
			}
			r := w.start("snapfs", "restore", "task@latest", dir)
			w.until("the restore", func() bool { return w.exists(made) })
			require.NoError(w, syscall.Kill(-r.Process.Pid, syscall.SIGKILL))
			require.Equal(w, -1, r.end().code, "it was killed in time")

			if dir == "empty" {
				for thread, text := range map[string]string{"other": "hint: snapfs restore", "new": "is unfinished"} {
					w.fails(6, text, restoreScript, "--hook", hook, thread, dir)
					require.False(w, w.hooked())
				}
				w.fails(6, "unfinished", "snapfs", "save", "--thread", "task", dir)
			}
			got := w.run(restoreScript, "--hook", hook, "task", dir)
			require.Equal(w, 0, got.code, got.stderr)
			require.Contains(w, got.stderr, "resuming")
			require.True(w, w.hooked())
			w.must("diff", "-r", "ws", dir)
			require.False(w, w.exists(".snapfs-restore-*"))
			require.Contains(w, w.run(restoreScript, "--hook", hook, "task", dir).stderr, "left alone")
		}
	})
}

func TestRestoreOddNames(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{"two words", "-rf", "--hook", "new\nline\n", "$(touch x)`touch y`", `"'\`, "*", "ä\u2028🦊", "a@b", "=", `","thread":"task"`} {
		content := "content " + strconv.Itoa(i)
		w.save(name, content)
		if name == "--hook" || name == "-rf" {
			w.must(restoreScript, "--hook", "touch made", "--", name, name)
		} else {
			w.must(restoreScript, name, "--hook=touch made", name)
		}
		require.Equal(w, []string{"f", "made"}, w.names(name))
		data, err := os.ReadFile(w.path(name) + "/f")
		require.NoError(t, err)
		require.Equal(t, content, string(data))
	}
	require.False(t, w.exists("[xy]"))
}

func TestRestoreUsage(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{}, {"t"}, {"t", "d", "x"}, {"--hook"}, {"--hook=", "t", "d"}, {"--force", "t", "d"}, {"", "d"}, {"t", ""}, {"t", "//"}} {
		w.fails(2, "usage:", restoreScript, args...)
	}
	require.Contains(t, w.must(restoreScript, "--help"), "usage: restore-sandbox.sh")
	w.write("file", "")
	require.NoError(t, os.Symlink("nowhere", w.path("link")))
	for _, dir := range []string{"file", "link"} {
		w.fails(1, "cannot look into", restoreScript, "t", dir)
	}
}
