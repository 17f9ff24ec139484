package restore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/tree"
)

// scratch is a temporary directory that nobody needs to be durable: these tests sync
// often.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "snapfs-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, RemoveAll(dir)) })
	return dir
}

// everything is a tree with all that a restore can make, the same in each process.
func everything(t *testing.T, m *memory) Source {
	t.Helper()
	user := tree.XAttr{Name: "user.any", Value: []byte("a\x00\xff")}
	access := tree.XAttr{Name: tree.ACLAccess, Value: acl(2, 7, 4, 6)}
	def := tree.XAttr{Name: tree.ACLDefault, Value: acl(2, 5, 4, 7)}
	with := func(e tree.Entry, set ...tree.XAttr) tree.Entry {
		e.XAttrs = m.xattrs(t, set...)
		return e
	}
	entry := func(r io.Reader) tree.Entry {
		b := m.blob(t, r)
		return tree.Entry{Kind: tree.File, Mode: 0o640, Hash: b.Hash, Size: uint64(b.Size), MtimeSec: -5, MtimeNsec: 1}
	}
	noise := make([]byte, 5<<19)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	src := m.source(t, dir{
		"a":    dir{"b": dir{"c": "deep", "twice": "the same"}, "empty": dir{}, "twice": "the same"},
		"acl":  with(m.file(t, 0o660, "x"), user, access),
		"dacl": with(m.sub(t, 0o770, dir{"in": "inherits nothing", "x": dir{"one": "linked"}}), user, def),
		"exe":  m.file(t, 0o755, "#!/bin/sh"),
		"l":    symlink("a/b"), "dangling": symlink("/nowhere/at/all"),
		"large": entry(bytes.NewReader(noise)), "sparse": entry(zeroThen(3<<20, "end")), "none": m.file(t, 0, "closed"), "zero": "",
		"one":   "linked",
		"ro":    m.sub(t, 0o555, dir{"deeper": m.sub(t, 0, dir{"one": "linked", "f": "behind"}), "f": with(m.file(t, 0o444, "y"), user), "l": symlink("f")}),
		"three": dir{"g": "1", "h": "2", "i": dir{"j": "3"}},
	})
	src.Stat.Mode, src.Stat.XAttrs = 0o555, m.xattrs(t, user)
	src.Links = m.links(t, []string{"dacl/x/one", "one", "ro/deeper/one"})
	return src
}

// seen is all that must come back of an entry.
type seen struct {
	Mode    uint32
	Mtime   unix.Timespec
	Content string // or a link's target
	XAttrs  string
	Holes   bool
	First   string // the first name of the same file
}

// portrait describes what is in a directory, which is "." itself. The caller has to be
// able to look into it, or is given the right to and loses it again.
func portrait(t *testing.T, top string) map[string]seen {
	t.Helper()
	all, first := map[string]seen{}, map[uint64]string{}
	open := func(path string, st *unix.Stat_t, mode uint32) func() {
		if st.Mode&mode == mode || os.Geteuid() == 0 {
			return func() {}
		}
		require.NoError(t, os.Chmod(path, fs.FileMode(mode)))
		return func() { require.NoError(t, unix.Chmod(path, st.Mode&0o7777)) }
	}
	var walk func(rel string)
	walk = func(rel string) {
		path := filepath.Join(top, rel)
		st := stat(t, path)
		s := seen{Mode: st.Mode, Mtime: st.Mtim}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			defer open(path, &st, 0o700)()
			entries, err := os.ReadDir(path)
			require.NoError(t, err)
			for _, e := range entries {
				walk(filepath.Join(rel, e.Name()))
			}
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			require.NoError(t, err)
			s.Content = target
		case unix.S_IFREG:
			defer open(path, &st, 0o400)()
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			s.Content, s.Holes = cas.Data.Sum(data).String(), st.Blocks*512 < st.Size
			if first[st.Ino] == "" {
				first[st.Ino] = rel
			}
			s.First = first[st.Ino]
		}
		for _, name := range []string{"user.any", tree.ACLAccess, tree.ACLDefault} {
			buf := make([]byte, 1<<10)
			if n, err := unix.Lgetxattr(path, name, buf); err == nil {
				s.XAttrs += fmt.Sprintf("%s=%x ", name, buf[:n])
			}
		}
		all[rel] = s
	}
	walk(".")
	return all
}

// The environment of a child that restores and may be killed.
const (
	childTarget = "SNAPFS_TEST_TARGET"
	childStep   = "SNAPFS_TEST_STEP" // before which it is killed
	childMode   = "SNAPFS_TEST_MODE" // "mirror", "secrets" for one of secretive, or nothing
)

// TestKilledChild is the other process of the tests below.
func TestKilledChild(t *testing.T) {
	target := os.Getenv(childTarget)
	if target == "" {
		t.Skip("started by other tests")
	}
	kill, err := strconv.Atoi(os.Getenv(childStep))
	require.NoError(t, err)
	m := newMemory()
	src := everything(t, m)
	var steps atomic.Int64
	mode := New
	if os.Getenv(childMode) != "" {
		mode = Mirror
	}
	if os.Getenv(childMode) == "secrets" {
		src = secretive(t, m)
	}
	_, err = Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Mode: mode, step: func() {
		if int(steps.Add(1)) == kill {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // it is on its way
		}
	}})
	if errors.Is(err, ErrNotEmpty) { // the one before it was killed when all was done
		return
	}
	require.NoError(t, err)
}

// killedAt restores in another process, which is killed before the given step; false:
// there are not as many.
func killedAt(t *testing.T, target string, step int, env ...string) bool {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilledChild$")
	cmd.Env = append(os.Environ(), childTarget+"="+target, childStep+"="+strconv.Itoa(step), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status := exit.Sys().(syscall.WaitStatus)
	require.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, "%s", out)
	return true
}

// asUser runs the test once more as an ordinary user, if it is root's.
func asUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv("SNAPFS_TEST_USER") != "" {
		return
	}
	test := t.Name()
	t.Run("user", func(t *testing.T) {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$")
		cmd.Env = append(os.Environ(), "SNAPFS_TEST_USER=1", "HOME=/nonexistent")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// TestKilled kills a restore before each of its steps, and some once more while they
// resume. What is left never looks whole, cannot be saved, and becomes what an
// uninterrupted restore makes.
func TestKilled(t *testing.T) {
	asUser(t)
	m := newMemory()
	src := everything(t, m)
	reference := filepath.Join(scratch(t), "reference")
	whole, err := m.restore(t, src, reference)
	require.NoError(t, err)
	require.Empty(t, whole.Incomplete)
	want := portrait(t, reference)
	require.Len(t, want, 31)
	for _, existing := range []bool{false, true} {
		t.Run(fmt.Sprintf("existing %v", existing), func(t *testing.T) {
			// Each of the four ways has steps of its own.
			stride := soak.Rounds(11, 5)
			step, resumed := 1, 0
			if existing {
				step++
			}
			if os.Geteuid() != 0 {
				step += 2
			}
			for ; ; step += stride {
				top := scratch(t)
				target := filepath.Join(top, "target")
				if existing {
					require.NoError(t, os.Mkdir(target, 0o755))
				}
				if !killedAt(t, target, step) {
					break
				}
				afterKill(t, target, want, existing)
				if step%2 == 0 {
					killedAt(t, target, step/2+1)
					afterKill(t, target, want, existing)
				}
				on := false
				res, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Resuming: func() { on = true }})
				if errors.Is(err, ErrNotEmpty) { // it came to its end
					continue
				}
				require.NoError(t, err, "step %d", step)
				if on {
					resumed++
				}
				require.Equal(t, whole, res)
				require.Equal(t, want, portrait(t, target), "step %d", step)
				entries, err := os.ReadDir(top)
				require.NoError(t, err)
				require.Len(t, entries, 1, "no staging directory is left")
			}
			require.Greater(t, step, 90, "it was killed at every place")
			require.Greater(t, resumed, step/stride*3/4)
		})
	}
}

// afterKill looks at what a killed restore left at the target's place.
func afterKill(t *testing.T, target string, want map[string]seen, existing bool) {
	t.Helper()
	entries, err := os.ReadDir(target)
	if !existing && errors.Is(err, fs.ErrNotExist) || existing && err == nil && len(entries) == 0 {
		return // nothing was made
	}
	require.NoError(t, err)
	if _, err := os.Lstat(filepath.Join(target, capture.Marker)); err == nil {
		m := newMemory()
		_, err := capture.Tree(t.Context(), target, m, capture.Options{Files: only(t, nil)})
		require.ErrorIs(t, err, capture.ErrUnfinished)
		return
	}
	got := portrait(t, target)
	root := got["."]
	if existing {
		// Between the marker's end and the end of all the time of the directory itself is
		// not set.
		root.Mtime = want["."].Mtime
	}
	if existing || os.Geteuid() != 0 {
		root.Mode &^= 0o200 // nor is its owner's right taken that was needed
	}
	got["."] = root
	require.Equal(t, want, got)
}

// older is a live directory that a mirror of everything finds much to do in.
func older(t *testing.T, m *memory) Source {
	t.Helper()
	src := m.source(t, dir{
		"a":    m.sub(t, 0o555, dir{"b": "was a file", "empty": symlink("/"), "twice": "not the same", "gone": m.sub(t, 0o555, dir{"x": "y"})}),
		"acl":  m.file(t, 0o660, "x"),
		"dacl": m.sub(t, 0o755, dir{"in": dir{"was": dir{"a": "directory"}}, "x": dir{"one": "linked"}}),
		"exe":  m.file(t, 0o644, "#!/bin/sh"), "none": m.file(t, 0o644, "closed"),
		"l": dir{"was": "a directory"}, "dangling": symlink("/elsewhere"),
		"one": "linked", "zero": "", "extra": dir{"some": "more", "deep": dir{"er": symlink("x")}},
		"ro": m.sub(t, 0o500, dir{"deeper": m.sub(t, 0o755, dir{"one": "linked", "f": "before"}), "f": m.file(t, 0o400, "y")}),
	})
	src.Links = m.links(t, []string{"dacl/x/one", "one"})
	return src
}

// TestKilledMirror kills a mirror into a live directory before each of its steps. What
// is left is as it was, or known as unfinished, and becomes what an uninterrupted one
// makes.
func TestKilledMirror(t *testing.T) {
	asUser(t)
	m := newMemory()
	src, before := everything(t, m), older(t, m)
	reference, untouched := filepath.Join(scratch(t), "reference"), filepath.Join(scratch(t), "untouched")
	for dir, src := range map[string]Source{reference: src, untouched: before} {
		_, err := m.restore(t, src, dir)
		require.NoError(t, err)
	}
	want, was := portrait(t, reference), portrait(t, untouched)
	opt := Options{Mode: Mirror}
	stride := soak.Rounds(12, 1)
	step, resumed := 1, 0
	if os.Geteuid() != 0 {
		step += stride / 2
	}
	for ; ; step += stride {
		target := filepath.Join(scratch(t), "target")
		_, err := m.restore(t, before, target)
		require.NoError(t, err)
		if !killedAt(t, target, step, childMode+"=mirror") {
			require.Equal(t, want, portrait(t, target))
			break
		}
		_, err = os.Lstat(filepath.Join(target, capture.Marker))
		if errors.Is(err, fs.ErrNotExist) {
			is := portrait(t, target)
			if root := is["."]; os.Geteuid() != 0 { // a right of its owner's may be there that was needed
				root.Mode &^= 0o200
				root.Mode |= was["."].Mode & 0o200
				is["."] = root
			}
			if is["zero"] == was["zero"] && is["exe"] == was["exe"] {
				require.Equal(t, was, is, "step %d", step)
			} else {
				afterKill(t, target, want, true)
			}
		} else {
			_, err := capture.Tree(t.Context(), target, newMemory(), capture.Options{Files: only(t, nil)})
			require.ErrorIs(t, err, capture.ErrUnfinished)
			resumed++
			if step%2 == 0 {
				killedAt(t, target, step/2+1, childMode+"=mirror")
			}
		}
		_, err = Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, opt)
		require.NoError(t, err, "step %d", step)
		require.Equal(t, want, portrait(t, target), "step %d", step)
	}
	t.Logf("%d steps, killed before one in %d", step, stride)
	require.Greater(t, step, 60, "it was killed at every place")
	require.Greater(t, resumed, step/stride*3/4)
}
