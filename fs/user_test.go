package fs_test

import (
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

	"github.com/snapfs/snapfs/snapshot"
)

// nobody is the ordinary user of the tests.
const nobody = 65534

// becomeNobody makes this process, which has a mount namespace of its own, one
// of the ordinary user, to whom /dev/fuse is open, as it is on most machines.
func becomeNobody(device string) {
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
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755)) // made by and for the test
}

// TestOrdinaryUser: a mount of a user's own store, with fusermount3: everything
// is theirs, and readable for them, and for nobody else.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; the other tests run as this one")
	}
	needFuse(t)
	for _, program := range []string{"fusermount3", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("SNAPFS_NEED_FUSE") == "1" {
			t.Fatalf("%v; install fuse3 and util-linux", err)
		} else if err != nil {
			t.Skip(err)
		}
	}
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
	requireCloseOnExec(t, d, 1)
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
