package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
)

// TestThreadFor: a directory goes on with the thread that it was last saved to;
// another one of the same name does not.
func TestThreadFor(t *testing.T) {
	s := newStore(t)
	top := t.TempDir()
	ws := filepath.Join(top, "one", "workspace")
	write(t, ws, map[string]string{"x": "1"})
	auto := func(dir string) (string, error) {
		res, err := s.Save(t.Context(), SaveOptions{Workspace: dir, Files: policy.FilesOptions{NoDefaults: true}})
		return res.Checkpoint.Thread, err
	}
	must := func(dir, want string) {
		t.Helper()
		got, err := auto(dir)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	must(ws, "workspace")
	must(ws, "workspace")
	must(filepath.Join(ws, "..", "workspace"), "workspace")
	require.NoError(t, os.Symlink(ws, filepath.Join(top, "link")))
	must(filepath.Join(top, "link"), "workspace")

	twin := filepath.Join(top, "two", "workspace")
	write(t, twin, map[string]string{"x": "2"})
	_, err := auto(twin)
	require.ErrorIs(t, err, ErrThreadUnclear)
	require.Contains(t, Hint(err), "--thread workspace")
	save(t, s, twin, "other")
	must(twin, "other")
	must(ws, "workspace")
	save(t, s, twin, "third") // the last one counts
	must(twin, "third")

	// Another directory at the same place is another one, and so is the same one
	// elsewhere.
	require.NoError(t, os.RemoveAll(twin))
	write(t, twin, map[string]string{"x": "3"})
	_, err = auto(twin)
	require.ErrorIs(t, err, ErrThreadUnclear)
	moved := filepath.Join(top, "moved")
	require.NoError(t, os.Rename(ws, moved))
	must(moved, "moved")

	odd := filepath.Join(top, "\xff")
	require.NoError(t, os.Mkdir(odd, 0o755))
	must(odd, "\uFFFD")
	_, err = s.ThreadFor(t.Context(), "/")
	require.ErrorIs(t, err, ErrThreadUnclear)
	require.Contains(t, Hint(err), "--thread")
}

// TestRefusedWorkspaces: what is surely a mistake, unless it is forced; what is
// no directory, always.
func TestRefusedWorkspaces(t *testing.T) {
	top := t.TempDir()
	s := openStore(t, filepath.Join(top, "holds", "store"))
	home := filepath.Join(top, "home")
	write(t, home, map[string]string{"x": "1", "project/y": "2"})
	t.Setenv("HOME", home)
	require.NoError(t, os.Symlink(home, filepath.Join(top, "to-home")))
	require.NoError(t, os.Symlink("/", filepath.Join(top, "to-root")))
	require.NoError(t, os.Symlink(filepath.Join(top, "holds"), filepath.Join(top, "to-holds")))
	write(t, top, map[string]string{"file": "x"})
	for name, dir := range map[string]string{
		"root": "/", "link to the root": filepath.Join(top, "to-root"), "home": home, "link to home": filepath.Join(top, "to-home"),
		"holds the store": filepath.Join(top, "holds"), "link to what holds it": filepath.Join(top, "to-holds"),
		"holds it further down": top, "the store": s.dir, "in the store": filepath.Join(s.dir, "packs"), "a file": filepath.Join(top, "file"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Save(t.Context(), SaveOptions{Workspace: dir, Thread: "T"})
			require.ErrorIs(t, err, ErrRefused)
		})
	}
	_, err := s.Save(t.Context(), SaveOptions{Workspace: filepath.Join(top, "missing"), Thread: "T"})
	require.ErrorIs(t, err, os.ErrNotExist)
	save(t, s, filepath.Join(home, "project"), "T")
	_, err = s.Save(t.Context(), SaveOptions{Workspace: home, Thread: "home", Force: true})
	require.NoError(t, err)
	_, err = s.Save(t.Context(), SaveOptions{Workspace: filepath.Join(top, "file"), Thread: "T", Force: true})
	require.ErrorIs(t, err, ErrRefused)
}

// TestRefusedTargets: nothing is restored into the store, however its path is
// spelled.
func TestRefusedTargets(t *testing.T) {
	top := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(top, "real"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(top, "link")))
	s := openStore(t, filepath.Join(top, "link", "store"))
	cp := save(t, s, t.TempDir(), "T")
	require.NoError(t, os.Symlink("real/store/packs", filepath.Join(top, "packs")))
	for _, dir := range []string{"link/store", "link/store/new", "real/store/cache/x/y", "packs/new", "packs", "real/../real/store/tmp"} {
		_, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: filepath.Join(top, dir)})
		require.ErrorIs(t, err, ErrRefused, dir)
	}
	for _, dir := range []string{"link/beside", "store", "real/store-2"} {
		_, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: filepath.Join(top, dir)})
		require.NoError(t, err, dir)
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a/..b", "/a", true},
		{"/anything", "/", true}, {"/", "/", true}, {"/", "/a", false},
	} {
		require.Equal(t, test.want, Within(test.path, test.dir), "%s in %s", test.path, test.dir)
	}
}

// TestMountTable: names come with octal escapes for what separates them, and as
// they are otherwise.
func TestMountTable(t *testing.T) {
	table := strings.Join([]string{
		`22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw`,
		`30 1 0:44 / /mnt/plain ro,nosuid shared:1 master:2 - fuse.snapfs /var/lib/snapfs ro,user_id=0`,
		`31 1 0:45 / /mnt/a\040b\011c\012d\134e\043f ro - fuse.snapfs /srv/my\040store ro`,
		"32 1 0:46 / /mnt/caf\u00e9\u00a0\u0085\v\f\xff ro - fuse.snapfs /s ro",
		`33 1 0:47 / /mnt/not\04 ro - fuse.snapfs /s\9990 ro`,
		`34 1 0:48 / /mnt/other ro - fuse.sshfs host:/ ro`,
		`35 1 0:49 / /mnt/dash\040-\040fuse.snapfs ro - ext4 /dev/x ro`,
		`36 1 8:1 / /mnt/looks rw - ext4 fuse.snapfs rw`,
		`too short - fuse.snapfs`,
		``,
	}, "\n")
	all, err := parseMounts(strings.NewReader(table))
	require.NoError(t, err)
	require.Equal(t, []Mountpoint{
		{"/mnt/plain", "/var/lib/snapfs", "0:44"},
		{"/mnt/a b\tc\nd\\e#f", "/srv/my store", "0:45"},
		{"/mnt/caf\u00e9\u00a0\u0085\v\f\xff", "/s", "0:46"},
		{`/mnt/not\04`, `/s\9990`, "0:47"},
	}, ours(all))
	_, err = Mountpoints()
	require.NoError(t, err)
}
