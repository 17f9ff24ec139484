package fs_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// TestNothingChanges: every system call that would change something gets EROFS,
// from the kernel and, where somebody remounted, from us.
func TestNothingChanges(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"file": "content", "dir/other": "1"})
	require.NoError(t, os.Symlink("file", ws+"/link"))
	m := d.mount()
	files := dirOf(m, d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"}))
	want := walk(t, files)
	calls := func(dir string) map[string]func() error {
		file, sub, link := filepath.Join(dir, "file"), filepath.Join(dir, "dir"), filepath.Join(dir, "link")
		absent, outside := filepath.Join(dir, "new"), filepath.Join(t.TempDir(), "f")
		open := func(flags int) func() error {
			return func() error {
				fd, err := unix.Open(file, flags, 0o644)
				if err == nil { // a kernel that does not ask us: then no byte may get in
					_, err = unix.Write(fd, []byte("x"))
					err = errors.Join(err, unix.Close(fd))
				}
				return err
			}
		}
		return map[string]func() error{
			"open for writing":   open(unix.O_WRONLY),
			"open for both":      open(unix.O_RDWR),
			"open for appending": open(unix.O_WRONLY | unix.O_APPEND),
			"open and truncate":  open(unix.O_RDWR | unix.O_TRUNC),
			"create": func() error {
				_, err := unix.Open(absent, unix.O_CREAT|unix.O_WRONLY, 0o644)
				return err
			},
			"create unnamed": func() error {
				_, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o644)
				return err
			},
			"truncate":     func() error { return unix.Truncate(file, 1) },
			"mkdir":        func() error { return unix.Mkdir(absent, 0o755) },
			"rmdir":        func() error { return unix.Rmdir(sub) },
			"unlink":       func() error { return unix.Unlink(file) },
			"rename":       func() error { return unix.Rename(file, absent) },
			"rename over":  func() error { return unix.Rename(file, link) },
			"exchange":     func() error { return unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) },
			"chmod":        func() error { return unix.Chmod(file, 0o777) },
			"chmod dir":    func() error { return unix.Chmod(sub, 0o777) },
			"chown":        func() error { return unix.Lchown(link, os.Getuid(), os.Getgid()) },
			"utimens":      func() error { return unix.UtimesNano(file, make([]unix.Timespec, 2)) },
			"setxattr":     func() error { return unix.Setxattr(file, "user.x", []byte("1"), 0) },
			"removexattr":  func() error { return unix.Removexattr(file, "user.x") },
			"mknod":        func() error { return unix.Mknod(absent, unix.S_IFREG|0o644, 0) },
			"fifo":         func() error { return unix.Mkfifo(absent, 0o644) },
			"hard link":    func() error { return unix.Link(file, absent) },
			"symlink":      func() error { return unix.Symlink("file", absent) },
			"move in":      func() error { return errors.Join(os.WriteFile(outside, nil, 0o644), unix.Rename(outside, absent)) },
			"unix socket":  func() error { _, err := net.Listen("unix", absent); return err },
			"at the root":  func() error { return unix.Mkdir(filepath.Join(m, "new"), 0o755) },
			"in threads":   func() error { return unix.Mkdir(filepath.Join(m, "threads/new"), 0o755) },
			"in a thread":  func() error { return unix.Mkdir(filepath.Join(m, "threads/t/new"), 0o755) },
			"over latest":  func() error { return unix.Unlink(filepath.Join(m, "threads/t/latest")) },
			"a checkpoint": func() error { return unix.Rmdir(filepath.Dir(dir)) },
		}
	}
	refuse := func(t *testing.T) {
		for name, call := range calls(files) {
			want := error(unix.EROFS)
			if name == "move in" {
				want = unix.EXDEV
			}
			require.ErrorIs(t, call(), want, name)
		}
		require.Equal(t, want, walk(t, files))
	}
	t.Run("mounted", refuse)
	t.Run("remounted", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can remount")
		}
		require.NoError(t, unix.Mount("", m, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""))
		refuse(t)
		require.NotZero(t, d.requests()["OTHER"])
	})
}
