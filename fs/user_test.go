package fs_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/snapshot"
)

// nobody is the ordinary user of the tests.
const nobody = 65534

// becomeNobody makes this process, which has a mount namespace of its own, one
// of the ordinary user, to whom /dev/fuse is open, as it is on most machines.
func becomeNobody(device string) {
	// Copies of other tests' mounts would keep those from ending.
	mounts, _ := snapshot.Mountpoints()
	for _, m := range mounts {
		_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
	}
	for _, err := range []error{
		unix.Mount(device, "/dev/fuse", "", unix.MS_BIND, ""),
		syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody),
	} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "become an ordinary user:", err)
			os.Exit(1)
		}
	}
}

// as runs a program as a user in the daemon's mount namespace.
func (d *daemon) as(uid int, args ...string) (string, error) {
	d.t.Helper()
	id := strconv.Itoa(uid)
	args = append([]string{"-t", strconv.Itoa(d.cmd.Process.Pid), "-m", "setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"}, args...)
	cmd := exec.CommandContext(d.t.Context(), "nsenter", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// give makes everything below a directory the ordinary user's.
func give(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
	letIn(t, filepath.Dir(dir))
}

// letIn lets everybody enter a directory of the test's and those of the test's that it
// is in.
func letIn(t *testing.T, dir string) {
	t.Helper()
	for own := filepath.Clean(os.TempDir()) + "/"; strings.HasPrefix(dir, own); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

// mountAsNobody gives a store to the ordinary user, who mounts it.
func mountAsNobody(t *testing.T, dir string) (*daemon, string) {
	t.Helper()
	give(t, dir)
	device := filepath.Join(t.TempDir(), "fuse")
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))); err != nil {
		t.Skipf("no device for the ordinary user: %v", err)
	}
	require.NoError(t, os.Chmod(device, 0o666))
	d := startAs(t, dir, childUser, device)
	at := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.Mkdir(at, 0o755))
	give(t, at)
	require.NoError(t, d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: at}))
	return d, at
}

// TestOrdinaryUser: a mount of a user's own store, with fusermount3: everything
// is theirs, and readable for them, and for nobody else.
func TestOrdinaryUser(t *testing.T) {
	needFuse(t)
	needOtherUsers(t)
	ws := write(t, map[string]string{"secret": "hidden", "plain": "seen", "dir/f": "below", "closed/f": "x"})
	require.NoError(t, os.Chmod(ws+"/secret", 0))
	require.NoError(t, os.Chmod(ws+"/plain", 0o755))
	require.NoError(t, os.Chmod(ws+"/closed", 0o200))
	require.NoError(t, os.Lchown(ws+"/dir", 1234, 1234))
	require.NoError(t, os.Symlink("plain", ws+"/link"))
	dir := newStore(t)
	s, err := snapshot.Open(t.Context(), dir, snapshot.Options{})
	require.NoError(t, err)
	res, err := s.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	d, at := mountAsNobody(t, dir)
	requireCloseOnExec(t, d, 1)
	if conf, _ := os.ReadFile("/etc/fuse.conf"); !strings.Contains("\n"+string(conf), "\nuser_allow_other") {
		require.NoError(t, os.Mkdir(at+"2", 0o755))
		give(t, at+"2")
		err = d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: at + "2", AllowOther: true})
		require.ErrorIs(t, err, snapshot.ErrForbidden)
		require.Contains(t, snapshot.Hint(err), "user_allow_other")
	}
	files := dirOf(at, res.Checkpoint)
	out, err := d.as(nobody, "find", files, "-mindepth", "1", "-printf", "%P %y%m %U:%G\n")
	require.NoError(t, err, out)
	require.ElementsMatch(t, []string{
		"secret f400 65534:65534", "plain f755 65534:65534", "dir d755 65534:65534", "dir/f f644 65534:65534",
		"closed d700 65534:65534", "closed/f f644 65534:65534", "link l777 65534:65534",
	}, strings.Split(strings.TrimSpace(out), "\n"))
	out, err = d.as(nobody, "cat", files+"/secret", files+"/link", files+"/dir/f")
	require.NoError(t, err, out)
	require.Equal(t, "hiddenseenbelow", out)
	for _, args := range [][]string{{"touch", files + "/new"}, {"chmod", "777", files + "/plain"}, {"rm", "-f", files + "/plain"}} {
		out, err = d.as(nobody, args...)
		require.Error(t, err)
		require.Contains(t, out, "Read-only file system", "%v", args)
	}
	out, err = d.as(1, "ls", at)
	require.Error(t, err)
	require.Contains(t, out, "Permission denied")

	// What root saves there meanwhile shows, and stays the user's.
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	out, err = d.as(nobody, "cat", dirOf(at, cp)+"/secret")
	require.NoError(t, err, out)
	out, err = d.as(nobody, "find", dir, "!", "-uid", "65534")
	require.NoError(t, err, out)
	require.Empty(t, out)
	require.NoError(t, d.umount(at, false))
	d.gone()
}

// saveAsNobody saves a workspace as the ordinary user, and ends this process.
func saveAsNobody(dir, ws, thread string) {
	err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
	if err == nil {
		var s *snapshot.Store
		if s, err = client.Open(context.Background(), dir, snapshot.Options{}, nil); err == nil {
			_, err = s.Save(context.Background(), snapshot.SaveOptions{Workspace: ws, Thread: thread})
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "save as an ordinary user:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestAllowOther: where other users may enter, a thread's directory is that of
// who began it, and nobody sees which others there are.
func TestAllowOther(t *testing.T) {
	needFuse(t)
	needOtherUsers(t)
	ws := write(t, map[string]string{"f": "content"})
	require.NoError(t, os.Chmod(ws, 0o755))
	require.NoError(t, disktest.LetIn(filepath.Dir(ws)))
	dir := newStore(t)
	give(t, dir)
	d := startAs(t, dir, childClean)
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "ours"})
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, dir, ws, "theirs")
	cmd.Env = append(os.Environ(), childEnv+"="+childSaves)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "theirs"}) // by root

	plain := d.mount()
	m := d.mountWith(snapshot.MountRequest{AllowOther: true})
	for _, at := range []string{plain, m} {
		require.NoError(t, disktest.LetIn(filepath.Dir(filepath.Dir(at))))
	}
	for path, want := range map[string]string{
		"": "40555 0:0", "/threads": "40711 0:0", "/threads/theirs": "40750 65534:65534", "/threads/theirs/by-name": "40750 65534:65534",
		"/threads/ours": "40750 0:0", "/threads/ours/latest": "120777 0:0",
	} {
		st := stat(t, m+path)
		require.Equal(t, want, fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid), path)
		st = stat(t, plain+path)
		require.Equal(t, "0:0", fmt.Sprintf("%d:%d", st.Uid, st.Gid), path)
		require.Equal(t, uint32(0o555), st.Mode&0o555, path)
	}
	const readable, closed = "content", "Permission denied"
	for _, c := range []struct {
		uid  int
		args []string
		want string
	}{
		{nobody, []string{"cat", m + "/threads/theirs/latest/files/f"}, readable},
		{nobody, []string{"ls", m + "/threads"}, closed},
		{nobody, []string{"ls", m + "/threads/ours"}, closed},
		{nobody, []string{"cat", plain + "/threads/theirs/latest/files/f"}, closed},
		{1, []string{"cat", m + "/threads/theirs/latest/files/f"}, closed},
		{1, []string{"ls", m}, "threads"},
		{0, []string{"cat", m + "/threads/ours/latest/files/f"}, readable},
	} {
		out, err := d.as(c.uid, c.args...)
		require.Equal(t, c.want != closed, err == nil, "%d %v: %s", c.uid, c.args, out)
		require.Contains(t, out, c.want, "%d %v", c.uid, c.args)
	}
}

// needOtherUsers skips a test unless this process can become another user.
func needOtherUsers(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; the other tests run as this one")
	}
	for _, program := range []string{"fusermount3", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("SNAPFS_NEED_FUSE") == "1" {
			t.Fatalf("%v; install fuse3 and util-linux", err)
		} else if err != nil {
			t.Skip(err)
		}
	}
}
