package fs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// The threads and names that TestChangesShowAtOnce looks for, also while they are
// not there, so that the kernel remembers that they are not.
var (
	changeThreads = []string{"t", "f", "never"}
	changeIDs     = []string{"a", "b", "c", "forked", "never"}
	changeNames   = []string{"one", "two", "three", "never"}
)

// seen is what a mount shows of its threads: by path, the target of a link or
// "directory". Each directory is listed, and each name looked up on its own.
func seen(t *testing.T, m string) map[string]string {
	t.Helper()
	found := map[string]string{}
	// Names first: a listing would make the kernel look again at what it has.
	look := func(names []string, parts ...string) {
		dir := filepath.Join(append([]string{m, "threads"}, parts...)...)
		for _, name := range names {
			info, err := os.Lstat(filepath.Join(dir, name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			require.NoError(t, err)
			what := "directory"
			if !info.IsDir() {
				what, err = os.Readlink(filepath.Join(dir, name))
				require.NoError(t, err)
				_, err = os.Stat(filepath.Join(dir, name, "files"))
				require.NoError(t, err, "%s leads nowhere", name)
			}
			found[filepath.Join(append(parts, name)...)] = what
		}
		listed, err := os.ReadDir(dir)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return found[filepath.Join(append(parts, name)...)] == ""
		})
		var all []string
		for _, e := range listed {
			all = append(all, e.Name())
		}
		require.ElementsMatch(t, names, all, "%s has other names than it lists", dir)
	}
	look(changeThreads)
	for _, thread := range changeThreads {
		look(append([]string{"latest", "by-name"}, changeIDs...), thread)
		look(changeNames, thread, "by-name")
	}
	return found
}

// known is what a mount has to show by what the store says.
func known(t *testing.T, s *snapshot.Store) map[string]string {
	t.Helper()
	want := map[string]string{}
	threads, err := s.Threads(t.Context(), snapshot.Page{})
	require.NoError(t, err)
	for _, thread := range threads {
		want[thread.ID] = "directory"
		want[thread.ID+"/by-name"] = "directory"
		if thread.Head != "" {
			want[thread.ID+"/latest"] = thread.Head
		}
		cps, err := s.Checkpoints(t.Context(), thread.ID, snapshot.Page{})
		require.NoError(t, err)
		for _, cp := range cps {
			want[thread.ID+"/"+cp.ID] = "directory"
			if cp.Name != "" {
				want[thread.ID+"/by-name/"+cp.Name] = "../" + cp.ID
			}
		}
	}
	return want
}

// TestChangesShowAtOnce: whatever another process does to the store, all mounts
// show it when the verb returns, and the times of the directories grow.
func TestChangesShowAtOnce(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"f": "0"})
	mounts := []string{d.mount(), d.mount()}
	save := func(id, name string) func() error {
		return func() error {
			_, err := d.store.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t", ID: id, Name: name})
			return err
		}
	}
	rename := func(ref, name string) func() error {
		return func() error { _, err := d.store.Rename(t.Context(), ref, name); return err }
	}
	remove := func(ref string) func() error {
		return func() error { _, err := d.store.Delete(t.Context(), ref); return err }
	}
	removeThread := func(id string) func() error {
		return func() error { return d.store.DeleteThread(t.Context(), id) }
	}
	for _, step := range []struct {
		what   string
		do     func() error
		thread string // whose directory changes
	}{
		{"save", save("a", "one"), "t"},
		{"save again", save("b", ""), "t"},
		{"name", rename("b", "two"), "t"},
		{"rename", rename("b", "three"), "t"},
		{"take the name away", rename("b", ""), "t"},
		{"give it to the other", rename("a", "three"), "t"},
		{"fork", func() error {
			_, err := d.store.Fork(t.Context(), "a", snapshot.ForkOptions{Thread: "f", ID: "forked"})
			return err
		}, "f"},
		{"delete the head", remove("b"), "t"},
		{"save once more", save("c", "two"), "t"},
		{"delete a named one", remove("a"), "t"},
		{"delete the last", remove("c"), "t"},
		{"begin anew", save("a", "one"), "t"},
		{"delete a thread", removeThread("f"), "f"},
		{"delete the last thread", removeThread("t"), "t"},
		{"a thread of the same id", save("b", "one"), "t"},
	} {
		before := map[string][2]int64{}
		for _, m := range mounts {
			require.Equal(t, known(t, d.store), seen(t, m))
			before[m] = [2]int64{mtime(m + "/threads"), mtime(m + "/threads/" + step.thread)}
		}
		require.NoError(t, step.do(), step.what)
		for _, m := range mounts {
			require.Equal(t, known(t, d.store), seen(t, m), step.what)
			require.Greater(t, mtime(m+"/threads"), before[m][0], step.what)
			if after := mtime(m + "/threads/" + step.thread); after != 0 {
				require.Greater(t, after, before[m][1], step.what)
			}
		}
	}
}

// mtime returns a file's mtime in ns, or 0 when it is not there.
func mtime(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Mtim.Nano()
}

// requireReader requires of who has something of a deleted checkpoint open that
// it goes on or ends with an error that says so.
func requireReader(t *testing.T, want string, data []byte, err error) {
	t.Helper()
	if err == nil {
		require.Equal(t, want, string(data))
		return
	}
	require.True(t, errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EIO) || errors.Is(err, unix.ESTALE), "%v", err)
}

// TestReadersOfDeleted: who works in a checkpoint when it is deleted never sees
// another one's bytes, also not when its id comes back, and when its bytes are
// gone from the store.
func TestReadersOfDeleted(t *testing.T) {
	d := start(t)
	m := d.mount()
	state := func(n int) map[string]string {
		return map[string]string{
			"read": fmt.Sprint("read ", n), "unread": fmt.Sprint("unread ", n), "d/f": fmt.Sprint("below ", n),
			fmt.Sprint("only-", n): "x",
		}
	}
	save := func(n int) snapshot.Checkpoint {
		return d.save(snapshot.SaveOptions{Workspace: write(t, state(n)), Thread: "t", ID: "cp"})
	}
	files := dirOf(m, save(1))
	thread := open(t, m+"/threads/t")
	root := open(t, files)
	f, err := root.Open("read")
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, "read 1", content(t, files+"/read"))

	check := func(now string) {
		t.Helper()
		data := make([]byte, 6)
		n, err := f.ReadAt(data, 0)
		requireReader(t, "read 1", data[:n], err)
		for name, want := range state(1) {
			data, err := root.ReadFile(name)
			requireReader(t, want, data, err)
		}
		_, err = root.Stat("only-2")
		require.Error(t, err)
		if now == "" {
			require.NoDirExists(t, filepath.Dir(files))
			return
		}
		require.Equal(t, "read "+now, content(t, files+"/read"))
		require.Equal(t, "unread "+now, content(t, files+"/unread"))
		require.Equal(t, "below "+now, content(t, files+"/d/f"))
		require.Contains(t, list(t, files), "only-"+now)
		require.NotContains(t, list(t, files), "only-1")
	}
	_, err = d.store.Delete(t.Context(), "cp")
	require.NoError(t, err)
	check("")
	_, err = thread.Stat("cp")
	require.ErrorIs(t, err, os.ErrNotExist)
	save(2)
	check("2")
	for range 2 { // the first one condemns, the second sweeps
		_, err = d.store.GC(t.Context(), snapshot.GCRequest{})
		require.NoError(t, err)
	}
	check("2")

	// A thread that is deleted is empty for those who are in it, also when there is
	// another one of its id.
	require.NoError(t, d.store.DeleteThread(t.Context(), "t"))
	check("")
	save(3)
	check("3")
	for _, name := range []string{"latest", "by-name", "new"} {
		_, err = thread.Stat(name)
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	dir, err := thread.Open(".")
	require.NoError(t, err)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	require.NoError(t, err)
	require.Empty(t, names)
}

// content reads a file.
func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// TestChangesLeaveOthersAlone: a change drops no name below which somebody may
// work and that stays.
func TestChangesLeaveOthersAlone(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"d/f": "0"})
	m := d.mount()
	stays := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", Name: "x"})
	goes := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "u"})
	var held []string
	fds := map[string]int{}
	for dir := dirOf(m, stays) + "/d"; dir != m; dir = filepath.Dir(dir) {
		held = append(held, dir)
		fds[dir] = fdOf(t, open(t, dir))
	}
	list(t, m+"/threads/t/by-name")
	_, err := d.store.Rename(t.Context(), stays.ID, "y")
	require.NoError(t, err)
	_, err = d.store.Delete(t.Context(), goes.ID)
	require.NoError(t, err)
	require.NoError(t, d.store.DeleteThread(t.Context(), "u"))
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	for _, dir := range held {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fds[dir]))
		require.NoError(t, err)
		require.Equal(t, dir, at, "its path was dropped")
	}
}

// TestOnlyThreads: a mount of some threads has no trace of the others.
func TestOnlyThreads(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"f": "0"})
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "a"})
	other := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "other"})
	m := d.mountWith(snapshot.MountRequest{Threads: []string{"a", "x/y"}})
	require.Equal(t, []string{"a"}, list(t, m+"/threads"))
	for _, name := range []string{"other", "a/" + other.ID} {
		_, err := os.Lstat(m + "/threads/" + name)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	before := mtime(m + "/threads")
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "other"})
	_, err := d.store.Rename(t.Context(), other.ID, "n")
	require.NoError(t, err)
	fresh := d.mountWith(snapshot.MountRequest{Threads: []string{"a"}})
	for _, at := range []string{m, fresh} {
		require.Equal(t, before, mtime(at+"/threads"), "the activity of other threads shows")
	}
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "x/y"})
	require.Equal(t, []string{"a", snapshot.EncodeName("x/y")}, list(t, m+"/threads"))
	require.FileExists(t, m+"/threads/"+snapshot.EncodeName("x/y")+"/latest/files/f")
	require.Greater(t, mtime(m+"/threads"), before)
	require.NoError(t, d.store.DeleteThread(t.Context(), "a"))
	require.NotContains(t, list(t, m+"/threads"), "a")

	err = d.store.Holder().Mount(t.Context(), snapshot.MountRequest{Mountpoint: t.TempDir(), Threads: []string{""}})
	require.ErrorContains(t, err, "invalid thread id")
	require.False(t, slices.Contains(d.mounted(), ""))
}
