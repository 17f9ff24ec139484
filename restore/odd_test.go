package restore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// foldingDisk mounts a file system that takes "A" and "a" for one name, and keeps
// neither modes nor owners, symlinks, hard links or attributes: a vfat, else an exFAT
// in user space.
func foldingDisk(t *testing.T) string {
	t.Helper()
	needRoot(t)
	run := func(name string, args ...string) (string, error) {
		out, err := exec.Command(name, args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 64<<20))
	device, err := run("losetup", "-f", "--show", image)
	if err != nil {
		t.Skipf("no loop device: %s", device)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("losetup", "-d", device).Run()) })
	if out, err := run("mkfs.vfat", image); err == nil && unix.Mount(device, at, "vfat", 0, "utf8=1") == nil {
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
		return at
	} else if err != nil {
		t.Logf("no vfat: %s", out)
	}
	out, err := run("mkfs.exfat", image)
	if err == nil {
		out, err = run("mount.exfat-fuse", device, at)
	}
	if err != nil && os.Getenv("SNAPFS_NEED_FUSE") == "" {
		t.Skipf("neither vfat nor exFAT: %s", out)
	}
	require.NoError(t, err, out)
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

// emptied makes sure that nothing is in a directory.
func emptied(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestCollisions: names that the target's file system takes for one are refused, all of
// them, before anything is written, wherever the target is.
func TestCollisions(t *testing.T) {
	disk := foldingDisk(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	src := m.source(t, dir{
		"Logo.png": "a", "logo.png": "b", "other": "c",
		"d": dir{"Straße": dir{"x": "1"}, "STRASSE": "2", "strasse": "3", "n": "4"},
		"e": dir{"\u00e9": "5", "\u00c9": "6", "e\u0301": "7"},
	})
	groups := [][]string{{"d/STRASSE", "d/strasse"}, {"e/\u00c9", "e/\u00e9"}, {"Logo.png", "logo.png"}}
	live := filepath.Join(disk, "live")
	require.NoError(t, os.Mkdir(live, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(live, "mine"), nil, 0o644))
	for name, tt := range map[string]struct {
		dir  string
		mode Mode
	}{"missing": {filepath.Join(disk, "missing"), New}, "existing": {t.TempDir(), New}, "live": {live, Overlay}} {
		t.Run(name, func(t *testing.T) {
			if name == "existing" {
				tt.dir = filepath.Join(disk, "existing")
				require.NoError(t, os.Mkdir(tt.dir, 0o755))
				defer func() { require.NoError(t, os.Remove(tt.dir)) }()
			}
			_, err := Tree(t.Context(), m, r, src, tt.dir, Options{Mode: tt.mode})
			require.ErrorIs(t, err, ErrCollision)
			var collision *CollisionError
			require.ErrorAs(t, err, &collision)
			require.ElementsMatch(t, groups, collision.Paths)
			require.Contains(t, err.Error(), `Logo.png logo.png`)
		})
	}
	require.Equal(t, map[string]string{"live": "/", "live/mine": ""}, list(t, disk))

	files := only(t, nil, "logo.png", "e/", "s*", "Straße/")
	_, err := Tree(t.Context(), m, r, src, filepath.Join(disk, "part"), Options{Files: files})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"Logo.png": "a", "other": "c", "d": "/", "d/STRASSE": "2", "d/n": "4"}, list(t, filepath.Join(disk, "part")))

	// A dry run says so, too, wherever the target is.
	for _, to := range []string{filepath.Join(disk, "missing"), filepath.Join(disk, "part", "new"), live} {
		_, err := Tree(t.Context(), m, r, src, to, Options{Mode: Overlay, DryRun: true})
		require.ErrorIs(t, err, ErrCollision, to)
	}

	// One that is there by another spelling is not written over.
	src = m.source(t, dir{"MINE": "theirs"})
	for _, mode := range []Mode{Overlay, Mirror} {
		_, err = Tree(t.Context(), m, r, src, live, Options{Mode: mode, Force: true})
		require.ErrorIs(t, err, ErrCollision)
	}
	require.Equal(t, map[string]string{"mine": ""}, list(t, live))
	src = m.source(t, dir{"d": dir{"MINE": dir{"x": "theirs"}}})
	below := filepath.Join(live, "d", "mine")
	require.NoError(t, os.MkdirAll(below, 0o755))
	_, err = Tree(t.Context(), m, r, src, live, Options{Mode: Overlay})
	require.ErrorIs(t, err, ErrCollision)
	emptied(t, below)
}

// TestCheckNames: names alone, for a directory that is there or not.
func TestCheckNames(t *testing.T) {
	names := []string{"Logo", "a", "logo", "LOGO", "b", "\u00c9", "\u00e9", "c.", "c", "~"}
	require.NoError(t, CheckNames(t.TempDir(), names))
	disk := foldingDisk(t)
	there := filepath.Join(disk, "there")
	require.NoError(t, os.Mkdir(there, 0o755))
	for _, dir := range []string{there, filepath.Join(there, "missing", "1")} {
		err := CheckNames(dir, names)
		var collision *CollisionError
		require.ErrorAs(t, err, &collision)
		require.Equal(t, [][]string{{"Logo", "logo", "LOGO"}, {"\u00c9", "\u00e9"}, {"c.", "c"}}, collision.Paths)
		require.NoError(t, CheckNames(dir, []string{"a", "b"}))
		require.NoError(t, CheckNames(dir, nil))
	}
	emptied(t, there)
}

// TestLesserFileSystem: what a file system cannot hold is listed, and all else is there.
func TestLesserFileSystem(t *testing.T) {
	disk := foldingDisk(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	with := m.file(t, 0o755, "attributes")
	with.XAttrs = m.xattrs(t, tree.XAttr{Name: "user.any", Value: []byte("v")})
	odd := m.file(t, 0o755, "odd")
	odd.MtimeSec, odd.MtimeNsec = 1e9+1, 123456789
	src := m.source(t, dir{
		"f": "file", "private": m.file(t, 0o600, "mode"), "with": with, "odd": odd, "d": dir{"deep": dir{"x": "y"}},
		"l": symlink("f"), "no:name": "?", "no\xff": "?", "no?dir": dir{"in": "it", "sub": dir{"z": "z"}}, "one": "linked", "two": "linked",
		"large": strings.Repeat("0123456789abcdef", 1<<17),
	})
	src.Links = m.links(t, []string{"one", "two"})
	target := filepath.Join(disk, "target")
	res, err := Tree(t.Context(), m, r, src, target, Options{Owner: &Owner{UID: 1000, GID: 1000}})
	require.NoError(t, err)
	want := map[string]string{
		"f": "file", "private": "mode", "with": "attributes", "odd": "odd", "d": "/", "d/deep": "/", "d/deep/x": "y", "one": "linked", "two": "linked",
		"large": strings.Repeat("0123456789abcdef", 1<<17),
	}
	require.Equal(t, want, list(t, target))
	said := map[string]string{}
	for _, p := range res.Incomplete {
		path := p.Path
		if strings.Contains(p.Err.Error(), "odd has") { // rounded times are said once
			path = "odd"
		}
		said[path] += p.Err.Error() + "; "
	}
	for path, why := range map[string]string{
		"l": "not made: the file system can hold no symlinks", "no:name": "not made: the file system can hold no such name",
		"no?dir": "not made: the file system can hold no such name, nor what is in it", "private": "mode 0", "with": "set user.any",
		"odd": "time", "f": "the file system keeps no owners",
	} {
		require.Contains(t, said[path], why, path)
	}
	require.Contains(t, said["one"]+said["two"], "a copy of")
	require.NotContains(t, said, "no?dir/in")

	// Again, over what is there: nothing is written twice, and the same is said.
	again, err := Tree(t.Context(), m, r, src, target, Options{Mode: Mirror})
	require.NoError(t, err)
	require.Zero(t, again.Deleted)
	require.Equal(t, want, list(t, target))
	removed := filepath.Join(target, "d/deep/x")
	require.NoError(t, os.Remove(removed))
	require.NoError(t, os.WriteFile(filepath.Join(target, "l"), []byte("mine"), 0o644))
	want["l"] = "mine" // it is not taken away for a link that cannot be made
	again, err = Tree(t.Context(), m, r, src, target, Options{Mode: Overlay})
	require.NoError(t, err)
	require.NotEmpty(t, again.Incomplete)
	require.Equal(t, want, list(t, target))
	require.Equal(t, int64(1), again.Created)
	require.NoError(t, os.RemoveAll(target))
	emptied(t, disk)
}
