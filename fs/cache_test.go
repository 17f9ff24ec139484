package fs_test

import (
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// pass reads all of a directory that is open: every name, every file, every
// link.
func pass(t *testing.T, root *os.Root) (entries int) {
	t.Helper()
	require.NoError(t, iofs.WalkDir(root.FS(), ".", func(path string, e iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		if _, err := root.Lstat(path); err != nil {
			return err
		}
		switch e.Type() {
		case 0:
			_, err = root.ReadFile(path)
		case os.ModeSymlink:
			_, err = root.Readlink(path)
		}
		return err
	}))
	return entries
}

// open opens the files of a checkpoint, so that what follows does not go through
// the directories that change.
func open(t *testing.T, files string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(files)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// many makes a workspace with a few directories.
func many(t *testing.T) string {
	t.Helper()
	content := map[string]string{}
	for i := range 200 {
		content[fmt.Sprintf("d%d/e%d/f%d", i%5, i%20, i)] = strings.Repeat(fmt.Sprint("content ", i, " "), 1+i*10)
	}
	ws := write(t, content)
	for i := range 5 {
		require.NoError(t, os.Symlink("../nowhere", fmt.Sprintf("%s/d%d/link", ws, i)))
	}
	return ws
}

func TestSecondPassAsksNothing(t *testing.T) {
	d := start(t)
	root := open(t, dirOf(d.mount(), d.save(snapshot.SaveOptions{Workspace: many(t), Thread: "t"})))
	entries := pass(t, root)
	require.Greater(t, entries, 220)
	_, err := root.Lstat("d0/nothing")
	require.ErrorIs(t, err, os.ErrNotExist)
	first := d.requests()
	require.NotZero(t, first["READ"])
	for _, op := range []string{"OPEN", "OPENDIR", "FLUSH"} {
		require.EqualValues(t, 1, first[op], "%s is asked until it was answered once", op)
	}
	require.LessOrEqual(t, first["GETATTR"], uint64(3), "reads must not ask for times")
	require.EqualValues(t, 5, first["READLINK"])

	// The kernel may drop a page when somebody needs memory, never all of them.
	for range 4 {
		before := d.requests()
		require.Equal(t, entries, pass(t, root))
		_, err = root.Lstat("d0/nothing")
		require.ErrorIs(t, err, os.ErrNotExist)
		if maps.Equal(before, d.requests()) {
			return
		}
	}
	t.Fatalf("every pass asks: %v, then %v", first, d.requests())
}

// TestForksShareWhatTheKernelKnows: a fork's files are its parent's: the same
// numbers, and the pages that were read already.
func TestForksShareWhatTheKernelKnows(t *testing.T) {
	d := start(t)
	ws := many(t)
	require.NoError(t, os.Link(ws+"/d0/e0/f0", ws+"/second name"))
	m := d.mount()
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	parent := dirOf(m, cp)
	pass(t, open(t, parent))

	fork, err := d.store.Fork(t.Context(), cp.ID, snapshot.ForkOptions{Thread: "fork"})
	require.NoError(t, err)
	before := d.requests()["READ"]
	child := dirOf(m, fork)
	pass(t, open(t, child))
	require.LessOrEqual(t, d.requests()["READ"]-before, uint64(10), "not only the hard-linked file was read again")
	for _, path := range []string{"", "/d1", "/d1/e1", "/d1/e1/f1", "/d1/link"} {
		require.Equal(t, stat(t, parent+path).Ino, stat(t, child+path).Ino, path)
	}

	// The names of a hard-linked file are one inode, in each checkpoint another:
	// who copies two checkpoints at once must not link them together.
	one, two := stat(t, parent+"/d0/e0/f0"), stat(t, parent+"/second name")
	require.EqualValues(t, 2, one.Nlink)
	require.Equal(t, one.Ino, two.Ino)
	other := stat(t, child+"/d0/e0/f0")
	require.Equal(t, other.Ino, stat(t, child+"/second name").Ino)
	require.NotEqual(t, one.Ino, other.Ino)
}

// TestDiffOfForks: diff(1) does not look into what has the same number, and so
// reads what differs only.
func TestDiffOfForks(t *testing.T) {
	d := start(t)
	ws := many(t)
	a := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.NoError(t, os.WriteFile(ws+"/d3/e3/f3", []byte("changed"), 0o644))
	b := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	m := d.mount()
	before := d.requests()
	out, err := exec.Command("diff", "-rq", "--no-dereference", dirOf(m, a), dirOf(m, b)).CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
	require.Contains(t, string(out), "/d3/e3/f3 and ")
	after := d.requests()
	require.LessOrEqual(t, after["READ"]-before["READ"], uint64(10))
	require.LessOrEqual(t, after["READDIRPLUS"]-before["READDIRPLUS"], uint64(20), "equal directories were listed")
}

// TestTwins: equal files and directories side by side are not one another.
func TestTwins(t *testing.T) {
	d := start(t)
	ws := write(t, map[string]string{"one/f": "same", "two/f": "same", "x": "same", "y": "same"})
	for _, name := range []string{"one/f", "two/f", "x", "y", "one", "two"} {
		var zero [2]unix.Timespec
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, ws+"/"+name, zero[:], 0))
	}
	files := dirOf(d.mount(), d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"}))
	numbers := map[uint64]string{}
	for _, name := range []string{"", "one", "two", "one/f", "two/f", "x", "y"} {
		st := stat(t, files+"/"+name)
		require.NotContains(t, numbers, st.Ino, name)
		numbers[st.Ino] = name
	}
	copied := t.TempDir()
	for _, args := range [][]string{
		{"sh", "-c", `cp -a "$0"/* "$1"`, files, copied},
		{"diff", "-r", files, copied},
		{"diff", "-r", ws, copied},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	require.NotEqual(t, stat(t, copied+"/x").Ino, stat(t, copied+"/y").Ino, "cp linked twins together")
	tar, err := exec.Command("tar", "-C", files, "-cvv", "-f", os.DevNull, ".").CombinedOutput()
	require.NoError(t, err)
	require.NotContains(t, string(tar), "link to")
}

// TestReadersAndSignals: a read that a signal meets is no error.
func TestReadersAndSignals(t *testing.T) {
	d := start(t)
	content := strings.Repeat("0123456789abcdef", 1<<16)
	files := dirOf(d.mount(), d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"f": content}), Thread: "t"}))
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default: // the runtime expects this one at any time
				_ = unix.Kill(os.Getpid(), unix.SIGURG)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 5 {
		f, err := os.Open(files + "/f")
		require.NoError(t, err)
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		data, err := io.ReadAll(f)
		require.NoError(t, err)
		require.Equal(t, content, string(data))
		require.NoError(t, f.Close())
	}
}
