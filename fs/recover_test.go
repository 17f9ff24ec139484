package fs_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/snapshot"
)

// within runs what must not hang.
func within(t *testing.T, limit time.Duration, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		buf := make([]byte, 1<<16)
		t.Fatalf("%s takes longer than %v\n%s", what, limit, buf[:runtime.Stack(buf, true)])
	}
}

// mountAgain mounts a store where the mount of a killed daemon is, and needs at
// most two seconds for it.
func mountAgain(t *testing.T, d *daemon, at string) {
	t.Helper()
	within(t, 2*time.Second, "to mount again", func() {
		require.NoError(t, d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: at}))
	})
}

// TestKilledDaemon: what a daemon leaves that was killed fails at once and does
// not hang, and the next daemon takes its place, in its store or another.
func TestKilledDaemon(t *testing.T) {
	dir := newStore(t)
	d := startAs(t, dir, childClean)
	m := d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "content", "g": "0"}), Thread: "t"})
	require.Equal(t, "content", content(t, dirOf(m, cp)+"/f"))
	root := open(t, dirOf(m, cp))
	d.kill()
	require.Equal(t, []string{m}, d.mounted())
	within(t, time.Second, "to look at a dead mount", func() {
		_, err := os.ReadDir(m + "/threads/t/none")
		require.ErrorIs(t, err, unix.ENOTCONN)
		_, err = root.ReadFile("g")
		require.ErrorIs(t, err, unix.ENOTCONN)
	})

	again := startAs(t, dir, childClean)
	mountAgain(t, again, m) // although somebody is still in the dead one
	require.Equal(t, []string{m}, again.mounted(), "the dead mount is below the new one")
	require.Equal(t, "content", content(t, dirOf(m, cp)+"/f"))
	require.NoError(t, root.Close())
	again.kill()

	other := start(t)
	mountAgain(t, other, m)
	require.Empty(t, again.mounted())
	require.Empty(t, list(t, m+"/threads"))
}

// TestUnmountOfDead: a dead mount goes, also when somebody is in it.
func TestUnmountOfDead(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		d := start(t)
		m := d.mount()
		cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "0"}), Thread: "t"})
		root := open(t, dirOf(m, cp))
		d.kill()
		within(t, 2*time.Second, "to unmount", func() { require.NoError(t, fs.Unmount(m, lazy)) })
		require.Empty(t, d.mounted())
		require.NoError(t, root.Close())
		verify(t, d.dir, false)
	}
}

// TestTakenByAnother: where the mount of a daemon is that lives, nothing is
// mounted and nothing is taken away, also while that one does not answer.
func TestTakenByAnother(t *testing.T) {
	theirs, ours := start(t), start(t)
	m := theirs.mount()
	err := ours.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: m})
	require.ErrorIs(t, err, snapshot.ErrMounted)
	require.ErrorContains(t, err, fmt.Sprintf("served by process %d for the store %s:", theirs.cmd.Process.Pid, theirs.dir))

	require.NoError(t, theirs.cmd.Process.Signal(syscall.SIGSTOP))
	resume := func() { _ = theirs.cmd.Process.Signal(syscall.SIGCONT) }
	t.Cleanup(resume)
	// Its threads stop one after the other.
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", theirs.cmd.Process.Pid))
		require.NoError(t, err)
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err != nil || !strings.Contains(string(data), ") T ") {
				return false
			}
		}
		return true
	}, 5*time.Second, time.Millisecond)
	within(t, 5*time.Second, "to give up", func() {
		err = ours.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: m})
	})
	require.ErrorIs(t, err, snapshot.ErrMounted)
	require.ErrorContains(t, err, "it does not answer")
	require.Contains(t, snapshot.Hint(err), "--lazy")
	resume()
	require.Equal(t, []string{m}, theirs.mounted())
	require.Empty(t, list(t, m+"/threads"))
	require.Empty(t, ours.mounted())
}

// TestUsersAreNamed: who keeps a mount busy is named, in whatever way they do.
func TestUsersAreNamed(t *testing.T) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	program, err := os.ReadFile(sh)
	require.NoError(t, err)
	d := start(t)
	m := d.mount()
	ws := write(t, map[string]string{"f": "content", "sh": string(program)})
	require.NoError(t, os.Chmod(ws+"/sh", 0o755))
	files := dirOf(m, d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"}))

	// run starts a shell that says when it uses the mount, and stays.
	run := func(t *testing.T, dir, shell, script string) (pid int, stop func()) {
		cmd := exec.Command(shell, "-c", script+"; echo .; read nothing")
		cmd.Dir = dir
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		stop = func() {
			_ = in.Close()
			_ = cmd.Wait()
		}
		_, err = io.ReadFull(out, make([]byte, 1))
		require.NoError(t, err)
		return cmd.Process.Pid, stop
	}
	for _, c := range []struct {
		what string
		use  func(t *testing.T) (pid int, stop func())
	}{
		{"current directory", func(t *testing.T) (int, func()) { return run(t, files, sh, ":") }},
		{"program", func(t *testing.T) (int, func()) { return run(t, "/", files+"/sh", ":") }},
		{"open file", func(t *testing.T) (int, func()) { return run(t, "/", sh, "exec 4<"+files+"/f") }},
		{"mapped memory", func(t *testing.T) (int, func()) {
			f, err := os.Open(files + "/f")
			require.NoError(t, err)
			mem, err := unix.Mmap(int(f.Fd()), 0, 7, unix.PROT_READ, unix.MAP_PRIVATE)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			return os.Getpid(), func() { require.NoError(t, unix.Munmap(mem)) }
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			pid, stop := c.use(t)
			defer stop()
			err := d.umount(m, false)
			require.ErrorIs(t, err, snapshot.ErrMountBusy)
			require.ErrorContains(t, err, fmt.Sprintf("(process %d)", pid))
			require.ErrorContains(t, err, filepath.Base(m)+" is in use by ")
		})
	}
	if os.Geteuid() != 0 {
		return
	}
	t.Run("mount", func(t *testing.T) {
		over := files + "/f"
		require.NoError(t, unix.Mount(ws+"/f", over, "", unix.MS_BIND, ""))
		defer func() { require.NoError(t, unix.Unmount(over, unix.MNT_DETACH)) }()
		require.ErrorContains(t, d.umount(m, false), "the mount at "+over)
	})
}
