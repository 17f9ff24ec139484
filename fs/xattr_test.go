package fs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// getxattr reads an attribute of a path itself.
func getxattr(path, name string) (string, error) {
	buf := make([]byte, 8192)
	n, err := unix.Lgetxattr(path, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func listxattr(t *testing.T, path string) []string {
	t.Helper()
	buf := make([]byte, 8192)
	n, err := unix.Llistxattr(path, buf)
	require.NoError(t, err)
	return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 })
}

// TestXAttrs: they are served to those who ask for it, else the kernel hears once
// that there are none.
func TestXAttrs(t *testing.T) {
	ws := write(t, map[string]string{"d/f": "x", "plain": "y"})
	require.NoError(t, os.Symlink("plain", ws+"/link"))
	long := strings.Repeat("v", 3000)
	for path, value := range map[string]string{"": "root", "/d": "dir", "/d/f": long} {
		if err := unix.Setxattr(ws+path, "user.test", []byte(value), 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
	}
	require.NoError(t, unix.Setxattr(ws+"/d/f", "user.more", nil, 0))
	d := start(t)
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})

	plain := dirOf(d.mount(), cp)
	for range 3 {
		for _, path := range []string{"", "/d", "/d/f", "/plain"} {
			_, err := getxattr(plain+path, "user.test")
			require.ErrorIs(t, err, unix.EOPNOTSUPP)
		}
	}
	require.EqualValues(t, 1, d.requests()["GETXATTR"])

	files := dirOf(d.mountWith(snapshot.MountRequest{XAttrs: true}), cp)
	for path, want := range map[string]string{"": "root", "/d": "dir", "/d/f": long} {
		got, err := getxattr(files+path, "user.test")
		require.NoError(t, err, path)
		require.Equal(t, want, got)
		require.Contains(t, listxattr(t, files+path), "user.test")
	}
	require.ElementsMatch(t, []string{"user.test", "user.more"}, listxattr(t, files+"/d/f"))
	empty, err := getxattr(files+"/d/f", "user.more")
	require.NoError(t, err)
	require.Empty(t, empty)
	_, err = unix.Lgetxattr(files+"/d/f", "user.test", make([]byte, 10))
	require.ErrorIs(t, err, unix.ERANGE)
	for _, path := range []string{"/plain", "/link", "/../checkpoint.json", "/.."} {
		require.Empty(t, listxattr(t, files+path), path)
	}
	_, err = getxattr(files+"/plain", "user.test")
	require.ErrorIs(t, err, unix.ENODATA)
}
