package disktest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/disk"
)

// put writes a file and, step by step, makes it durable.
func put(t *testing.T, fsys disk.FS, path, data string, bytes, name bool) {
	t.Helper()
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	_, err = io.WriteString(f, data)
	require.NoError(t, err)
	if bytes {
		require.NoError(t, f.Sync())
	}
	require.NoError(t, f.Close())
	if name {
		require.NoError(t, fsys.SyncDir(filepath.Dir(path)))
	}
}

// TestCrash: what was made durable is there after a crash, and what was not may be.
func TestCrash(t *testing.T) {
	tests := map[string]struct {
		do    func(t *testing.T, d *Disk, dir string)
		least map[string]string
		most  map[string]string
	}{
		"nothing":             {func(*testing.T, *Disk, string) {}, map[string]string{"old": "1"}, map[string]string{"old": "1"}},
		"new, not synced":     {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/new", "2", false, false) }, map[string]string{"old": "1"}, map[string]string{"old": "1", "new": "2"}},
		"new, bytes synced":   {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/new", "2", true, false) }, map[string]string{"old": "1"}, map[string]string{"old": "1", "new": "2"}},
		"new, name synced":    {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/new", "2", false, true) }, map[string]string{"old": "1", "new": ""}, map[string]string{"old": "1", "new": "2"}},
		"new, both synced":    {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/new", "2", true, true) }, map[string]string{"old": "1", "new": "2"}, map[string]string{"old": "1", "new": "2"}},
		"appended":            {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/old", "2", false, true) }, map[string]string{"old": "1"}, map[string]string{"old": "12"}},
		"appended and synced": {func(t *testing.T, d *Disk, dir string) { put(t, d, dir+"/old", "2", true, false) }, map[string]string{"old": "12"}, map[string]string{"old": "12"}},
		"removed": {func(t *testing.T, d *Disk, dir string) {
			require.NoError(t, d.Remove(dir+"/old"))
		}, map[string]string{"old": "1"}, map[string]string{}},
		"removed for good, and the number used again": {func(t *testing.T, d *Disk, dir string) {
			require.NoError(t, d.Remove(dir+"/old"))
			put(t, d, dir+"/new", "2", true, true)
		}, map[string]string{"new": "2"}, map[string]string{"new": "2"}},
		"renamed over": {func(t *testing.T, d *Disk, dir string) {
			put(t, d, dir+"/new", "2", true, false)
			require.NoError(t, d.Rename(dir+"/new", dir+"/old"))
		}, map[string]string{"old": "1"}, map[string]string{"old": "2"}},
		"renamed over for good": {func(t *testing.T, d *Disk, dir string) {
			put(t, d, dir+"/new", "2", true, false)
			require.NoError(t, d.Rename(dir+"/new", dir+"/old"))
			require.NoError(t, d.SyncDir(dir))
		}, map[string]string{"old": "2"}, map[string]string{"old": "2"}},
		"in a directory whose name is not durable": {func(t *testing.T, d *Disk, dir string) {
			require.NoError(t, d.Mkdir(dir+"/sub", 0o700))
			put(t, d, dir+"/sub/new", "2", true, true)
		}, map[string]string{"old": "1"}, map[string]string{"old": "1", "sub/new": "2"}},
		"by others": {func(t *testing.T, d *Disk, dir string) {
			put(t, disk.OS, dir+"/new", "2", true, true)
			put(t, disk.OS, dir+"/old", "2", true, true)
		}, map[string]string{"old": "1"}, map[string]string{"old": "12", "new": "2"}},
		"by others, synced here": {func(t *testing.T, d *Disk, dir string) {
			put(t, disk.OS, dir+"/new", "2", false, false)
			f, err := d.OpenFile(dir+"/new", os.O_RDONLY, 0)
			require.NoError(t, err)
			require.NoError(t, errors.Join(f.Sync(), f.Close(), d.SyncDir(dir)))
		}, map[string]string{"old": "1", "new": "2"}, map[string]string{"old": "1", "new": "2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for left, want := range map[Left]map[string]string{Least: test.least, Most: test.most} {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(dir+"/old", []byte("1"), 0o600))
				d, err := New(dir, 1)
				require.NoError(t, err)
				test.do(t, d, dir)
				to := filepath.Join(t.TempDir(), "to")
				require.NoError(t, d.Crash(to, left))
				require.Equal(t, want, contents(t, to))
			}
		})
	}
}

// contents are the files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path[len(dir)+1:]] = string(data)
		return err
	}))
	return all
}

// TestSome: between least and most everything is possible, and nothing else.
func TestSome(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		dir := t.TempDir()
		d, err := New(dir, seed)
		require.NoError(t, err)
		put(t, d, dir+"/a", "1", true, true)
		put(t, d, dir+"/a", "23", false, false)
		put(t, d, dir+"/b", "4", false, false)
		to := filepath.Join(t.TempDir(), "to")
		require.NoError(t, d.Crash(to, Some))
		got := contents(t, to)
		b, ok := got["b"]
		if !ok {
			b = "none"
		}
		seen[got["a"]+" "+b] = true
	}
	want := map[string]bool{}
	for _, a := range []string{"1", "12", "123"} {
		for _, b := range []string{"none", "", "4"} {
			want[a+" "+b] = true
		}
	}
	require.Equal(t, want, seen)
}

// TestFault: the chosen operation fails, and what follows does or does not.
func TestFault(t *testing.T) {
	dir := t.TempDir()
	d, err := New(dir, 1)
	require.NoError(t, err)
	open := func() error {
		f, err := d.OpenFile(filepath.Join(dir, "a"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.Write([]byte("12345"))
			err = errors.Join(err, f.Sync(), f.Close(), d.SyncDir(dir), d.Remove(dir+"/a"))
		}
		return err
	}
	require.NoError(t, open())
	require.Equal(t, 5, d.Ops())
	d.Arm(Fault{At: 2, Err: unix.ENOSPC})
	require.ErrorIs(t, open(), unix.ENOSPC)
	require.Equal(t, "write a", d.Met())
	require.NoError(t, open())
	d.Arm(Fault{At: 4, Err: unix.EIO, Lasts: true})
	require.ErrorIs(t, open(), unix.EIO)
	require.ErrorIs(t, d.Remove(dir+"/a"), unix.EIO)
	d.Arm(Fault{At: 2, Power: true})
	require.ErrorIs(t, open(), ErrPowerLost)
	require.ErrorIs(t, open(), ErrPowerLost)
	require.ErrorIs(t, d.Mkdir(dir+"/d", 0o700), ErrPowerLost)
	d.Restart()
	require.NoError(t, open())
}
