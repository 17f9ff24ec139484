package capture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// deepFile makes a file at the end of a path of directories, which may be longer
// than a system call takes, and returns the path.
func deepFile(t *testing.T, ws string, length int) string {
	t.Helper()
	name := strings.Repeat("d", 200)
	fd, err := unix.Open(ws, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { unix.Close(fd) }()
	path := ""
	for len(path)+len(name)+1 < length {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			require.ErrorIs(t, err, unix.EEXIST)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd, path = next, path+name+"/"
	}
	last := strings.Repeat("f", length-len(path))
	file, err := unix.Openat(fd, last, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	require.NoError(t, err)
	unix.Close(file)
	return path + last
}

// TestPathLength: the longest path is saved; one byte more is refused by name,
// together with everything else that is too long.
func TestPathLength(t *testing.T) {
	ws := t.TempDir()
	longest := deepFile(t, ws, tree.MaxPath)
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Contains(t, m.entries(t, got), longest)

	over := deepFile(t, ws, tree.MaxPath+1)
	deeper := deepFile(t, ws, tree.MaxPath+1000)
	_, err = captureAll(t, ws, newMemory())
	found := problems(t, err)
	require.Len(t, found, 2)
	require.Contains(t, found[over], "4096 bytes")
	for path := range found {
		require.True(t, strings.HasPrefix(over, path) || strings.HasPrefix(deeper, path), "the first that is too long")
	}
}

// TestNames: every name that Linux takes is content.
func TestNames(t *testing.T) {
	ws := t.TempDir()
	names := []string{
		strings.Repeat("n", 255), "new\nline", "-rf", "...", "..a", ". ", "a\xff\xfe", "\x01", "\u00e9", "e\u0301",
		"Logo.png", "logo.png", "\U0001f600", `back\slash`, "*", "sp ace", "'\"", "\t", "~",
	}
	files := map[string]string{}
	for i, name := range names {
		files[name] = fmt.Sprint(i)
		files["dir-"+name[:min(len(name), 250)]+"/"+name] = fmt.Sprint(-i)
	}
	write(t, ws, files)
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	for name, data := range files {
		require.Contains(t, all, name)
		require.Equal(t, data, m.content(t, all[name]))
	}
}

// TestSizes: contents of every length around the bounds, and holes, which are
// no content.
func TestSizes(t *testing.T) {
	ws := t.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	sizes := []int{0, 1, cas.ZeroBlock, cas.ChunkedSize - 1, cas.ChunkedSize, cas.ChunkedSize + 1, 5<<20 + 3}
	for _, size := range sizes {
		data := make([]byte, size)
		_, _ = random.Read(data)
		write(t, ws, map[string]string{fmt.Sprint(size): string(data)})
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	for _, size := range sizes {
		want, err := os.ReadFile(filepath.Join(ws, fmt.Sprint(size)))
		require.NoError(t, err)
		require.True(t, string(want) == m.content(t, all[fmt.Sprint(size)]), size)
	}

	sparse := t.TempDir()
	f, err := os.Create(filepath.Join(sparse, "disk.img"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data in the middle"), 80<<20+1)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(200<<20+5))
	require.NoError(t, f.Close())
	m = newMemory()
	got, err = captureAll(t, sparse, m)
	require.NoError(t, err)
	require.Less(t, m.size(), 128<<10)
	e := m.entries(t, got)["disk.img"]
	chunks, err := cas.Chunks(t.Context(), m, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
	require.NoError(t, err)
	require.Len(t, chunks, 3)
	require.Equal(t, []bool{true, false, true}, []bool{chunks[0].Zeros(), chunks[1].Zeros(), chunks[2].Zeros()})
}

// TestInOrderAndParallel: how the work is shared out changes nothing.
func TestInOrderAndParallel(t *testing.T) {
	ws := t.TempDir()
	files := map[string]string{}
	for i := range 40 {
		for j := range 20 {
			files[fmt.Sprintf("d%d/e%d/f%d", i%8, i, j)] = fmt.Sprint(i * j)
		}
	}
	for i := range 700 {
		files[fmt.Sprintf("wide/%d", i)] = strings.Repeat("w", i*20)
	}
	write(t, ws, files)
	for i := range 40 {
		for _, name := range []string{"x", "y"} {
			require.NoError(t, os.Link(filepath.Join(ws, fmt.Sprintf("wide/%d", i)), filepath.Join(ws, fmt.Sprintf("d%d/e%d/%s", i%8, i, name))))
		}
	}
	m := newMemory()
	want, err := captureInOrder(t, ws, m, nil)
	require.NoError(t, err)
	require.Len(t, m.links(t, want), 40)
	for range 5 {
		got, err := captureAll(t, ws, newMemory())
		require.NoError(t, err)
		want.Known, got.Known = nil, nil // of what is old enough, in no order
		require.Equal(t, want, got)
	}
}

// TestWhatThePolicyKeeps: a directory whose content is left out stays, empty;
// one that only leads to an include is there only when something in it is.
func TestWhatThePolicyKeeps(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"empty/": "", "deps/node_modules/p/x": "1", "src/a.go": "2", "src/b.txt": "3", "docs/c.txt": "4"})
	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t, "node_modules/", "*.txt")})
	require.NoError(t, err)
	require.Equal(t, []string{"deps", "docs", "empty", "src", "src/a.go"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, 3, got.Excluded)
	require.Equal(t, Omission{"deps/node_modules", "excluded by node_modules/ (--exclude)"}, got.Left[0])

	files, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Include: []policy.Rule{{Pattern: "*.go"}}})
	require.NoError(t, err)
	got, err = Tree(t.Context(), ws, m, Options{Files: files})
	require.NoError(t, err)
	require.Equal(t, []string{"src", "src/a.go"}, sortedKeys(m.entries(t, got)))
	require.Empty(t, got.Left, "what no include matches is not listed")
}
