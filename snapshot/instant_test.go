package snapshot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

// register makes an instant workspace of a checkpoint that is not mounted.
func register(t *testing.T, s *Store, ref, dir string) InstantWorkspace {
	t.Helper()
	w := InstantWorkspace{ID: NewWorkspaceID(), Boot: disk.BootID()}
	w.SetMountpoint(dir)
	w.SetLayer(s.OwnLayer(w.ID))
	w.Namespace = must(MountNamespace())
	require.NoError(t, s.MakeWorkspaceFolder(w.ID))
	cp, rec, err := s.record(t.Context(), ref)
	require.NoError(t, err)
	return must(s.AddWorkspace(t.Context(), cp, rec, w))
}

// TestPinned: while an instant workspace is made of a checkpoint, no byte of that goes,
// although users see it deleted, and nothing else is kept.
func TestPinned(t *testing.T) {
	s, ws := deletable(t)
	ctx := t.Context()
	for i := range 5 {
		noiseFile(t, ws+"/only-"+string(rune('a'+i)), uint64(100+i), 30_000)
	}
	saveAs(t, s, ws, "t", "pinned", "")
	require.NoError(t, os.WriteFile(ws+"/f", []byte("small"), 0o644))
	for i := range 5 {
		require.NoError(t, os.Remove(ws+"/only-"+string(rune('a'+i))))
	}
	saveAs(t, s, ws, "t", "after", "")
	dir := filepath.Join(t.TempDir(), "instant\nws")
	w := register(t, s, "pinned", dir)
	require.Equal(t, dir, w.Mountpoint())
	require.Equal(t, "t", w.Thread)
	rec := must(s.Record(ctx, Checkpoint{ID: w.Checkpoint, Record: w.Record}))

	_, err := s.Delete(ctx, "pinned")
	require.NoError(t, err)
	_, err = s.Resolve(ctx, "pinned")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	res := must(s.GC(ctx, GCRequest{Purge: true}))
	require.False(t, res.Purged)
	require.Contains(t, res.Left[0], "checkpoint pinned is below an instant workspace: snapfs workspace remove ")
	for _, name := range []string{"f", "only-a", "only-e"} {
		e := must(s.trees.Find(ctx, rec.Root.Tree, name))
		data, err := s.blobs.Read(ctx, cas.Key{NS: cas.Files, Hash: e.Hash}, nil)
		require.NoError(t, err)
		require.EqualValues(t, e.Size, len(data))
	}
	// A save may still rely on it.
	session := must(s.holder.Begin(ctx, BeginRequest{Thread: "new", Base: Base{w.Checkpoint, w.Record}}))
	require.True(t, session.BaseHolds())
	require.NoError(t, session.Close())
	usage := must(s.Usage(ctx))
	require.Greater(t, usage.StoredBytes, int64(150_000))
	require.Less(t, usage.ReclaimableBytes, int64(1000))

	require.NoError(t, s.DropWorkspace(w.ID))
	require.NoDirExists(t, s.workspaceFolder(w.ID))
	require.Greater(t, must(s.Usage(ctx)).ReclaimableBytes, int64(150_000))
	res = must(s.GC(ctx, GCRequest{})) // the request to purge stands
	require.True(t, res.Purged, res.Left)
	require.Greater(t, res.Freed, int64(150_000))
	_, err = s.Record(ctx, Checkpoint{ID: w.Checkpoint, Record: w.Record})
	require.ErrorIs(t, err, cas.ErrNotFound)
}

// TestPinnedDamaged: nobody knows what a registration needs that cannot be read, and so a
// collection frees nothing.
func TestPinnedDamaged(t *testing.T) {
	s, _ := deletable(t)
	ctx := t.Context()
	w := register(t, s, "c-1", filepath.Join(t.TempDir(), "w"))
	path := filepath.Join(s.workspaceFolder(w.ID), workspaceFile)
	whole := must(os.ReadFile(path))
	for name, text := range map[string]string{"empty": "", "cut": string(whole[:len(whole)/2]), "another": `{"id":"0123456789abcdef"}`, "no hash": `{"id":"` + w.ID + `","dir":"/x","layer":"/y","checkpoint":"c-1","record":"z"}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := s.GC(ctx, GCRequest{})
		require.ErrorIs(t, err, cas.ErrCorrupt, name)
		require.ErrorContains(t, err, w.ID, name)
		require.Contains(t, Hint(err), path, name)
	}
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	must(s.GC(ctx, GCRequest{}))
	// A copy of the store has the registration of another one's workspace: that needs its
	// bytes all the same, and is not this one's to mount.
	require.False(t, s.Copied(w))
	folder := s.workspaceFolder(w.ID)
	require.NoError(t, os.Rename(folder, folder+".old"))
	require.NoError(t, os.CopyFS(folder, os.DirFS(folder+".old")))
	require.True(t, s.Copied(must(s.Workspaces())[0]))
	_, _, err := s.WorkspaceAt(w.Mountpoint())
	require.ErrorIs(t, err, ErrNoWorkspace)
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.Rename(folder+".old", folder))
	// What is being made or removed is none yet, or none any more.
	require.NoError(t, os.Remove(path))
	require.Empty(t, must(s.Workspaces()))
	must(s.GC(ctx, GCRequest{}))
}

// TestUnmountedWorkspace: the directory of an instant workspace that is not mounted is
// empty. It is not saved as if that were all, nor restored into, nor compared.
func TestUnmountedWorkspace(t *testing.T) {
	s, _ := deletable(t)
	ctx := t.Context()
	dir := filepath.Join(must(filepath.EvalSymlinks(t.TempDir())), "w")
	require.NoError(t, os.Mkdir(dir, 0o755))
	w := register(t, s, "c-1", dir)
	_, err := s.Save(ctx, SaveOptions{Workspace: dir, Thread: "t"})
	require.ErrorIs(t, err, ErrWorkspaceState)
	require.Contains(t, Hint(err), "snapfs workspace repair "+dir)
	_, err = s.Save(ctx, SaveOptions{Workspace: dir, Thread: "t", Force: true})
	require.ErrorIs(t, err, ErrWorkspaceState)
	_, err = s.Restore(ctx, "c-1", RestoreOptions{Dir: dir})
	require.ErrorIs(t, err, ErrWorkspaceState)
	_, err = s.CompareDir(ctx, "c-1", dir)
	require.ErrorIs(t, err, ErrWorkspaceState)
	_, _, err = s.NewWorkspace(dir)
	require.ErrorIs(t, err, ErrWorkspaceState)

	// One of another boot is here all the same; one of a mount namespace in which its
	// server lives is somewhere else.
	w.Boot, w.Namespace = "another", 1
	require.NoError(t, s.PutWorkspace(w))
	_, err = s.Save(ctx, SaveOptions{Workspace: dir, Thread: "t"})
	require.ErrorIs(t, err, ErrWorkspaceState)
	w.Boot = disk.BootID()
	require.NoError(t, s.PutWorkspace(w))
	_, err = s.Save(ctx, SaveOptions{Workspace: dir, Thread: "t"})
	require.ErrorIs(t, err, ErrWorkspaceState)
	if os.Geteuid() != 0 {
		t.Skip("only root has another mount namespace")
	}
	other := exec.Command("unshare", "-m", "sh", "-c", "echo; exec sleep 100")
	out := must(other.StdoutPipe())
	require.NoError(t, other.Start())
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	must(out.Read(make([]byte, 1)))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", other.Process.Pid), &st))
	w.Namespace = st.Ino
	require.NoError(t, s.PutWorkspace(w))
	_, err = s.Restore(ctx, "c-1", RestoreOptions{Dir: dir})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "f"))
}

// TestSameRules: policies that decide alike are alike, whoever gave the rules.
func TestSameRules(t *testing.T) {
	s, ws := newStore(t), t.TempDir()
	require.NoError(t, os.WriteFile(ws+"/.snapfsignore", []byte("x\n"), 0o644))
	save := func(id string, change func(*SaveOptions)) {
		opt := SaveOptions{Workspace: ws, Thread: "t", ID: id}
		change(&opt)
		must(s.Save(t.Context(), opt))
	}
	save("plain", func(*SaveOptions) {})
	require.NoError(t, os.Remove(ws+"/.snapfsignore"))
	save("again", func(*SaveOptions) {})
	save("other", func(o *SaveOptions) { o.Files.NoDefaults = true })
	save("limit", func(o *SaveOptions) { o.Settings.MaxFileSize = 1 << 30 })
	rules := func(id string) []byte {
		_, rec, err := s.record(t.Context(), id)
		require.NoError(t, err)
		saved, _, err := s.savedPolicy(t.Context(), rec)
		require.NoError(t, err)
		return sameRules(saved)
	}
	require.Equal(t, string(rules("plain")), string(rules("again")))
	require.NotEqual(t, string(rules("plain")), string(rules("other")))
	require.NotEqual(t, string(rules("plain")), string(rules("limit")))
}

// TestLower: when a capture may rely on the checkpoint below, and when all has to be read.
func TestLower(t *testing.T) {
	s, ws := newStore(t), t.TempDir()
	require.NoError(t, os.WriteFile(ws+"/a", []byte("a"), 0o644))
	require.NoError(t, os.Link(ws+"/a", ws+"/b"))
	saveAs(t, s, ws, "t", "base", "")
	w := register(t, s, "base", filepath.Join(t.TempDir(), "w"))
	_, rec, err := s.record(t.Context(), "base")
	require.NoError(t, err)
	saved, _, err := s.savedPolicy(t.Context(), rec)
	require.NoError(t, err)

	l, why, err := s.lower(t.Context(), &w, saved)
	require.NoError(t, err)
	require.Empty(t, why)
	require.Equal(t, &capture.Lower{Upper: w.Upper(), Trees: s.trees, Blobs: s.blobs, Root: rec.Root.Tree, UID: rec.Root.UID, GID: rec.Root.GID, Links: [][]string{{"a", "b"}}}, l)

	other := saved
	other.Settings.GitIgnore = true
	redacted := saved
	redacted.Redacted = []string{"variable TOKEN"}
	_, why, err = s.lower(t.Context(), &w, other)
	require.NoError(t, err)
	require.Equal(t, "the policy is not that of checkpoint base", why)
	_, why, err = s.lower(t.Context(), &w, redacted)
	require.NoError(t, err)
	require.Equal(t, "secrets are declared, or were for checkpoint base", why)
}
