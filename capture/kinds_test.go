package capture

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// TestSpecialFiles: they are listed and neither opened nor saved, whatever the
// policy says about their neighbours.
func TestSpecialFiles(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"d/file": "x"})
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	l, err := net.Listen("unix", filepath.Join(ws, "d", "sock"))
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	want := []Omission{{"d/sock", "socket"}, {"fifo", "fifo"}}
	if unix.Mknod(filepath.Join(ws, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil {
		want = append(want, Omission{"null", "character device"})
	}
	var before unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(ws, "fifo"), &before))

	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, want, got.Left)
	require.Equal(t, len(want), got.Special)
	all := m.entries(t, got)
	require.Len(t, all, 2)
	require.Contains(t, all, "d/file")
	require.Equal(t, uint64(1), got.Root.Totals.Files)
}

func TestSymlinks(t *testing.T) {
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	secret := filepath.Join(dir, "id_rsa")
	require.NoError(t, os.WriteFile(secret, []byte("PRIVATE KEY"), 0o600))
	write(t, ws, map[string]string{"real/x": "x"})
	mtime := time.Unix(-1, 5)
	targets := map[string]string{
		"absolute":  secret,
		"dangling":  "no/where",
		"directory": "real",
		"outside":   "../id_rsa",
		"self":      "self",
		"bytes":     "a\xff\nb",
	}
	for name, target := range targets {
		link := filepath.Join(ws, name)
		require.NoError(t, os.Symlink(target, link))
		ts, err := unix.TimeToTimespec(mtime)
		require.NoError(t, err)
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, link, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
	}

	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	for name, target := range targets {
		require.Equal(t, tree.Entry{
			Name: name, Kind: tree.Symlink, Mode: 0o777, Target: target, Size: uint64(len(target)),
			MtimeSec: -1, MtimeNsec: 5,
		}, all[name])
	}
	require.Len(t, all, len(targets)+2, "nothing was followed")
	for key, data := range m.objects {
		require.False(t, bytes.Contains(data, []byte("PRIVATE KEY")), "%s has bytes from outside", key)
	}
}

// TestWorkspaceItselfMayBeALink: the path that the user typed is followed.
func TestWorkspaceItselfMayBeALink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"ws/x": "x"})
	require.NoError(t, os.Symlink("ws", filepath.Join(dir, "link")))
	m := newMemory()
	got, err := captureAll(t, filepath.Join(dir, "link"), m)
	require.NoError(t, err)
	require.Contains(t, m.entries(t, got), "x")
}

// TestHardLinks: groups are of saved names only. A file whose other names lie
// outside, as package managers make them, is an ordinary one.
func TestHardLinks(t *testing.T) {
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	write(t, dir, map[string]string{
		"store/pkg":    "from the package store",
		"ws/a/one":     "small",
		"ws/big":       string(bytes.Repeat([]byte("0123456789abcdef"), 100_000)),
		"ws/empty":     "",
		"ws/c/":        "",
		"ws/out/only":  "one name is left out",
		"ws/zz/single": "x",
	})
	link := func(from, to string) {
		require.NoError(t, os.Link(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	link("store/pkg", "ws/node")
	link("ws/a/one", "ws/b")
	link("ws/a/one", "ws/c/three")
	link("ws/big", "ws/a/big")
	link("ws/empty", "ws/empty2")
	link("ws/out/only", "ws/kept")

	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t, "/out")})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a/big", "big"}, {"a/one", "b", "c/three"}, {"empty", "empty2"}}, m.links(t, got))
	all := m.entries(t, got)
	require.Equal(t, "from the package store", m.content(t, all["node"]))
	require.Equal(t, "one name is left out", m.content(t, all["kept"]))
	for _, group := range m.links(t, got) {
		for _, path := range group[1:] {
			a, b := all[group[0]], all[path]
			a.Name, b.Name = "", ""
			require.Equal(t, a, b)
		}
	}
}

// TestLostAndFound: at the root of a file system it is no content; any other
// directory of that name is.
func TestLostAndFound(t *testing.T) {
	ws := t.TempDir()
	volume := filepath.Join(ws, "volume")
	require.NoError(t, os.Mkdir(volume, 0o755))
	mountTmpfs(t, volume)
	for _, dir := range []string{"lost+found", "volume/lost+found", "volume/sub/lost+found"} {
		require.NoError(t, os.MkdirAll(filepath.Join(ws, dir), 0o700))
	}

	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	require.Contains(t, all, "lost+found")
	require.NotContains(t, all, "volume/lost+found")
	require.Contains(t, all, "volume/sub/lost+found")
	explainsTree(t, ws, Options{Files: rules(t)}, all)

	got, err = captureAll(t, volume, m)
	require.NoError(t, err)
	require.NotContains(t, m.entries(t, got), "lost+found")
	explainsTree(t, volume, Options{Files: rules(t)}, m.entries(t, got))

	// One that somebody else can read was made by somebody else.
	require.NoError(t, os.Chmod(filepath.Join(volume, "lost+found"), 0o755))
	got, err = captureAll(t, volume, m)
	require.NoError(t, err)
	require.Contains(t, m.entries(t, got), "lost+found")
}

// TestUnfinishedRestore: what a restore left incomplete is not saved, nor is
// anything around it.
func TestUnfinishedRestore(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a/b/x": "", "a/b/" + Marker: ""})
	_, err := captureAll(t, filepath.Join(ws, "a/b"), newMemory())
	require.ErrorIs(t, err, ErrUnfinished)
	_, err = captureAll(t, ws, newMemory())
	require.Equal(t, map[string]string{"a/b": ErrUnfinished.Error()}, problems(t, err))
	_, err = Tree(t.Context(), ws, newMemory(), Options{Files: rules(t, "a/b")})
	require.NoError(t, err, "it is left out")
}
