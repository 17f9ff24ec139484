package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// filesPut counts the contents that a capture hands to the store: what is not read
// is not among them.
func filesPut(m *memory) *int {
	n := new(int)
	m.onPut = func(objs []cas.Object) error {
		for _, o := range objs {
			if o.Key.NS == cas.Files && o.Kind == cas.Data {
				*n++
			}
		}
		return nil
	}
	return n
}

// again captures a workspace of which the last capture is known, and one of which
// nothing is: both must be the same. It returns how many contents the first read.
func again(t *testing.T, ws string, last Result) (got Result, read int) {
	t.Helper()
	m := newMemory()
	n := filesPut(m)
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Known: known(t, last)})
	require.NoError(t, err)
	full, err := Tree(t.Context(), ws, newMemory(), Options{Files: rules(t)})
	require.NoError(t, err)
	require.Equal(t, full.Root, got.Root)
	require.Equal(t, full.Stat, got.Stat)
	return got, *n
}

// TestKnown: what is read again after a change.
func TestKnown(t *testing.T) {
	old, archived := time.Unix(1.5e9, 123456789), time.Unix(499162500, 0)
	sameSize := func(path string) error {
		return errors.Join(os.WriteFile(path, []byte("TWO"), 0o644), os.Chtimes(path, time.Time{}, old))
	}
	tests := map[string]struct {
		change func(ws string) error
		read   int
	}{
		"nothing":                        {func(string) error { return nil }, 0},
		"edit":                           {func(ws string) error { return os.WriteFile(ws+"/two", []byte("2 2"), 0o644) }, 1},
		"edit that keeps size and mtime": {func(ws string) error { return sameSize(ws + "/two") }, 1},
		"mode alone":                     {func(ws string) error { return os.Chmod(ws+"/two", 0o755) }, 0},
		"owner alone":                    {func(ws string) error { return os.Lchown(ws+"/two", 7, 8) }, 0},
		"mode and content": {func(ws string) error {
			return errors.Join(os.WriteFile(ws+"/two", []byte("2 2"), 0o644), os.Chmod(ws+"/two", 0o600))
		}, 1},
		// Whoever unpacks archives may set the same mtime for all files.
		"mode alone, mtime of an archive": {func(ws string) error { return os.Chmod(ws+"/archived", 0o755) }, 1},
		"replaced by another of the same archive": {func(ws string) error {
			return errors.Join(os.WriteFile(ws+"/archived", []byte("ONE"), 0o644), os.Chmod(ws+"/archived", 0o755), os.Chtimes(ws+"/archived", time.Time{}, archived))
		}, 1},
		"mtime alone":     {func(ws string) error { return os.Chtimes(ws+"/two", time.Time{}, time.Unix(5, 5)) }, 1},
		"attribute alone": {func(ws string) error { return unix.Setxattr(ws+"/two", "user.a", []byte("1"), 0) }, 1},
		"attribute and mode": {func(ws string) error {
			return errors.Join(unix.Setxattr(ws+"/two", "user.a", []byte("1"), 0), os.Chmod(ws+"/two", 0o600))
		}, 0},
		"attribute of a directory": {func(ws string) error { return unix.Setxattr(ws+"/dir", "user.a", []byte("1"), 0) }, 0},
		"rename":                   {func(ws string) error { return os.Rename(ws+"/two", ws+"/dir/2") }, 1}, // it moves the ctime
		"rename of a directory":    {func(ws string) error { return os.Rename(ws+"/dir", ws+"/other") }, 0},
		"one more":                 {func(ws string) error { return os.WriteFile(ws+"/dir/new", []byte("new"), 0o644) }, 1},
		"removed":                  {func(ws string) error { return os.Remove(ws + "/two") }, 0},
		"replaced by another of its size": {func(ws string) error {
			return errors.Join(os.WriteFile(ws+"/tmp", []byte("TWO"), 0o644), os.Chtimes(ws+"/tmp", time.Time{}, old), os.Rename(ws+"/tmp", ws+"/two"))
		}, 1},
		"file becomes directory": {func(ws string) error { return errors.Join(os.Remove(ws+"/two"), os.Mkdir(ws+"/two", 0o755)) }, 0},
		"file becomes link":      {func(ws string) error { return errors.Join(os.Remove(ws+"/two"), os.Symlink("TWO", ws+"/two")) }, 0},
		"one more name":          {func(ws string) error { return os.Link(ws+"/two", ws+"/three") }, 1},
		"large, in place":        {func(ws string) error { return appendTo(ws+"/dir/large", []byte("x")) }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "owner") {
				needRoot(t)
			}
			ws := t.TempDir()
			write(t, ws, map[string]string{"two": "two", "archived": "one", "dir/large": strings.Repeat("large", 500_000), "dir/sub/x": "x", "empty/": ""})
			require.NoError(t, unix.Setxattr(filepath.Join(ws, "dir/sub/x"), "user.b", []byte("2"), 0))
			require.NoError(t, os.Chtimes(filepath.Join(ws, "two"), time.Time{}, old))
			require.NoError(t, os.Chtimes(filepath.Join(ws, "archived"), time.Time{}, archived))
			settle(t, ws)
			first, err := captureAll(t, ws, newMemory())
			require.NoError(t, err)
			require.NoError(t, test.change(ws))
			second, read := again(t, ws, first)
			require.Equal(t, test.read, read)
			_, read = again(t, ws, second)
			require.Zero(t, read, "and the next one knows all of it")
		})
	}
}

// TestKnownTick: on a kernel whose clock moves in ticks a file that was changed at
// about the time of the capture is read by the next one, whatever its times say.
func TestKnownTick(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"old": "1"})
	settle(t, ws)
	write(t, ws, map[string]string{"new": "2"})
	first := captureCoarse(t, ws, newMemory())
	k := known(t, first)
	for name, want := range map[string]bool{"old": true, "new": false} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(ws, name), &st))
		_, ok := k.find(st.Ino, placeOf(0, &st, name))
		require.Equal(t, want, ok, name)
	}
}

// TestKnownRace: a change between the look at a file and the end of the capture is
// found by the next one.
func TestKnownRace(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "1", "b": "1", "z": "1"})
	m := newMemory()
	first, err := captureInOrder(t, ws, m, after("z", func() {
		require.NoError(t, os.WriteFile(filepath.Join(ws, "a"), []byte("2"), 0o644))
	}))
	require.NoError(t, err)
	require.Equal(t, "1", m.content(t, m.entries(t, first)["a"]))
	_, read := again(t, ws, first)
	require.Equal(t, 1, read)
}

// TestKnownDevice: the device's number, which changes with every mount of some file
// systems, does not matter.
func TestKnownDevice(t *testing.T) {
	st := unix.Stat_t{Dev: 1, Ino: 2, Size: 3, Mode: unix.S_IFREG | 0o644, Mtim: unix.Timespec{Sec: 1}, Ctim: unix.Timespec{Sec: 1, Nsec: 1}}
	d := &dirFD{dev: 1, fine: true}
	w := &worker{walker: newWalker(context.Background(), nil, newMemory())}
	w.see(d, "a", &st, time.Now(), cas.Data.Sum([]byte("x")), cas.Hash{}, nil)
	w.known = known(t, Result{Known: &Known{records: w.seen}})
	st.Dev, d.dev = 99, 99
	r, ok := w.recall(d, &st, "a")
	require.True(t, ok)
	require.True(t, r.same(&st) && r.sameContent(&st))
	_, ok = w.recall(d, &st, "b")
	require.False(t, ok, "files may be numbered anew")
	_, ok = w.recall(&dirFD{dev: 99, volume: checksum("mount")}, &st, "a")
	require.False(t, ok, "another file system may use the same numbers")
	_, ok = w.recall(&dirFD{dev: 98}, &st, "a")
	require.False(t, ok, "an overlay shows files of several file systems")
}

// TestKnownMounts: file systems in a workspace may use the same numbers for files of
// the same names and times.
func TestKnownMounts(t *testing.T) {
	ws := t.TempDir()
	times := map[string]unix.Timespec{}
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Mkdir(filepath.Join(ws, name), 0o755))
		mountTmpfs(t, filepath.Join(ws, name))
	}
	for range 200 { // until both were made in one tick of the kernel's clock
		for _, name := range []string{"a", "b"} {
			path := filepath.Join(ws, name, "file")
			_ = os.Remove(path)
			require.NoError(t, os.WriteFile(path, []byte(name), 0o644))
		}
		var inodes [2]uint64
		for i, name := range []string{"a", "b"} {
			var st unix.Stat_t
			require.NoError(t, unix.Stat(filepath.Join(ws, name, "file"), &st))
			times[name], inodes[i] = st.Ctim, st.Ino
		}
		require.Equal(t, inodes[0], inodes[1])
		if times["a"] == times["b"] {
			break
		}
	}
	require.Equal(t, times["a"], times["b"])
	settle(t, filepath.Join(ws, "b"))
	first, err := captureAll(t, ws, newMemory())
	require.NoError(t, err)
	_, read := again(t, ws, first)
	require.Zero(t, read)
}

// TestKnownTrees: an object that is known is not made anew; one of a directory that
// cannot be trusted is still compared.
func TestKnownTrees(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a/b/c": "1", "d/e": "2"})
	settle(t, ws)
	first, err := captureAll(t, ws, newMemory())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(ws, "d/e"), []byte("3"), 0o644))
	m := newMemory()
	var trees []cas.Hash
	m.onPut = func(objs []cas.Object) error {
		for _, o := range objs {
			if o.Key.NS == cas.Trees {
				trees = append(trees, o.Key.Hash)
			}
		}
		return nil
	}
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Known: known(t, first)})
	require.NoError(t, err)
	require.Len(t, trees, 2, "d and the root")
	require.Contains(t, trees, got.Root.Hash)
}

// TestDecodeKnown refuses what is damaged.
func TestDecodeKnown(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "1", "b/c": "2"})
	require.NoError(t, unix.Setxattr(filepath.Join(ws, "a"), "user.b", []byte("2"), 0))
	got, err := captureAll(t, ws, newMemory())
	require.NoError(t, err)
	good := got.Known.Encode([]byte("bound"))
	k, binding, err := DecodeKnown(good)
	require.NoError(t, err)
	require.Equal(t, "bound", string(binding))
	require.Equal(t, 3, k.Count(), "two files and a directory")
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		_, _, err := DecodeKnown(bad)
		require.ErrorIs(t, err, cas.ErrCorrupt, "byte %d", i)
		_, _, err = DecodeKnown(good[:i])
		require.ErrorIs(t, err, cas.ErrCorrupt, "cut at %d", i)
	}
	var nothing *Known
	require.Zero(t, nothing.Count())
	_, ok := nothing.find(1, 0)
	require.False(t, ok)
}

func FuzzDecodeKnown(f *testing.F) {
	f.Add((&Known{}).Encode([]byte("x")))
	f.Add((&Known{records: make([]byte, 2*recordSize), sets: make([]cas.Hash, 1)}).Encode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, _, err := DecodeKnown(data)
		if err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
			return
		}
		for i := range k.Count() {
			want := k.record(i)
			r, ok := k.find(want.ino(), want.place())
			require.True(t, ok)
			require.Equal(t, want.ino(), r.ino())
			require.Equal(t, want.place(), r.place())
			_ = r.xattrs()
			_, _ = r.secrets()
		}
	})
}

// TestSparse: holes are not read, and the result is the same as if they had been.
func TestSparse(t *testing.T) {
	ws := t.TempDir()
	sizes := map[string]int64{"aligned": 64 << 20, "odd end": 64<<20 + 12345, "large": 10 << 30}
	for name, size := range sizes {
		f, err := os.Create(filepath.Join(ws, name))
		require.NoError(t, err)
		for _, at := range []int64{0, 5<<20 + 777, 20<<20 - 1, 40 << 20} {
			_, err := f.WriteAt([]byte(strings.Repeat("data", 20_000)), at)
			require.NoError(t, err)
		}
		require.NoError(t, errors.Join(f.Truncate(size), f.Close()))
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Less(t, m.size(), 1<<20)
	all := m.entries(t, got)
	for name, size := range sizes {
		require.Equal(t, uint64(size), all[name].Size)
		if size > 1<<30 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(ws, name))
		require.NoError(t, err)
		blob, err := cas.WriteBlob(t.Context(), newMemory(), cas.Files, strings.NewReader(string(data)))
		require.NoError(t, err)
		require.Equal(t, blob.Hash, all[name].Hash, name)
		require.Equal(t, tree.File, all[name].Kind)
	}
}
