package fs_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// odd makes a workspace of everything that a tree can hold.
func odd(t *testing.T) string {
	t.Helper()
	dir := write(t, map[string]string{
		"plain": "content", "empty": "", "a/b/c/deep": "deep",
		"\xff\xfe not utf-8": "1", "new\nline": "2", "-dash": "3", "...": "4", "e\u0301": "NFD", "\u00e9": "NFC",
		"Logo.png": "upper", "logo.png": "lower", strings.Repeat("n", 255): "long name",
		"big": strings.Repeat("0123456789abcdef", 1<<17), "linked/one": "two names", "%41%": "percent",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("empty dir/child"), 0o755))
	require.NoError(t, os.MkdirAll(at("a/a"), 0o755)) // a child named like its parent
	require.NoError(t, os.Link(at("linked/one"), at("a/two")))
	for name, target := range map[string]string{"abs": "/nowhere/at all", "dangling": "no\xffthing", "good": "plain", "up": "../..", "a/loop": "../a"} {
		require.NoError(t, os.Symlink(target, at(name)))
	}
	hole, err := os.Create(at("hole"))
	require.NoError(t, err)
	require.NoError(t, hole.Truncate(3<<20))
	_, err = hole.WriteAt([]byte("island"), 2<<20+7)
	require.NoError(t, err)
	require.NoError(t, hole.Close())
	modes := map[string]os.FileMode{"plain": 0o755, "-dash": 0o444, "...": 0o600, "empty dir": 0o777 | os.ModeSticky, "a/b": 0o700}
	if os.Geteuid() == 0 {
		modes["Logo.png"] = 0
		require.NoError(t, os.Lchown(at("good"), 1, 2))
		require.NoError(t, os.Lchown(at("a/b"), 12345, 54321))
		require.NoError(t, os.Lchown(at("new\nline"), 1<<31, 7))
	}
	for name, mode := range modes {
		require.NoError(t, os.Chmod(at(name), mode))
	}
	times := map[string]time.Time{
		"plain": time.Unix(1, 999_999_999), "empty": time.Unix(-86400*365*9, 123), "logo.png": time.Unix(1<<33, 1),
		"a/b": time.Unix(1_700_000_000, 5), ".": time.Unix(1_600_000_000, 42),
	}
	for name, mtime := range times {
		require.NoError(t, os.Chtimes(at(name), mtime, mtime))
	}
	return dir
}

func TestTreeEqualsItsSource(t *testing.T) {
	d := start(t)
	src := odd(t)
	m := d.mount()
	files := dirOf(m, d.save(snapshot.SaveOptions{Workspace: src, Thread: "t"}))
	want := walk(t, src)
	for range 2 { // what the kernel remembers is the same
		got := walk(t, files)
		require.Equal(t, len(want), len(got))
		for path, w := range want {
			require.Equal(t, w, got[path], "%q", path)
		}
	}
	require.EqualValues(t, 2, stat(t, files+"/a/two").Nlink)
	require.EqualValues(t, 1, stat(t, files+"/a").Nlink)
	st := stat(t, files+"/plain")
	require.Equal(t, st.Mtim, st.Ctim)
	out, err := exec.Command("diff", "-r", "--no-dereference", src, files).CombinedOutput()
	require.NoError(t, err, "%s", out)
	copied := filepath.Join(t.TempDir(), "copy")
	out, err = exec.Command("cp", "-a", files, copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, want, walk(t, copied))
}

func TestIoFS(t *testing.T) {
	d := start(t)
	files := map[string]string{"a": "1", "b/c": "2", "b/d/e": "", "f f": "x"}
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, files), Thread: "t"})
	var names []string
	for name := range files {
		names = append(names, name)
	}
	require.NoError(t, fstest.TestFS(os.DirFS(dirOf(d.mount(), cp)), names...))
}

// TestFixedEntries: what is in the directories above the files.
func TestFixedEntries(t *testing.T) {
	d := start(t)
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"a": "1"}), Thread: "t", ID: "cp-1", Name: "first"})
	m := d.mount()
	for dir, want := range map[string][]string{
		"":                       {"threads"},
		"threads":                {"t"},
		"threads/t":              {"by-name", "cp-1", "latest"},
		"threads/t/by-name":      {"first"},
		"threads/t/latest":       {"artifacts", "checkpoint.json", "files"},
		"threads/t/cp-1":         {"artifacts", "checkpoint.json", "files"},
		"threads/t/cp-1/files":   {"a"},
		"threads/t/latest/files": {"a"},
	} {
		for range 2 {
			entries, err := os.ReadDir(filepath.Join(m, dir))
			require.NoError(t, err)
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			require.Equal(t, want, names, dir)
		}
	}
	for link, want := range map[string]string{"latest": "cp-1", "by-name/first": "../cp-1"} {
		target, err := os.Readlink(filepath.Join(m, "threads/t", link))
		require.NoError(t, err)
		require.Equal(t, want, target)
	}
	doc, err := os.ReadFile(filepath.Join(m, "threads/t/by-name/first/checkpoint.json"))
	require.NoError(t, err)
	require.Contains(t, string(doc), `"tree": "`+cp.Tree+`"`)
	require.NotContains(t, string(doc), "first", "a name may change")
	for _, absent := range []string{"nothing", "threads/x", "threads/t/cp-", "threads/t/by-name/second", "threads/t/cp-1/x", "threads/t/cp-1/files/x"} {
		_, err := os.Lstat(filepath.Join(m, absent))
		require.ErrorIs(t, err, os.ErrNotExist, absent)
	}
}

// dirent is an entry of a listing as getdents64(2) shows it.
type dirent struct {
	name string
	ino  uint64
	kind byte
}

// dirents reads a directory in steps of a few hundred entries.
func dirents(t *testing.T, dir string) []dirent {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	var all []dirent
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(int(f.Fd()), buf)
		require.NoError(t, err)
		if n == 0 {
			return all
		}
		for b := buf[:n]; len(b) > 0; {
			// struct linux_dirent64: ino (8), off (8), reclen (2), type (1), name
			size := binary.NativeEndian.Uint16(b[16:])
			all = append(all, dirent{unix.ByteSliceToString(b[19:size]), binary.NativeEndian.Uint64(b), b[18]})
			b = b[size:]
		}
	}
}

// TestListedNumbers: a listing shows the numbers and kinds that stat shows, and
// none that a 32-bit or JavaScript program could take for another.
func TestListedNumbers(t *testing.T) {
	d := start(t)
	d.save(snapshot.SaveOptions{Workspace: odd(t), Thread: "t", Name: "n"})
	_, err := d.store.Fork(t.Context(), "t@latest", snapshot.ForkOptions{Thread: "u"})
	require.NoError(t, err)
	m := d.mount()
	for range 2 {
		require.NoError(t, filepath.WalkDir(m, func(dir string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return err
			}
			for _, e := range dirents(t, dir) {
				if e.name == ".." && dir == m {
					continue // not ours
				}
				st := stat(t, filepath.Join(dir, e.name))
				require.Equal(t, st.Ino, e.ino, "%s/%s", dir, e.name)
				require.Equal(t, st.Mode&unix.S_IFMT>>12, uint32(e.kind), "%s/%s", dir, e.name)
				require.Greater(t, st.Ino, uint64(1))
				require.Less(t, st.Ino, uint64(1)<<53)
			}
			return nil
		}))
	}
	out, err := exec.Command("find", m, "-name", "nothing").CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, string(out)) // no "file system loop"
	out, err = exec.Command("find", "-L", m+"/threads", "-maxdepth", "3", "-name", "nothing").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestStatfs(t *testing.T) {
	d := start(t)
	var got, want unix.Statfs_t
	require.NoError(t, unix.Statfs(d.mount(), &got))
	require.NoError(t, unix.Statfs(d.dir, &want))
	require.EqualValues(t, 0x65735546, got.Type) // FUSE_SUPER_MAGIC
	require.Equal(t, want.Blocks*uint64(want.Bsize), got.Blocks*uint64(got.Bsize))
	require.Zero(t, got.Bavail)
	require.EqualValues(t, 255, got.Namelen)
	require.NotZero(t, got.Flags&unix.ST_RDONLY)
	require.NotZero(t, got.Flags&unix.ST_NOSUID)
	require.NotZero(t, got.Flags&unix.ST_NODEV)
}
