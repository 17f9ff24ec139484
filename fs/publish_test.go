package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// list returns the names in a directory.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPublishShowsAtOnce: whoever saves and then looks sees the checkpoint,
// whatever was looked at before. The save is another process's than the mount.
func TestPublishShowsAtOnce(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"f": "0"})
	m := d.mount()
	thread := m + "/threads/t"
	require.Empty(t, list(t, m+"/threads"))
	for round := range 5 {
		id, name := fmt.Sprint("cp-", round), fmt.Sprint("name-", round)
		// All of this is remembered as being absent.
		for _, path := range []string{thread + "/" + id, thread + "/by-name/" + name} {
			_, err := os.Lstat(path)
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		var before unix.Stat_t
		threads := stat(t, m+"/threads")
		if round > 0 {
			before = stat(t, thread)
			require.Len(t, list(t, thread), round+2)
			require.Len(t, list(t, thread+"/by-name"), round)
		}
		content := fmt.Sprint("content ", round)
		require.NoError(t, os.WriteFile(ws+"/f", []byte(content), 0o644))
		d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", ID: id, Name: name})

		target, err := os.Readlink(thread + "/latest")
		require.NoError(t, err)
		require.Equal(t, id, target)
		for _, path := range []string{"latest", id, "by-name/" + name} {
			got, err := os.ReadFile(filepath.Join(thread, path, "files/f"))
			require.NoError(t, err, path)
			require.Equal(t, content, string(got))
		}
		require.Contains(t, list(t, thread), id)
		require.Contains(t, list(t, thread+"/by-name"), name)
		require.Equal(t, []string{"t"}, list(t, m+"/threads"))
		after, above := stat(t, thread), stat(t, m+"/threads")
		require.Greater(t, above.Mtim.Nano(), threads.Mtim.Nano())
		require.Greater(t, after.Mtim.Nano(), before.Mtim.Nano())
	}
	// What is under a checkpoint never changes.
	got, err := os.ReadFile(thread + "/cp-1/files/f")
	require.NoError(t, err)
	require.Equal(t, "content 1", string(got))
}

// TestPublishBelowSomebody: a publish does not cut off who works in a checkpoint.
func TestPublishBelowSomebody(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"d/f": "0"})
	m := d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	root := open(t, dirOf(m, cp)+"/d")
	thread := open(t, m+"/threads/t")
	other := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	d.save(snapshot.SaveOptions{Workspace: ws, Thread: "u"})
	got, err := root.ReadFile("f")
	require.NoError(t, err)
	require.Equal(t, "0", string(got))
	_, err = thread.Stat(other.ID + "/files/d/f")
	require.NoError(t, err)
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fdOf(t, root)))
	require.NoError(t, err)
	require.Equal(t, dirOf(m, cp)+"/d", at, "its path was invalidated")
}

// fdOf returns the descriptor of an open directory.
func fdOf(t *testing.T, root *os.Root) int {
	t.Helper()
	f, err := root.Open(".")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

// TestSameSecond: two checkpoints of one second are two, and the later is latest.
func TestSameSecond(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"f": "0"})
	thread := d.mount() + "/threads/t"
	var ids []string
	times := map[int64]bool{}
	for range 4 {
		cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
		ids = append(ids, cp.ID)
		target, err := os.Readlink(thread + "/latest")
		require.NoError(t, err)
		require.Equal(t, cp.ID, target)
		st := stat(t, thread)
		times[st.Mtim.Nano()] = true
	}
	require.Len(t, times, 4, "a changed directory showed an old time")
	require.Subset(t, list(t, thread), ids)
}

// TestOddIDs: any id is a name that leads back to it, and to nothing else.
func TestOddIDs(t *testing.T) {
	d := start(t)
	m := d.mount()
	ws := write(t, map[string]string{"f": "0"})
	ids := []string{
		"x/../../PWNED", "..", ".", "latest", "by-name", "/a", "a/", "%2E%2E", "%6Catest", "%", "a b", "\U0001F600",
		strings.Repeat("a", 255), strings.Repeat("a", 256), strings.Repeat("b", 512), strings.Repeat("/", 512), strings.Repeat("\u20ac", 170),
	}
	threads := append([]string{"new\nline", "\x01\x7f"}, ids...)
	var names, threadNames []string
	for _, id := range ids {
		names = append(names, snapshot.EncodeName(id))
		d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", ID: id})
	}
	for _, id := range threads {
		threadNames = append(threadNames, snapshot.EncodeName(id))
		d.save(snapshot.SaveOptions{Workspace: ws, Thread: id})
	}
	require.ElementsMatch(t, append(names, "by-name", "latest"), list(t, m+"/threads/t"))
	require.ElementsMatch(t, append(threadNames, "t"), list(t, m+"/threads"))
	for _, name := range names {
		require.FileExists(t, filepath.Join(m, "threads/t", name, "files/f"))
	}
	for _, name := range threadNames {
		require.FileExists(t, filepath.Join(m, "threads", name, "latest/files/f"))
	}
	for _, name := range []string{"%2e.", "%2E%2E", "%6catest", "%61%20b", "a%20b", "%25", "%", strings.Repeat("a", 200), strings.Repeat("a", 200) + "%h" + strings.Repeat("0", 32)} {
		if name == "%25" {
			continue // the name of "%"
		}
		_, err := os.Lstat(filepath.Join(m, "threads/t", name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
		_, err = os.Lstat(filepath.Join(m, "threads", name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	// A checkpoint is found in its own thread only, and by its whole id only.
	_, err := os.Lstat(m + "/threads/latest")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Lstat(filepath.Join(m, "threads", snapshot.EncodeName(".."), "a b"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Lstat(m + "/threads/t/" + strings.Repeat("b", 100))
	require.ErrorIs(t, err, os.ErrNotExist)
}
