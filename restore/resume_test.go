package restore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// unfinished makes the target look as after a restore that was killed when all was
// written; change may alter the marker.
func unfinished(t *testing.T, m *memory, src Source, target string, change func(*marker)) {
	t.Helper()
	require.NoError(t, os.MkdirAll(target, 0o755))
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	mark := newMarker(src, Options{Checkpoint: "cp", Files: only(t, nil)})
	if change != nil {
		change(&mark)
	}
	leave(t, m, target, mark)
}

// leave puts the marker of a restore that has ended by a kill into a directory.
func leave(t *testing.T, m *memory, dir string, mark marker) {
	t.Helper()
	root, err := openTarget(dir)
	require.NoError(t, err)
	defer root.close()
	l, err := root.mark(mark, dir)
	require.NoError(t, err)
	l.release()
	clear(m.read)
}

// unfinishedStage does the same for a missing target, and returns the stage.
func unfinishedStage(t *testing.T, m *memory, src Source, target string) string {
	t.Helper()
	stage := filepath.Join(filepath.Dir(target), stageName(filepath.Base(target)))
	require.NoError(t, os.Mkdir(stage, 0o700))
	_, err := m.restore(t, src, filepath.Join(stage, stageTree))
	require.NoError(t, err)
	mark := newMarker(src, Options{Checkpoint: "cp", Files: only(t, nil)})
	mark.Stage = filepath.Base(stage)
	leave(t, m, stage, mark)
	return stage
}

// eachUnfinished runs a test on a killed restore into an existing directory and on one
// into a missing one; tree is where its files are.
func eachUnfinished(t *testing.T, fn func(t *testing.T, m *memory, src Source, target, tree string)) {
	t.Helper()
	t.Run("existing", func(t *testing.T) {
		m := newMemory()
		src := everything(t, m)
		target := filepath.Join(scratch(t), "target")
		unfinished(t, m, src, target, nil)
		fn(t, m, src, target, target)
	})
	t.Run("missing", func(t *testing.T) {
		m := newMemory()
		src := everything(t, m)
		target := filepath.Join(scratch(t), "target")
		stage := unfinishedStage(t, m, src, target)
		fn(t, m, src, target, filepath.Join(stage, stageTree))
	})
}

// uninterrupted is what a restore makes that nothing happens to.
func uninterrupted(t *testing.T, m *memory, src Source) (Result, map[string]seen) {
	t.Helper()
	dir := filepath.Join(scratch(t), "reference")
	res, err := m.restore(t, src, dir)
	require.NoError(t, err)
	return res, portrait(t, dir)
}

// contents are the objects of a file.
func (m *memory) contents(t *testing.T, src Source, path string) (keys []cas.Key) {
	t.Helper()
	e, err := tree.NewReader(m, 0).Find(t.Context(), src.Root, path)
	require.NoError(t, err)
	chunks, err := cas.Chunks(t.Context(), m, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
	require.NoError(t, err)
	for _, c := range chunks {
		if !c.Zeros() {
			keys = append(keys, cas.Key{NS: cas.Files, Hash: c.Hash})
		}
	}
	return keys
}

// TestResumeWritesWhatIsMissing: what is complete is neither read from the store nor
// written, what is not is made anew, and the result is as it should be.
func TestResumeWritesWhatIsMissing(t *testing.T) {
	eachUnfinished(t, func(t *testing.T, m *memory, src Source, target, in string) {
		res, want := uninterrupted(t, m, src)
		at := func(name string) string { return filepath.Join(in, name) }
		incomplete := []string{"large", "three/g", "acl", "exe"}
		var needed []cas.Key
		for _, name := range incomplete {
			needed = append(needed, m.contents(t, src, name)...)
		}
		require.NoError(t, errors.Join(
			os.Truncate(at("large"), 1<<20), os.Chtimes(at("large"), time.Time{}, time.Unix(-5, 1)),
			os.WriteFile(at("three/g"), []byte("?"), 0o644), // its time is not the saved one
			os.Remove(at("acl")),
			os.Link(at("exe"), filepath.Join(filepath.Dir(target), "theirs")),
			os.Remove(at("dangling")), os.Symlink("elsewhere", at("dangling")),
			os.Remove(at("dacl/x/one")), os.Remove(at("one")), os.WriteFile(at("one"), []byte("linked"), 0o600),
			os.Chmod(at("sparse"), 0o777), os.Chmod(at("a"), 0o700), os.Chtimes(at("three"), time.Time{}, time.Unix(5, 5)),
			unix.Setxattr(at("sparse"), "user.any", []byte("more"), 0), unix.Setxattr(at("a"), "user.any", []byte("more"), 0),
		))
		before := stat(t, at("sparse"))
		theirs := stat(t, at("exe"))
		clear(m.read)
		resumed := 0
		got, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Resuming: func() { resumed++ }})
		require.NoError(t, err)
		require.Equal(t, 1, resumed)
		require.Equal(t, res, got)
		require.Equal(t, want, portrait(t, target))
		require.Equal(t, before.Ino, stat(t, filepath.Join(target, "sparse")).Ino)
		require.NotEqual(t, theirs.Ino, stat(t, filepath.Join(target, "exe")).Ino)
		require.Equal(t, theirs.Mtim, stat(t, filepath.Join(filepath.Dir(target), "theirs")).Mtim)
		for key, n := range m.read {
			list := key.Hash == entry(t, m, src, "large").Hash || key.Hash == entry(t, m, src, "sparse").Hash
			if key.NS == cas.Files && !list {
				require.Contains(t, needed, key)
				require.Equal(t, 1, n)
			}
		}
		for _, key := range needed {
			require.Equal(t, 1, m.read[key], "%s", key)
		}
	})
}

func entry(t *testing.T, m *memory, src Source, path string) tree.Entry {
	t.Helper()
	e, err := tree.NewReader(m, 0).Find(t.Context(), src.Root, path)
	require.NoError(t, err)
	return e
}

// TestPowerLoss: after it a file may have its size and its time and not its content.
// Within one boot of the machine that cannot be, and nobody looks.
func TestPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		boot     string
		repaired bool
	}{"other boot": {"another", true}, "boot not known": {"", true}, "same boot": {disk.BootID(), false}} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			src := everything(t, m)
			_, want := uninterrupted(t, m, src)
			target := filepath.Join(scratch(t), "target")
			unfinished(t, m, src, target, func(m *marker) { m.Boot = c.boot })
			lost := []string{"large", "three/g", "sparse", "zero"}
			for name, off := range map[string]int64{"large": 2 << 20, "three/g": 0, "sparse": 1 << 20} {
				path := filepath.Join(target, name)
				st := stat(t, path)
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				require.NoError(t, err)
				data := []byte{0}
				if name == "sparse" {
					data = []byte("x")
				}
				_, err = f.WriteAt(data, off)
				require.NoError(t, errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Unix(st.Mtim.Unix()))))
			}
			_, err := m.restore(t, src, target)
			require.NoError(t, err)
			got := portrait(t, target)
			if !c.repaired {
				require.NotEqual(t, want, got)
				for _, name := range lost {
					got[name] = want[name]
				}
			}
			require.Equal(t, want, got)
			read := map[cas.Key]bool{}
			for _, name := range lost {
				for _, key := range m.contents(t, src, name) {
					read[key] = true
				}
			}
			for _, path := range []string{"a/b/c", "acl", "exe", "one"} { // compared, not read
				require.Zero(t, m.read[m.contents(t, src, path)[0]], path)
			}
			require.Equal(t, c.repaired, m.read[m.contents(t, src, "three/g")[0]] > 0)
		})
	}
}

// TestTimeOfWriting: a saved time that is not before the restore's beginning may be
// that of a file that was being written, and proves nothing.
func TestTimeOfWriting(t *testing.T) {
	m := newMemory()
	e := m.file(t, 0o644, "content")
	e.MtimeSec = time.Now().Unix() + 1000
	src := m.source(t, dir{"f": e, "g": "other"})
	target := filepath.Join(scratch(t), "target")
	unfinished(t, m, src, target, nil)
	path := filepath.Join(target, "f")
	require.NoError(t, errors.Join(os.WriteFile(path, []byte("CONTENT"), 0o644), os.Chtimes(path, time.Time{}, time.Unix(e.MtimeSec, 0))))
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"f": "content", "g": "other"}, list(t, target))
}

// TestOtherRestore: another one does not go on in the target of one that was killed. A
// stage that was left is nobody's, and goes.
func TestOtherRestore(t *testing.T) {
	other := func(t *testing.T, m *memory) map[string]func() (Source, Options) {
		return map[string]func() (Source, Options){
			"other tree": func() (Source, Options) { return m.source(t, dir{"f": "1"}), Options{} },
			"other mode": func() (Source, Options) { s := everything(t, m); s.Stat.Mode = 0o700; return s, Options{} },
			"no links":   func() (Source, Options) { s := everything(t, m); s.Links = cas.Blob{}; return s, Options{} },
			"a part":     func() (Source, Options) { return everything(t, m), Options{Files: only(t, []string{"/a"})} },
		}
	}
	for name := range other(t, newMemory()) {
		t.Run(name, func(t *testing.T) {
			eachUnfinished(t, func(t *testing.T, m *memory, _ Source, target, in string) {
				src, opt := other(t, m)[name]()
				before := portrait(t, in)
				res, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, opt)
				if in != target {
					require.NoError(t, err)
					fresh := filepath.Join(scratch(t), "fresh")
					want, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, fresh, opt)
					require.NoError(t, err)
					require.Equal(t, want, res)
					require.Equal(t, portrait(t, fresh), portrait(t, target))
					require.Len(t, names(t, filepath.Dir(target)), 1)
					return
				}
				require.ErrorIs(t, err, ErrUnfinished)
				var e *UnfinishedError
				require.ErrorAs(t, err, &e)
				require.Equal(t, UnfinishedError{Dir: target, Checkpoint: "cp"}, *e)
				require.Equal(t, e, Unfinished(target))
				require.Equal(t, before, portrait(t, target))
			})
		})
	}
}

// names are what is in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestForeignEntries: what the killed restore cannot have made is a reason to refuse
// before anything is written.
func TestForeignEntries(t *testing.T) {
	place := func(name string, as func(path string) error) func(t *testing.T, in string) {
		return func(t *testing.T, in string) {
			path := filepath.Join(in, name)
			require.NoError(t, errors.Join(RemoveAll(path), as(path)))
		}
	}
	file := func(p string) error { return os.WriteFile(p, []byte("mine"), 0o644) }
	sub := func(p string) error { return os.Mkdir(p, 0o755) }
	for name, c := range map[string]struct {
		plant func(t *testing.T, in string)
		say   string
	}{
		"file":                  {place("new", file), "new, which the checkpoint does not have"},
		"deep in a closed one":  {place("ro/deeper/new", file), "ro/deeper/new, which the checkpoint"},
		"empty directory":       {place("a/empty/new", sub), "a/empty/new, which the checkpoint"},
		"file for a directory":  {place("a/b", file), "a/b, which is a directory"},
		"link for a directory":  {place("three", func(p string) error { return os.Symlink("a", p) }), "three, which is a directory"},
		"directory for a file":  {place("large", sub), "large, which is a file"},
		"link for a file":       {place("exe", func(p string) error { return os.Symlink("zero", p) }), "exe, which is a file"},
		"file for a link":       {place("l", file), "l, which is a symlink"},
		"fifo":                  {place("zero", func(p string) error { return unix.Mkfifo(p, 0o600) }), "zero, which is a file"},
		"the first of several":  {place("b", func(p string) error { return errors.Join(file(p), file(p+"b"), file(p+"c")) }), "b, which the checkpoint"},
		"above comes first":     {place("a/0", func(p string) error { return errors.Join(file(p), file(filepath.Join(filepath.Dir(p), "../z"))) }), "z, which the checkpoint"},
		"somebody else's file":  {place("three/g", func(p string) error { return errors.Join(file(p), os.Lchown(p, 12345, 0)) }), "three/g, which is somebody else's"},
		"somebody else's link":  {place("l", func(p string) error { return errors.Join(os.Symlink("a/b", p), os.Lchown(p, 12345, 0)) }), "l, which is somebody else's"},
		"somebody else's empty": {place("a/empty", func(p string) error { return errors.Join(sub(p), os.Lchown(p, 12345, 0)) }), "a/empty, which is somebody else's"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "somebody") {
				needRoot(t)
			}
			eachUnfinished(t, func(t *testing.T, m *memory, src Source, target, in string) {
				c.plant(t, in)
				require.NoError(t, os.Chmod(filepath.Join(in, "ro/deeper"), 0o700)) // a look into it would do that
				before := portrait(t, filepath.Dir(target))
				_, err := m.restore(t, src, target)
				require.ErrorIs(t, err, ErrNotEmpty)
				require.ErrorContains(t, err, c.say)
				require.Equal(t, before, portrait(t, filepath.Dir(target)))
			})
		})
	}
}

// TestPartLeft: of a part of a tree, what the patterns leave out is foreign.
func TestPartLeft(t *testing.T) {
	m := newMemory()
	src := everything(t, m)
	files := func() *policy.Files { return only(t, []string{"/ro/f", "/three"}) }
	target := filepath.Join(scratch(t), "target")
	require.NoError(t, os.Mkdir(target, 0o755))
	again := func() error {
		_, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Files: files()})
		return err
	}
	require.NoError(t, again())
	want := portrait(t, target)
	mark := func() {
		root, err := openTarget(target)
		require.NoError(t, err)
		defer root.close()
		l, err := root.mark(newMarker(src, Options{Checkpoint: "cp", Files: files()}), target)
		require.NoError(t, err)
		l.release()
	}
	mark()
	require.NoError(t, os.Remove(filepath.Join(target, "three/h")))
	require.NoError(t, again())
	require.Equal(t, want, portrait(t, target))
	mark()
	require.NoError(t, os.WriteFile(filepath.Join(target, "ro/l"), nil, 0o644))
	require.ErrorContains(t, again(), "ro/l, which the checkpoint does not have")
	require.FileExists(t, filepath.Join(target, capture.Marker))
	require.True(t, Unfinished(target).Patterns)
	_, err := os.Lstat(filepath.Join(target, "ro/l"))
	require.False(t, errors.Is(err, fs.ErrNotExist))
}
