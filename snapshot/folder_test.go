package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// publishFolder publishes a checkpoint that is one folder of n files in a
// subdirectory, the changed one with other content than all others, and returns
// it with what it added to the store.
func publishFolder(t *testing.T, s *Store, n, changed int) Checkpoint {
	t.Helper()
	session := begin(t, s, BeginRequest{Thread: "T"})
	defer session.Close()
	blobs := local.New(s.dir, inSession{s.holder, session}, local.Options{})
	defer blobs.Close()
	w, err := blobs.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	same := cas.NewObject(cas.Files, cas.Data, []byte("same"))
	other := cas.NewObject(cas.Files, cas.Data, fmt.Appendf(nil, "changed %d", changed))
	require.NoError(t, w.Put(t.Context(), same, other))
	var b tree.Builder
	for i := range n {
		e := tree.Entry{Name: fmt.Sprintf("package-%05d.d.ts", i), Kind: tree.File, Mode: 0o644, Hash: same.Key.Hash, Size: 4, MtimeSec: 1e9 + int64(i), MtimeNsec: uint32(i * 7919)}
		if i == changed {
			e.Hash, e.Size = other.Key.Hash, uint64(len(other.Data))
		}
		require.NoError(t, b.Add(e, tree.Totals{}))
	}
	folder, objs, err := b.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), objs...))
	require.NoError(t, b.Add(tree.Entry{Name: "types", Kind: tree.Dir, Mode: 0o755, Hash: folder.Hash}, folder.Totals))
	root, objs, err := b.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), objs...))
	rec := index.Record{
		ID: fmt.Sprint("changed-", changed), Thread: "T", Parent: session.Head(), Reason: index.Manual, Created: time.Now().UnixNano(),
		Root: index.Root{Tree: root.Hash, Mode: 0o755}, Totals: index.Totals(root.Totals), Consistency: index.PerFile,
	}
	cp, err := publish(t.Context(), session, w, rec, PublishRequest{})
	require.NoError(t, err)
	return cp
}

// TestLargeFolder: one changed file among very many costs some kilobytes, and to
// find it costs some objects.
func TestLargeFolder(t *testing.T) {
	const n = 43_009
	s := newStore(t)
	first := publishFolder(t, s, n, -1)
	require.Equal(t, uint64(n), first.Files)
	for _, changed := range []int{0, 20_000, n - 1} {
		cp := publishFolder(t, s, n, changed)
		require.Less(t, cp.NewBytes, int64(16<<10))
		require.Positive(t, cp.NewBytes)
		var paths []string
		require.NoError(t, s.Diff(t.Context(), first.ID, cp.ID, DiffOptions{}, func(c tree.Change) error {
			paths = append(paths, c.Path)
			return nil
		}))
		require.Equal(t, []string{fmt.Sprintf("types/package-%05d.d.ts", changed)}, paths)
	}
}

// TestWideDirectory: one that is cut into segments comes back whole.
func TestWideDirectory(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("wide/%d", i*i)] = fmt.Sprint(i % 300)
	}
	write(t, ws, files)
	cp := save(t, s, ws, "T")
	require.Equal(t, look(t, ws), look(t, restored(t, s, cp.ID)))
}

// TestFullStore: a save into a store without room says so and changes nothing;
// reading goes on, and with room so does saving.
func TestFullStore(t *testing.T) {
	needRoot(t)
	volume := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(volume, 0o755))
	if err := unix.Mount("tmpfs", volume, "tmpfs", 0, "mode=755,size=256m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(volume, unix.MNT_DETACH)) })
	s := openStore(t, filepath.Join(volume, "store"))
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"x": "1"})
	cp := save(t, s, ws, "T")

	ballast := filepath.Join(volume, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	defer f.Close()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(volume, &st))
	require.NoError(t, unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-(8<<20))) // less than the reserve
	write(t, ws, map[string]string{"y": strings.Repeat("2", 2<<20)})
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T"})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.NotErrorIs(t, err, capture.ErrUnsavable)
	_, err = s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "F"})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.Empty(t, tempFiles(t, s))
	require.Empty(t, faults(t, s))
	thread, err := s.Thread(t.Context(), "T")
	require.NoError(t, err)
	require.Equal(t, cp.ID, thread.Head)
	require.Len(t, look(t, restored(t, s, "T@latest")), 2)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, f.Close())
	require.Equal(t, cp.ID, save(t, s, ws, "T").Parent)
}

// TestMountInWorkspace: a workspace with a mount of ours in it, or inside of one,
// is refused by the mount table alone: this one's daemon is dead.
func TestMountInWorkspace(t *testing.T) {
	needRoot(t)
	ws := filepath.Join(t.TempDir(), "ws")
	mountpoint := filepath.Join(ws, "a b", "mnt")
	require.NoError(t, os.MkdirAll(mountpoint, 0o755))
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no /dev/fuse: %v", err)
	}
	err = unix.Mount("/var/lib/a store", mountpoint, MountType, unix.MS_RDONLY, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev))
	require.NoError(t, unix.Close(dev)) // ends the connection: nobody waits for an answer
	if err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mountpoint, unix.MNT_DETACH) })
	all, err := Mountpoints()
	require.NoError(t, err)
	var found []string
	for _, m := range all {
		if m.Mountpoint == mountpoint {
			found = append(found, m.Store)
		}
	}
	require.Equal(t, []string{"/var/lib/a store"}, found)
	s := newStore(t)
	for _, dir := range []string{ws, filepath.Join(ws, "a b")} {
		_, err = s.Save(t.Context(), SaveOptions{Workspace: dir, Thread: "T"})
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, mountpoint)
	}
	require.NoError(t, unix.Unmount(mountpoint, unix.MNT_DETACH))
	save(t, s, ws, "T")
}
