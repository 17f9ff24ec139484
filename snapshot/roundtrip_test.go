package snapshot

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// workspace makes a directory with something of everything that can be saved.
func workspace(t *testing.T) string {
	t.Helper()
	ws := filepath.Join(t.TempDir(), "ws")
	t.Cleanup(func() { removable(ws) })
	write(t, ws, map[string]string{
		"empty": "", "run.sh": "#!/bin/sh\n", "src/main.go": "package main\n", "big.db": strings.Repeat("row of a table\n", 150_000),
		"void/": "", "ro/child": "in a directory that nobody may write", "secret": "0600", "locked": "444", "tmp/": "",
		strings.Repeat("n", 255): "long name", "a\xff\nb": "odd name", "-rf": "", "Logo.png": "1", "logo.png": "2", "\u00e9": "3", "e\u0301": "4",
		"old": "before 1970", "late": "after 2038",
		strings.Repeat("deep/", 300) + "down": "deep",
	})
	write(t, filepath.Dir(ws), map[string]string{"outside": "another name of this file lies outside"})
	link := func(from, to string) { require.NoError(t, os.Link(filepath.Join(ws, from), filepath.Join(ws, to))) }
	link("../outside", "pkg.js")
	link("src/main.go", "void/../copy.go")
	link("src/main.go", "tmp/copy.go")
	link("empty", "empty2")
	for name, target := range map[string]string{"python3": "/usr/bin/python3", "dangling": "no/where", "to-dir": "src"} {
		require.NoError(t, os.Symlink(target, filepath.Join(ws, name)))
	}
	setXattr(t, filepath.Join(ws, "secret"), "user.origin", "upload")
	setXattr(t, filepath.Join(ws, "src"), tree.ACLDefault, "02000000"+"01000700ffffffff"+"02000500d2040000"+"04000500ffffffff"+"10000500ffffffff"+"20000000ffffffff")
	f, err := os.Create(filepath.Join(ws, "sparse.img"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 20<<20)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(64<<20))
	require.NoError(t, f.Close())
	for name, mode := range map[string]uint32{"run.sh": 0o755, "secret": 0o600, "locked": 0o444, "tmp": 0o1777, "ro": 0o555, "void": 0o700, ".": 0o750} {
		require.NoError(t, unix.Chmod(filepath.Join(ws, name), mode))
	}
	for name, tm := range map[string]time.Time{"old": time.Unix(-5, 123), "late": time.Unix(1<<32, 999_999_999), "ro": time.Unix(1e9, 1), ".": time.Unix(1e9, 2)} {
		require.NoError(t, os.Chtimes(filepath.Join(ws, name), tm, tm))
	}
	return ws
}

// setXattr sets an attribute, given in hex when it is an ACL, where the file
// system has any.
func setXattr(t *testing.T, path, name, value string) {
	t.Helper()
	b := []byte(value)
	if strings.HasPrefix(name, "system.") {
		var err error
		b, err = hex.DecodeString(value)
		require.NoError(t, err)
	}
	if err := unix.Setxattr(path, name, b, 0); err != nil {
		require.ErrorIs(t, err, unix.ENOTSUP)
	}
}

// TestRoundTrip: what is saved comes back, and saved again it is the same tree.
func TestRoundTrip(t *testing.T) {
	s := newStore(t)
	ws := workspace(t)
	cp := save(t, s, ws, "T")
	dir := restored(t, s, cp.ID)
	want := look(t, ws)
	pkg := want["pkg.js"]
	require.Equal(t, "pkg.js", pkg.Link)
	pkg.Link = "" // its other name lies outside
	want["pkg.js"] = pkg
	require.Equal(t, want, look(t, dir))

	var sparse unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(dir, "sparse.img"), &sparse))
	require.Less(t, sparse.Blocks*512, int64(1<<20), "holes come back as holes")

	again := save(t, s, dir, "T")
	require.Equal(t, cp.Tree, again.Tree)
	require.Equal(t, cp.ID, again.Parent)
	require.Zero(t, again.NewBytes)
	require.NoError(t, s.Diff(t.Context(), cp.ID, again.ID, DiffOptions{Owner: true}, func(c tree.Change) error {
		return fmt.Errorf("%v %s", c.Op, c.Path)
	}))
}

// TestUnchanged: a second save of the same files stores one record and nothing
// else.
func TestUnchanged(t *testing.T) {
	s := newStore(t)
	ws := workspace(t)
	first := save(t, s, ws, "T")
	before, err := s.Stats(t.Context())
	require.NoError(t, err)
	second := save(t, s, ws, "T")
	after, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Positive(t, first.NewBytes)
	require.Zero(t, second.NewBytes)
	require.Equal(t, first.Tree, second.Tree)
	require.Equal(t, before.Packs+1, after.Packs)
	require.Less(t, after.PackBytes-before.PackBytes, int64(1<<10))

	// One file changed: that file and the directories above it.
	write(t, ws, map[string]string{"src/main.go": "package main // changed\n"})
	third := save(t, s, ws, "T")
	require.Positive(t, third.NewBytes)
	require.Less(t, third.NewBytes, int64(8<<10))
	var changed []string
	require.NoError(t, s.Diff(t.Context(), second.ID, third.ID, DiffOptions{}, func(c tree.Change) error {
		changed = append(changed, c.Path)
		return nil
	}))
	require.Equal(t, []string{"copy.go", "src/main.go", "tmp/copy.go"}, changed)
}

// TestLeftOut: special files, dropped bits and what the policy excludes are
// counted, listed and not restored; a file that another directory's exclude
// would have hit stays.
func TestLeftOut(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{
		"su": "", "d/x": "", "keep/.env.example": "1", ".env": "KEY=1", "web/node_modules/p/i.js": "", "web/.git": "gitdir: x",
		".cache/foo/a/node_modules/x": "", ".cache/foo/a/y": "", ".cache/bar/z": "",
	})
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	l, err := net.Listen("unix", filepath.Join(ws, "sock"))
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, unix.Chmod(filepath.Join(ws, "su"), 0o4755))
	require.NoError(t, unix.Chmod(filepath.Join(ws, "d"), 0o2755))
	files := policy.FilesOptions{Exclude: []policy.Rule{{Pattern: ".cache/foo/*/node_modules", Source: "--exclude"}}}
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Files: files})
	require.NoError(t, err)
	require.Equal(t, []int{4, 2, 2}, []int{res.Excluded, res.Special, res.Setuid})
	cp, err := s.Show(t.Context(), "T@latest")
	require.NoError(t, err)
	var paths []string
	for _, o := range cp.Omissions {
		require.NotEmpty(t, o.Why)
		paths = append(paths, o.Raw())
	}
	require.Equal(t, []string{".cache/foo/a/node_modules", ".env", "d", "fifo", "sock", "su", "web/.git", "web/node_modules"}, paths)
	require.Equal(t, uint64(8), cp.Omitted)
	require.Contains(t, cp.Policy, `exclude ".cache/foo/*/node_modules" "--exclude"`)

	all := look(t, restored(t, s, cp.ID))
	for _, path := range []string{"web", "keep/.env.example", ".cache/foo/a/y", ".cache/bar/z"} {
		require.Contains(t, all, path)
	}
	require.Len(t, all, 13)
	require.Equal(t, uint32(unix.S_IFREG|0o755), all["su"].Mode)
	require.Equal(t, uint32(unix.S_IFDIR|0o755), all["d"].Mode)
}

// TestOwnersDoNotMatter: saved as an ordinary user, restored by root and saved
// again is the same tree.
func TestOwnersDoNotMatter(t *testing.T) {
	needRoot(t)
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a/b": "1", "c": "2"})
	for _, name := range []string{".", "a", "a/b", "c"} {
		require.NoError(t, os.Lchown(filepath.Join(ws, name), ordinary, ordinary))
	}
	cp := save(t, s, ws, "T")
	dir := restored(t, s, cp.ID)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(dir, "a/b"), &st))
	require.Zero(t, st.Uid, "the owner is who restores")
	again := save(t, s, dir, "T")
	require.Equal(t, cp.Tree, again.Tree)
	collect := func(opt DiffOptions) (paths []string) {
		require.NoError(t, s.Diff(t.Context(), cp.ID, again.ID, opt, func(c tree.Change) error {
			paths = append(paths, c.Path)
			return nil
		}))
		return paths
	}
	require.Empty(t, collect(DiffOptions{}))
	require.Equal(t, []string{"."}, collect(DiffOptions{Owner: true}))
}
