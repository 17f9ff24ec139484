package restore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// patched stores a directory with bytes of its object replaced, as only somebody
// who does not use our encoder makes it.
func (m *memory) patched(t *testing.T, d dir, old, new string) Source {
	t.Helper()
	src := m.source(t, d)
	data := m.objects[cas.Key{NS: cas.Trees, Hash: src.Root}]
	require.Equal(t, 1, bytes.Count(data, []byte(old)))
	require.Len(t, new, len(old))
	obj := cas.NewObject(cas.Trees, cas.Data, bytes.Replace(data, []byte(old), []byte(new), 1))
	require.NoError(t, m.Put(t.Context(), obj))
	src.Root = obj.Key.Hash
	return src
}

// TestHostileNames: a tree that would lead out of the target is damage, found
// before anything is written.
func TestHostileNames(t *testing.T) {
	tests := map[string]struct {
		tree     dir
		old, new string
	}{
		"parent":            {dir{"XX": "x"}, "XX", ".."},
		"itself":            {dir{"a": "1", "X": "x"}, "\x01X", "\x01."},
		"absolute":          {dir{"XXXX": "x"}, "XXXX", "/etc"},
		"with a slash":      {dir{"aXb": "x"}, "aXb", "a/b"},
		"up and out":        {dir{"XX_pwned": "x"}, "XX_pwned", "../pwned"},
		"NUL":               {dir{"aXb": "x"}, "aXb", "a\x00b"},
		"parent as dir":     {dir{"XX": dir{"pwned": "x"}}, "XX", ".."},
		"link and then dir": {dir{"aa": symlink("/tmp"), "ab": dir{"pwned": "x"}}, "ab", "aa"},
		"file twice":        {dir{"aa": "1", "ab": "2"}, "ab", "aa"},
		"wrong order":       {dir{"aa": "1", "ab": "2"}, "aa", "ac"},
		"NUL in a target":   {dir{"l": symlink("aXb")}, "aXb", "a\x00b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, target string) {
				m := newMemory()
				_, err := m.restore(t, m.patched(t, test.tree, test.old, test.new), target)
				require.ErrorIs(t, err, cas.ErrCorrupt)
				require.ErrorIs(t, err, tree.ErrInvalid)
			})
		})
	}
}

// TestLinksLeadWhereTheyWill: a symlink is text; nothing is written through it.
func TestLinksLeadWhereTheyWill(t *testing.T) {
	m := newMemory()
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	require.NoError(t, os.Mkdir(outside, 0o755))
	target := filepath.Join(top, "target")
	src := m.source(t, dir{"a": symlink(outside), "b": symlink("../outside/new"), "f": "x", "g": "x"})
	src.Links = m.links(t, []string{"a/f", "f"}, []string{"b", "g"})
	_, err := m.restore(t, src, target)
	require.ErrorIs(t, err, cas.ErrCorrupt, "a symlink among the hard links")

	src.Links = m.links(t, []string{"a/f", "f"}, []string{"a/g", "g"})
	_, err = m.restore(t, src, target)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "-> " + outside, "b": "-> ../outside/new", "f": "x", "g": "x"}, list(t, target))
	require.Empty(t, list(t, outside))
}

// TestHardLinkGroups: names that are not there are of no account, names that
// cannot be one file are damage.
func TestHardLinkGroups(t *testing.T) {
	m := newMemory()
	files := dir{"a": "1", "b": "1", "c": "1", "other": "2", "exe": m.file(t, 0o755, "1"), "d": dir{"e": "1", "f": "1"}, "e1": dir{}, "e2": dir{}}
	sameFile := func(t *testing.T, target string, paths ...string) bool {
		t.Helper()
		for _, p := range paths[1:] {
			if stat(t, filepath.Join(target, p)).Ino != stat(t, filepath.Join(target, paths[0])).Ino {
				return false
			}
		}
		return true
	}
	target := filepath.Join(t.TempDir(), "target")
	src := m.source(t, files)
	src.Links = m.links(t, []string{"a", "d/e", "d/f"}, []string{"b", "missing"}, []string{"c", "other/below", "x/y/z"})
	res, err := m.restore(t, src, target)
	require.NoError(t, err)
	require.Equal(t, int64(7), res.Files)
	require.True(t, sameFile(t, target, "a", "d/e", "d/f"))
	require.Equal(t, uint64(3), uint64(stat(t, filepath.Join(target, "a")).Nlink))
	require.Equal(t, uint64(1), uint64(stat(t, filepath.Join(target, "b")).Nlink))
	require.Equal(t, int64(1e9), stat(t, filepath.Join(target, "d")).Mtim.Sec, "linking is not the last word on a directory's time")

	for name, group := range map[string][]string{
		"directory": {"a", "d"}, "two directories": {"e1", "e2"}, "other content": {"b", "other"}, "other mode": {"c", "exe"},
	} {
		t.Run(name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, target string) {
				src := m.source(t, files)
				src.Links = m.links(t, group)
				_, err := m.restore(t, src, target)
				require.ErrorIs(t, err, cas.ErrCorrupt)
				require.ErrorContains(t, err, "hard link")
			})
		})
	}
	t.Run("no list at all", func(t *testing.T) {
		eachTarget(t, func(t *testing.T, target string) {
			src := m.source(t, files)
			obj := cas.NewObject(cas.Trees, cas.Data, []byte("no list of hard links"))
			require.NoError(t, m.Put(t.Context(), obj))
			src.Links = cas.Blob{Hash: obj.Key.Hash, Size: int64(len(obj.Data))}
			_, err := m.restore(t, src, target)
			require.ErrorIs(t, err, cas.ErrCorrupt)
		})
	})
}

// TestDeepTree: directories below one another, up to the longest path and one
// step further.
func TestDeepTree(t *testing.T) {
	m := newMemory()
	nest := func(length int) (Source, string) {
		step := strings.Repeat("d", 200)
		path := ""
		for len(path)+len(step)+1 < length {
			path += step + "/"
		}
		leaf := strings.Repeat("f", length-len(path))
		e := m.sub(t, 0o755, dir{leaf: "deep"})
		for range strings.Count(path, "/") - 1 {
			e = m.sub(t, 0o755, dir{step: e})
		}
		return m.source(t, dir{step: e}), path + leaf
	}
	src, path := nest(tree.MaxPath)
	target := filepath.Join(t.TempDir(), "target")
	res, err := m.restore(t, src, target)
	require.NoError(t, err)
	require.Equal(t, int64(4), res.Bytes)
	require.Equal(t, int64(strings.Count(path, "/")), res.Dirs)
	t.Chdir(target)
	for _, name := range strings.Split(filepath.Dir(path), "/") { // the whole path is too long for one call
		require.NoError(t, os.Chdir(name))
	}
	data, err := os.ReadFile(filepath.Base(path))
	require.NoError(t, err)
	require.Equal(t, "deep", string(data))

	eachTarget(t, func(t *testing.T, target string) {
		src, path := nest(tree.MaxPath + 1)
		_, err := m.restore(t, src, target)
		require.ErrorIs(t, err, cas.ErrCorrupt)
		require.ErrorContains(t, err, path)
	})
}

// TestTreeThatUnfolds: a few objects can stand for more directories than there
// are atoms; whoever restores them can stop it.
func TestTreeThatUnfolds(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		m := newMemory()
		e := m.sub(t, 0o755, dir{"f": "x"})
		for range 60 {
			e = m.sub(t, 0o755, dir{"a": e, "b": e})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		src := m.source(t, dir{"d": e})
		_, err := Tree(ctx, m, tree.NewReader(m, 1<<20), src, target, Options{Files: only(t, nil, "nothing")})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if free, ok := freeFiles(target, false); ok && free < 1<<60 {
			_, err = m.restore(t, src, target)
			require.ErrorIs(t, err, cas.ErrNoSpace)
			require.ErrorContains(t, err, "files and directories")
		}
	})
}

// TestRoom: names of one file take one, and who asks for a part of the tree is not
// asked about all of it.
func TestRoom(t *testing.T) {
	top := filepath.Join(t.TempDir(), "small")
	needRoot(t)
	require.NoError(t, os.MkdirAll(top, 0o755))
	require.NoError(t, unix.Mount("tmpfs", top, "tmpfs", 0, "nr_inodes=20"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(top, unix.MNT_DETACH)) })
	m := newMemory()
	d, group := dir{}, []string{}
	for i := range 30 {
		name := fmt.Sprintf("f%02d", i)
		d[name] = "same"
		group = append(group, name)
	}
	src := m.source(t, d)
	target := filepath.Join(top, "a", "b")
	_, err := m.restore(t, src, target)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.ErrorContains(t, err, "has 30 files and directories")
	require.Empty(t, list(t, top))
	_, err = Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Files: only(t, []string{"f01"})})
	require.NoError(t, err)
	// A tmpfs, unlike others, counts names: so only the question is asked.
	links, err := readLinks(t.Context(), m, m.links(t, group))
	require.NoError(t, err)
	require.NoError(t, checkRoom(t.Context(), tree.NewReader(m, 1<<20), src, links, target, false))
}

// TestPlantedLinks: while the restore goes on, somebody puts a symlink where an
// entry is, or will be. Nothing is written behind it. One worker does all here: of
// each directory the files by name, then the directories. By the first read of a
// content hook, hook/sub and hook/sub/deeper have been made.
func TestPlantedLinks(t *testing.T) {
	for _, existing := range []bool{false, true} {
		for _, victim := range []string{"hook", "hook/sub", "hook/sub/deeper", "hook/sub/deeper/u", "hook/t", "later", "later/y", "later/last"} {
			t.Run(fmt.Sprintf("%s existing %v", victim, existing), func(t *testing.T) {
				m := newMemory()
				top := t.TempDir()
				outside := filepath.Join(top, "outside")
				require.NoError(t, os.Mkdir(outside, 0o711))
				before := stat(t, outside)
				target := filepath.Join(top, "target")
				src := m.source(t, dir{
					"hook":  dir{"sub": dir{"deeper": dir{"f": "the first content that is read", "u": "2"}}, "t": dir{"s": "3"}},
					"later": dir{"last": "6", "x": "4", "y": dir{"z": "5"}},
				})
				plant := onceFunc(func() {
					root := target
					if !existing {
						stages, err := filepath.Glob(filepath.Join(top, ".snapfs-restore-*"))
						require.NoError(t, err)
						require.Len(t, stages, 1)
						root = filepath.Join(stages[0], stageTree)
					}
					path := filepath.Join(root, victim)
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
					_ = os.Rename(path, filepath.Join(top, "moved"))
					to := outside
					if base := filepath.Base(victim); base == "u" || base == "last" { // a file to be
						to = filepath.Join(outside, "made")
					}
					require.NoError(t, os.Symlink(to, path))
				})
				m.onRead = func(key cas.Key) error {
					if key.NS == cas.Files {
						plant()
					}
					return nil
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				w := newWriter(ctx, cancel, m, tree.NewReader(m, 1<<20), &linkGroups{}, 1)
				w.again = newRepeated(nil)
				opt := Options{Files: only(t, nil)}
				m1 := newMarker(src, opt)
				var err error
				if existing {
					require.NoError(t, os.Mkdir(target, 0o755))
					root, _, _, inspected := inspect(target, m1, opt)
					require.NoError(t, inspected)
					_, err = w.inPlace(root, nil, m1, src, target, opt)
					root.close()
				} else {
					_, err = w.staged(m1, src, target, opt)
				}
				require.Error(t, err)
				require.Empty(t, list(t, outside))
				after := stat(t, outside)
				require.Equal(t, []any{before.Mode, before.Mtim}, []any{after.Mode, after.Mtim})
				if existing {
					require.NoFileExists(t, filepath.Join(target, "hook/sub/deeper/f"))
				} else {
					require.NoDirExists(t, target)
				}
			})
		}
	}
}

// TestTargetMovedAway: a failed restore cleans up in the directory that it
// filled, and not in what its path leads to by then.
func TestTargetMovedAway(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	top := t.TempDir()
	target, moved, precious := filepath.Join(top, "target"), filepath.Join(top, "moved"), filepath.Join(top, "precious")
	require.NoError(t, os.Mkdir(target, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(precious, "a", "b"), 0o755))
	swap := onceFunc(func() {
		require.NoError(t, os.Rename(target, moved))
		require.NoError(t, os.Symlink(precious, target))
	})
	m.onRead = func(key cas.Key) error {
		if key.NS == cas.Files {
			swap()
			return cas.ErrCorrupt
		}
		return nil
	}
	_, err := m.restore(t, src, target)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Empty(t, list(t, moved))
	require.Equal(t, map[string]string{"a": "/", "a/b": "/"}, list(t, precious))
}
