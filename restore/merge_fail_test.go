package restore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// killedMirror makes a live directory in which a mirror of everything was killed after
// it had changed something.
func killedMirror(t *testing.T, m *memory) (target string, want map[string]seen) {
	t.Helper()
	reference := filepath.Join(scratch(t), "reference")
	_, err := m.restore(t, everything(t, m), reference)
	require.NoError(t, err)
	want = portrait(t, reference)
	for step := 60; ; step++ {
		target = filepath.Join(scratch(t), "target")
		_, err := m.restore(t, older(t, m), target)
		require.NoError(t, err)
		require.True(t, killedAt(t, target, step, childMode+"=mirror"), "killed too late")
		if data, err := os.ReadFile(filepath.Join(target, "exe")); err == nil && stat(t, filepath.Join(target, "exe")).Mode&0o111 != 0 && len(data) > 0 {
			require.FileExists(t, filepath.Join(target, capture.Marker))
			return target, want
		}
	}
}

// TestMirrorGoesOnOrIsMarked: what a killed mirror has begun is not taken for whole when
// the next one cannot go on with it either.
func TestMirrorGoesOnOrIsMarked(t *testing.T) {
	m := newMemory()
	target, want := killedMirror(t, m)
	src := everything(t, m)
	r := tree.NewReader(m, 1<<20)
	opt := Options{Mode: Mirror}

	// A read of any file's content fails while what is new is prepared.
	require.NoError(t, os.Remove(filepath.Join(target, "sparse")))
	m.onRead = func(key cas.Key) error {
		if key.NS == cas.Files {
			return cas.ErrCorrupt
		}
		return nil
	}
	_, err := Tree(t.Context(), m, r, src, target, opt)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	var partial *PartialError
	require.ErrorAs(t, err, &partial)
	m.onRead = nil
	require.FileExists(t, filepath.Join(target, capture.Marker))

	// Another restore does not get in, unless it is forced; then that is the one to go on.
	for _, other := range []Options{{}, {Mode: Overlay}, {Force: true}} {
		_, err = Tree(t.Context(), m, r, src, target, other)
		require.ErrorIs(t, err, ErrUnfinished)
	}
	var unfinished *UnfinishedError
	require.ErrorAs(t, err, &unfinished)
	require.Equal(t, "mirror", unfinished.Merge)

	on := 0
	opt.Resuming = func() { on++ }
	_, err = Tree(t.Context(), m, r, src, target, opt)
	require.NoError(t, err)
	require.Equal(t, 1, on)
	require.Equal(t, want, portrait(t, target))
}

// TestMirrorInstead: a forced restore takes the place of an unfinished one, and a kill
// of it is known as one of the new.
func TestMirrorInstead(t *testing.T) {
	m := newMemory()
	target, _ := killedMirror(t, m)
	src := older(t, m)
	reference := filepath.Join(scratch(t), "reference")
	_, err := m.restore(t, src, reference)
	require.NoError(t, err)
	r := tree.NewReader(m, 1<<20)
	m.onRead = func(key cas.Key) error {
		if key.NS == cas.Files {
			return cas.ErrNotFound
		}
		return nil
	}
	_, err = Tree(t.Context(), m, r, src, target, Options{Mode: Mirror, Force: true, Checkpoint: "the other"})
	require.ErrorIs(t, err, cas.ErrNotFound)
	m.onRead = nil
	require.Equal(t, "the other", Unfinished(target).Checkpoint)
	_, err = Tree(t.Context(), m, r, everything(t, m), target, Options{Mode: Mirror})
	require.ErrorIs(t, err, ErrUnfinished)
	_, err = Tree(t.Context(), m, r, src, target, Options{Mode: Mirror})
	require.NoError(t, err)
	require.Equal(t, portrait(t, reference), portrait(t, target))
}

// TestMergeFailsBefore: whatever fails while what is new is written leaves the target as
// it was, to the times.
func TestMergeFailsBefore(t *testing.T) {
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	src := everything(t, m)
	var damaged cas.Key // that cannot be read
	run := func(t *testing.T, target string, opt Options, want error) {
		t.Helper()
		_, err := m.restore(t, older(t, m), filepath.Join(target, "in"))
		require.NoError(t, err)
		target = filepath.Join(target, "in")
		was := portrait(t, target)
		inodes := identities(t, target)
		if damaged != (cas.Key{}) {
			m.onRead = func(k cas.Key) error {
				if k == damaged {
					return cas.ErrCorrupt
				}
				return nil
			}
			defer func() { m.onRead = nil }()
		}
		_, err = Tree(t.Context(), m, r, src, target, opt)
		require.ErrorIs(t, err, want)
		require.Equal(t, was, portrait(t, target))
		is := identities(t, target)
		delete(is, target)
		delete(inodes, target) // of the directory itself the time was put back
		require.Equal(t, inodes, is)
	}
	t.Run("damaged", func(t *testing.T) {
		damaged = cas.Key{NS: cas.Files, Hash: m.file(t, 0o644, "behind").Hash}
		defer func() { damaged = cas.Key{} }()
		run(t, scratch(t), Options{Mode: Overlay}, cas.ErrCorrupt)
	})
	t.Run("full", func(t *testing.T) {
		top := filepath.Join(t.TempDir(), "small")
		mountTmpfs(t, top, "2m")
		run(t, top, Options{Mode: Mirror}, cas.ErrNoSpace)
	})
	t.Run("no files left", func(t *testing.T) {
		top := filepath.Join(t.TempDir(), "few")
		needRoot(t)
		require.NoError(t, os.Mkdir(top, 0o755))
		require.NoError(t, unix.Mount("tmpfs", top, "tmpfs", 0, "nr_inodes=45"))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(top, unix.MNT_DETACH)) })
		run(t, top, Options{Mode: Mirror}, cas.ErrNoSpace)
	})
	t.Run("excluded", func(t *testing.T) {
		run(t, scratch(t), Options{Mode: Mirror, Strict: true, Files: only(t, nil, "one")}, ErrExcluded)
	})
}

// TestMergeOnOverlayfs: in a container the workspace often lies in a lower layer, whose
// directories cannot be renamed.
func TestMergeOnOverlayfs(t *testing.T) {
	needRoot(t)
	m := newMemory()
	src := everything(t, m)
	top := scratch(t)
	at := func(name string) string { return filepath.Join(top, name) }
	_, err := m.restore(t, older(t, m), at("lower/live"))
	require.NoError(t, err)
	_, err = m.restore(t, src, at("reference"))
	require.NoError(t, err)
	for _, dir := range []string{"upper", "work", "merged"} {
		require.NoError(t, os.Mkdir(at(dir), 0o755))
	}
	options := "redirect_dir=off,xino=off,lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, options); err != nil {
		t.Skipf("no overlayfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at("merged"), unix.MNT_DETACH)) })
	target := at("merged/live")
	_, err = Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Mode: Mirror})
	require.NoError(t, err)
	want, is := portrait(t, at("reference")), portrait(t, target)
	for p, s := range is { // a copy up fills holes
		s.Holes = want[p].Holes
		is[p] = s
	}
	require.Equal(t, want, is)
}

// TestMirrorAroundMounts: what is mounted in the target stays, also when it is another
// part of the same file system, and is never written to.
func TestMirrorAroundMounts(t *testing.T) {
	needRoot(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	top := scratch(t)
	at := func(name string) string { return filepath.Join(top, name) }
	_, err := m.restore(t, m.source(t, dir{"d": dir{"x": "1"}, "f": "2", "in": dir{"extra": dir{}, "file": "3"}, "gone": "4"}), at("live"))
	require.NoError(t, err)
	_, err = m.restore(t, m.source(t, dir{"precious": "5"}), at("other"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("single"), []byte("6"), 0o644))
	for from, to := range map[string]string{"other": "live/in/extra", "single": "live/in/file"} {
		require.NoError(t, unix.Mount(at(from), at(to), "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at(to), unix.MNT_DETACH)) })
	}
	src := m.source(t, dir{"d": dir{"x": "1"}, "f": "new", "h": "7"})
	opt := Options{Mode: Mirror, Force: true}
	_, err = Tree(t.Context(), m, r, src, at("live"), opt)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"d": "/", "d/x": "1", "f": "new", "h": "7", "in": "/", "in/extra": "/", "in/extra/precious": "5", "in/file": "6",
	}, list(t, at("live")))
	for name, d := range map[string]dir{
		"into it":          {"in": dir{"extra": dir{"new": "x"}}},
		"over a file":      {"in": dir{"file": "x"}},
		"in place of it":   {"in": dir{"extra": "x"}},
		"in place of more": {"in": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			before := identities(t, top)
			_, err := Tree(t.Context(), m, r, m.source(t, d), at("live"), opt)
			require.ErrorIs(t, err, ErrInTheWay)
			var paths *PathsError
			require.ErrorAs(t, err, &paths)
			require.True(t, strings.HasPrefix(paths.Paths[0].Path, "in/"), paths.Paths[0].Path)
			require.Equal(t, before, identities(t, top))
		})
	}
}

// TestImmutable: what nobody can change is seen before anything is.
func TestImmutable(t *testing.T) {
	needRoot(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	target := filepath.Join(t.TempDir(), "target")
	_, err := m.restore(t, m.source(t, dir{"a": "1", "b": dir{"fixed": "2"}, "c": "3", "extra": "4"}), target)
	require.NoError(t, err)
	const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	fix := func(name string, on bool) error {
		f, err := os.Open(filepath.Join(target, name))
		if err != nil {
			return err
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		if flags &^= immutable; on {
			flags |= immutable
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	src := m.source(t, dir{"a": "new", "b": dir{"fixed": "new"}, "c": "new"})
	for _, name := range []string{"b/fixed", "b", "."} {
		if err := fix(name, true); err != nil {
			t.Skipf("no immutable files here: %v", err)
		}
		t.Cleanup(func() { _ = fix(name, false) })
		before := identities(t, target)
		_, err = Tree(t.Context(), m, r, src, target, Options{Mode: Mirror, Force: true})
		require.ErrorIs(t, err, ErrInTheWay)
		require.ErrorContains(t, err, name+": it is immutable")
		require.Equal(t, before, identities(t, target))
		require.NoError(t, fix(name, false))
	}
	require.NoError(t, fix("extra", true))
	t.Cleanup(func() { _ = fix("extra", false) })
	_, err = Tree(t.Context(), m, r, src, target, Options{Mode: Mirror})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "new", "b": "/", "b/fixed": "new", "c": "new", "extra": "4"}, list(t, target))
}

// TestTwoMirrors: a second restore into a live directory is refused as soon as the first
// has begun to plan, and nothing of what it would do is mixed in.
func TestTwoMirrors(t *testing.T) {
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	target := filepath.Join(scratch(t), "target")
	_, err := m.restore(t, older(t, m), target)
	require.NoError(t, err)
	first := true
	_, err = Tree(t.Context(), m, r, everything(t, m), target, Options{Mode: Mirror, step: func() {
		if !first {
			return
		}
		first = false // before it has written anything
		for _, mode := range []Mode{Overlay, Mirror} {
			_, err := Tree(t.Context(), m, r, older(t, m), target, Options{Mode: mode, Force: true})
			var unfinished *UnfinishedError
			require.ErrorAs(t, err, &unfinished)
			require.True(t, unfinished.Living)
		}
		_, err := Tree(t.Context(), m, r, older(t, m), target, Options{Mode: Mirror, Force: true, DryRun: true})
		require.NoError(t, err, "who only looks may")
	}})
	require.NoError(t, err)
	require.False(t, first)
}

// TestPartOfAGroup: names of one file of which some are not asked for stay as they are.
func TestPartOfAGroup(t *testing.T) {
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	target := filepath.Join(scratch(t), "target")
	src := m.source(t, dir{"a": "same", "b": "same", "c": "same", "d": dir{"e": "same"}})
	src.Links = m.links(t, []string{"a", "b", "c", "d/e"})
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	for _, unlinked := range []string{"", "c", "a"} {
		if unlinked != "" {
			require.NoError(t, os.Remove(filepath.Join(target, unlinked)))
			require.NoError(t, os.WriteFile(filepath.Join(target, unlinked), []byte("other"), 0o644))
		}
		opt := Options{Mode: Overlay, Files: only(t, nil, "a")}
		_, err = Tree(t.Context(), m, r, src, target, opt)
		require.NoError(t, err)
		before := identities(t, target)
		res, err := Tree(t.Context(), m, r, src, target, opt)
		require.NoError(t, err)
		require.Zero(t, res.Replaced+res.Created, "after %q", unlinked)
		require.Equal(t, before, identities(t, target))
		require.Equal(t, stat(t, filepath.Join(target, "b")).Ino, stat(t, filepath.Join(target, "d/e")).Ino)
	}
}

// TestMountedMeanwhile: what somebody mounts in a directory that is being deleted is not
// emptied with it.
func TestMountedMeanwhile(t *testing.T) {
	needRoot(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	top := scratch(t)
	target, other := filepath.Join(top, "target"), filepath.Join(top, "other")
	_, err := m.restore(t, m.source(t, dir{"gone": dir{"mnt": dir{}, "x": "1"}, "keep": "2"}), target)
	require.NoError(t, err)
	_, err = m.restore(t, m.source(t, dir{"precious": dir{"p": "3"}}), other)
	require.NoError(t, err)
	src := m.source(t, dir{"keep": "new", "z": "4"})
	at := ""
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	opt := Options{Mode: Mirror, Force: true, step: func() {
		if found, _ := filepath.Glob(target + "/.snapfs-restore-*/trash/*/mnt"); at == "" && len(found) == 1 {
			at = found[0]
			require.NoError(t, unix.Mount(other, at, "", unix.MS_BIND, ""))
		}
	}}
	_, err = Tree(t.Context(), m, r, src, target, opt)
	require.ErrorIs(t, err, ErrMountBelow)
	require.FileExists(t, filepath.Join(other, "precious", "p"))
	require.FileExists(t, filepath.Join(target, capture.Marker))
	_, err = Tree(t.Context(), m, r, src, target, opt)
	require.ErrorIs(t, err, ErrMountBelow, "still")
	require.FileExists(t, filepath.Join(other, "precious", "p"))
	require.NoError(t, unix.Unmount(at, 0))
	_, err = Tree(t.Context(), m, r, src, target, opt)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"keep": "new", "z": "4"}, list(t, target))
}

// TestUnreadable: a file whose mode keeps its own owner out is compared all the same.
func TestUnreadable(t *testing.T) {
	asUser(t)
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	target := filepath.Join(scratch(t), "target")
	src := m.source(t, dir{"closed": m.file(t, 0, "x"), "write": m.file(t, 0o200, "y"), "d": m.sub(t, 0, dir{"in": m.file(t, 0, "z")})})
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	want := portrait(t, target)
	res, err := Tree(t.Context(), m, r, src, target, Options{Mode: Mirror})
	require.NoError(t, err)
	require.Equal(t, Result{Kept: 4}, res)
	require.Equal(t, want, portrait(t, target))
}

// TestSticky: in a sticky directory of somebody else's, what is not the user's stays, or
// is in the way, and that is known before anything is written.
func TestSticky(t *testing.T) {
	target := os.Getenv("SNAPFS_TEST_STICKY")
	if target == "" {
		needRoot(t)
		top := scratch(t)
		require.NoError(t, os.Chmod(top, 0o755))
		target = filepath.Join(top, "target")
		m := newMemory()
		_, err := m.restore(t, m.source(t, dir{"d": m.sub(t, 0o777, dir{"f": "root's"}), "extra": m.sub(t, 0o777, dir{"r": "root's"})}), target)
		require.NoError(t, err)
		for _, sticky := range []string{"d", "extra"} {
			require.NoError(t, unix.Chmod(filepath.Join(target, sticky), 0o1777))
			mine := filepath.Join(target, sticky, "u")
			require.NoError(t, os.WriteFile(mine, []byte("user's"), 0o644))
			require.NoError(t, os.Chown(mine, 1000, 1000))
		}
		require.NoError(t, os.Chown(target, 1000, 1000))
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestSticky$")
		cmd.Env = append(os.Environ(), "SNAPFS_TEST_STICKY="+target, "HOME=/nonexistent")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	m := newMemory()
	r := tree.NewReader(m, 1<<20)
	before := identities(t, target)
	_, err := Tree(t.Context(), m, r, m.source(t, dir{"d": m.sub(t, 0o1777, dir{"f": "new", "u": "user's"})}), target, Options{Mode: Overlay, Force: true})
	require.ErrorIs(t, err, ErrInTheWay)
	require.ErrorContains(t, err, "d/f: it is somebody else's")
	require.Equal(t, before, identities(t, target))
	_, err = Tree(t.Context(), m, r, m.source(t, dir{"d": m.sub(t, 0o1777, dir{"new": "user's"})}), target, Options{Mode: Mirror, Force: true})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"d": "/", "d/f": "root's", "d/new": "user's", "extra": "/", "extra/r": "root's"}, list(t, target))
}
