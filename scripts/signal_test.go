package scripts_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// script is the path of a script, whatever becomes of PATH.
func (w *world) script(name string) string {
	w.Helper()
	path, err := exec.LookPath(name)
	require.NoError(w, err)
	return path
}

// stub puts a program before snapfs that runs some lines of shell first.
func (w *world) stub(lines string) {
	w.Helper()
	text := "#!/bin/sh\n" + lines + "\nexec " + w.script("snapfs") + ` "$@"` + "\n"
	require.NoError(w, os.Chmod(w.write("stub/snapfs", text), 0o755))
	w.env = append(w.env, "PATH="+w.path("stub")+":"+os.Getenv("PATH"))
}

// pid waits for a file with a process id in it.
func (w *world) pid(name string) int {
	w.Helper()
	pid := 0
	w.until("a process id in "+name, func() bool {
		data, _ := os.ReadFile(w.path(name))
		text, whole := strings.CutSuffix(string(data), "\n")
		pid, _ = strconv.Atoi(text)
		return whole && pid > 0
	})
	return pid
}

// gone waits for the end of a process that need not be our child.
func (w *world) gone(pid int) {
	w.Helper()
	w.until("the end of "+strconv.Itoa(pid), func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestRestoreStopped stops the script while the restore runs.
func TestRestoreStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
	}{
		{"INT", syscall.SIGINT, 130}, {"TERM", syscall.SIGTERM, 130}, {"HUP", syscall.SIGHUP, 130}, {"KILL", syscall.SIGKILL, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.code < 0 && exec.Command("setpriv", "--pdeathsig", "TERM", "true").Run() != nil {
				t.Skip("no setpriv that ties a process to its parent")
			}
			if signal.Ignored(c.signal) {
				t.Skip("a shell that was started under nohup cannot catch it")
			}
			w := newWorld(t)
			w.save("task", "one")
			w.stub(`[ "$1" != restore ] || { echo $$ >restoring; exec sleep 60; }`)
			w.mkdir("empty")
			for _, dir := range []string{"missing", "empty"} {
				r := w.start(w.script(restoreScript), "--hook", hook, "task", dir)
				pid := w.pid("restoring")
				require.NoError(t, r.Process.Signal(c.signal))
				require.Equal(t, c.code, r.end().code)
				w.gone(pid)
				require.NoError(t, os.Remove(w.path("restoring")))
				require.False(t, w.hooked())
			}
			require.False(t, w.exists("missing"))
			require.Empty(t, w.names("empty"))
		})
	}
}

// TestRestoreStoppedWaiting stops the script while another process has the store.
func TestRestoreStoppedWaiting(t *testing.T) {
	w := newWorld(t)
	w.stub(`echo $$ >asking; exec sleep 60`)
	r := w.start(w.script(restoreScript), "task", "dir")
	pid := w.pid("asking")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	got := r.end()
	require.Equal(t, 130, got.code)
	require.Contains(t, got.stderr, "as it was")
	w.gone(pid)
	require.False(t, w.exists("dir"))
}

// TestRestoreStoppedTooLate is about a signal that does not stop the restore any
// more: the hook has not run, and nobody may think that it has.
func TestRestoreStoppedTooLate(t *testing.T) {
	w := newWorld(t)
	w.save("task", "one")
	w.stub(`[ "$1" != restore ] || { trap '' TERM; echo $$ >restoring; while [ ! -e go ]; do sleep 0.01; done; }`)
	r := w.start(w.script(restoreScript), "--hook", hook, "task", "dir")
	w.pid("restoring")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	w.write("go", "")
	got := r.end()
	require.Equal(t, 130, got.code, got.stderr)
	require.False(t, w.hooked())
	require.Equal(t, []string{marker, "f"}, w.names("dir"))
	w.fails(6, "is unfinished", restoreScript, "task", "dir")
}

// TestHookStopped stops the script while its hook runs, with all that the hook
// has started.
func TestHookStopped(t *testing.T) {
	w := newWorld(t)
	w.save("task", "one")
	slow := "sleep 60 & echo $! >../child; echo $$ >../hook; wait"
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		r := w.start(restoreScript, "--hook", slow, "task", "dir")
		child, group := w.pid("child"), w.pid("hook")
		t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
		require.NoError(t, r.Process.Signal(signal))
		code := r.end().code
		if signal == syscall.SIGTERM {
			require.Equal(t, 130, code)
		} else {
			require.NoError(t, syscall.Kill(-group, syscall.SIGKILL)) // what nobody can pass on
		}
		w.gone(child)
		w.gone(group)
		require.Equal(t, []string{marker, "f"}, w.names("dir"))
		w.fails(6, "is unfinished", restoreScript, "--hook", hook, "task", "dir")
		for _, name := range []string{"dir", "child", "hook"} {
			require.NoError(t, os.RemoveAll(w.path(name)))
		}
	}
}

// TestRestoreKilled kills the script and the restore at once, in the middle: what
// is there never looks like a sandbox, and a second start ends the matter.
func TestRestoreKilled(t *testing.T) {
	w := newWorld(t)
	for i := range 4000 {
		w.write("ws/"+strconv.Itoa(i/100)+"/"+strconv.Itoa(i), strconv.Itoa(i))
	}
	w.must("snapfs", "save", "--thread", "task", "ws")
	w.mkdir("empty")
	for _, c := range []struct{ dir, begun string }{{"missing", ".snapfs-restore-*/*"}, {"empty", "empty/?*"}} {
		r := w.start(restoreScript, "task", c.dir)
		w.until("the middle", func() bool { return w.exists(c.begun) })
		require.NoError(t, syscall.Kill(-r.Process.Pid, syscall.SIGKILL))
		require.Equal(t, -1, r.end().code)
	}
	require.False(t, w.exists("missing"))
	require.Contains(t, w.names("empty"), marker)
	for _, dir := range []string{"missing", "empty"} {
		w.must(restoreScript, "task", dir)
		w.must("diff", "-r", "ws", dir)
	}
}
