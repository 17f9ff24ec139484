package fs_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/snapshot"
)

// TestSeveralMounts: one daemon shows its store in several places, and ends
// after the last.
func TestSeveralMounts(t *testing.T) {
	d := start(t)
	a, b := d.mount(), d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "0"}), Thread: "t"})
	for _, m := range []string{a, b} {
		require.FileExists(t, dirOf(m, cp)+"/f")
	}
	require.ElementsMatch(t, []string{a, b}, d.mounted())
	require.NoError(t, d.umount(a, false))
	require.Equal(t, []string{b}, d.mounted())
	require.FileExists(t, dirOf(b, cp)+"/f")
	require.NotZero(t, d.requests()["LOOKUP"], "requests of the mount that ended are lost")
	require.NoError(t, d.umount(b, false))
	d.gone()
}

func TestNoPlaceForAMount(t *testing.T) {
	d := start(t)
	m := d.mount()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	inside := filepath.Join(d.dir, "m")
	require.NoError(t, os.Mkdir(inside, 0o755))
	for _, c := range []struct {
		at  string
		err error
	}{
		{m, snapshot.ErrMounted},                   // mounted already
		{m + "/threads", snapshot.ErrMounted},      // inside a mount
		{inside, snapshot.ErrMounted},              // inside the store
		{d.dir, snapshot.ErrMounted},               // over the store
		{filepath.Dir(d.dir), snapshot.ErrMounted}, // around the store
		{file, snapshot.ErrMounted},                // no directory
		{"relative", snapshot.ErrRefused},
		{filepath.Join(t.TempDir(), "missing"), os.ErrNotExist},
	} {
		err := d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: c.at})
		require.ErrorIs(t, err, c.err, c.at)
	}
	require.Equal(t, []string{m}, d.mounted())
	require.ErrorIs(t, d.umount(file, false), snapshot.ErrNotMounted)
	require.NoError(t, os.Remove(inside))
}

// TestBusy: a mount that is in use is not taken away, unless lazily: then it
// goes with its last user.
func TestBusy(t *testing.T) {
	d := start(t)
	m := d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "content"}), Thread: "t"})
	root := open(t, dirOf(m, cp))
	err := d.umount(m, false)
	require.ErrorIs(t, err, snapshot.ErrMountBusy)
	require.Contains(t, snapshot.Hint(err), "--lazy")
	_, err = root.Stat("f")
	require.NoError(t, err)
	require.NoError(t, d.umount(m, true))
	require.Empty(t, d.mounted())
	require.NoDirExists(t, m+"/threads")
	// The mountpoint is free.
	require.NoError(t, d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: m}))
	require.NoError(t, d.umount(m, false))
	for range 50 { // that was not the last one
		st, err := d.store.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, d.cmd.Process.Pid, st.Daemon, "the daemon has ended")
	}
	data, err := root.ReadFile("f") // still served
	require.NoError(t, err)
	require.Equal(t, "content", string(data))
	require.NoError(t, root.Close())
	d.gone()
}

// TestSignal: SIGTERM takes the mounts away, also those in use.
func TestSignal(t *testing.T) {
	d := startAs(t, newStore(t), childBusy)
	m := d.mount()
	d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "content"}), Thread: "t"})
	root := open(t, dirOf(m, cp))
	left := d.mount()
	inLeft := open(t, left+"/threads")
	require.NoError(t, d.umount(left, true))
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	d.gone()
	require.Empty(t, d.mounted())
	require.NoError(t, inLeft.Close())
	_, err := root.ReadFile("f")
	require.ErrorIs(t, err, unix.ENOTCONN)
}

// TestUnmountedByOthers: the daemon notices when umount(8) takes its mount.
func TestUnmountedByOthers(t *testing.T) {
	d := start(t)
	m := d.mount()
	require.NoError(t, fs.Unmount(m, false))
	d.gone()
}

// TestDescriptorsAreNotInherited: a child that had /dev/fuse would keep the mount
// of a dead daemon from failing.
func TestDescriptorsAreNotInherited(t *testing.T) {
	d := start(t)
	d.mount()
	d.mount()
	requireCloseOnExec(t, d, 2)
}

func requireCloseOnExec(t *testing.T, d *daemon, want int) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid))
	fds, err := os.ReadDir(proc + "/fd")
	require.NoError(t, err)
	found := 0
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if err != nil || to != "/dev/fuse" {
			continue
		}
		found++
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		require.NoError(t, err)
		_, flags, _ := strings.Cut(string(info), "flags:\t")
		flags, _, _ = strings.Cut(flags, "\n")
		require.Regexp(t, `^0*[0-7]*2[0-7]{6}$`, flags, "O_CLOEXEC") // octal 02000000
	}
	require.GreaterOrEqual(t, found, want)
}

// TestMountAgain: a mountpoint can be used again at once, and shows other nodes.
func TestMountAgain(t *testing.T) {
	d := start(t)
	keep := d.mount()
	m := d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": "0"}), Thread: "t"})
	first := stat(t, dirOf(m, cp)+"/f")
	for range 3 {
		require.NoError(t, d.umount(m, false))
		deadline := time.Now().Add(patience)
		for {
			err := d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: m})
			if err == nil {
				break
			}
			require.ErrorIs(t, err, snapshot.ErrMounted)
			require.True(t, time.Now().Before(deadline), "%v", err)
		}
		require.Equal(t, first.Ino, stat(t, dirOf(m, cp)+"/f").Ino)
	}
	require.ElementsMatch(t, []string{keep, m}, d.mounted())
}

// TestOtherNamespace: a copy of the mount in another mount namespace, as a
// container gets one when it begins, keeps nobody waiting.
func TestOtherNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a mount namespace")
	}
	d := startAs(t, newStore(t), childBusy)
	m, n := d.mount(), d.mount()
	// Copies of other tests' mounts would keep those from ending.
	const script = `grep ' fuse.snapfs ' /proc/self/mountinfo | cut -d ' ' -f 5 | grep -Fvxe "$1" -e "$2" | xargs -r -n 1 umount -l; echo .; read nothing`
	other := exec.Command("sh", "-c", script, "sh", m, n)
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := other.StdinPipe()
	require.NoError(t, err)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	defer func() {
		_ = in.Close()
		_ = other.Wait()
	}()
	_, err = io.ReadFull(out, make([]byte, 1))
	require.NoError(t, err)
	within(t, patience/2, "to unmount", func() { require.NoError(t, d.umount(m, false)) })
	require.Equal(t, []string{n}, d.mounted())
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	within(t, patience/2, "to end", d.gone)
	require.Empty(t, d.mounted())
}
