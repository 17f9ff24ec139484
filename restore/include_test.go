package restore

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// only compiles includes and excludes.
func only(t *testing.T, include []string, exclude ...string) *policy.Files {
	t.Helper()
	opt := policy.FilesOptions{NoDefaults: true}
	for _, p := range include {
		opt.Include = append(opt.Include, policy.Rule{Pattern: p, Source: "--include"})
	}
	for _, p := range exclude {
		opt.Exclude = append(opt.Exclude, policy.Rule{Pattern: p, Source: "--exclude"})
	}
	files, err := policy.CompileFiles(opt)
	require.NoError(t, err)
	return files
}

// TestOneFile: its parents get their saved mode and time, and nothing else is
// written, read or needed.
func TestOneFile(t *testing.T) {
	m := newMemory()
	inner := m.sub(t, 0o510, dir{"wanted": "yes", "other": "no", "sub": dir{"x": "no"}})
	inner.MtimeSec, inner.MtimeNsec = 77, 5
	gone := m.sub(t, 0o755, dir{"x": "not in the store"})
	src := m.source(t, dir{"a": dir{"b": inner, "gone": gone}, "gone": gone, "wanted": "another of that name"})
	delete(m.objects, cas.Key{NS: cas.Trees, Hash: gone.Hash})
	clear(m.read)
	target := filepath.Join(t.TempDir(), "target")
	t.Cleanup(func() { _ = RemoveAll(target) })
	r := tree.NewReader(m, 1<<20)
	res, err := Tree(t.Context(), m, r, src, target, Options{Files: only(t, []string{"/a/b/wanted"})})
	require.NoError(t, err)
	require.Equal(t, Result{Files: 1, Dirs: 2, Bytes: 3, Created: 3}, res)
	require.Equal(t, map[string]string{"a": "/", "a/b": "/", "a/b/wanted": "yes"}, list(t, target))
	st := stat(t, filepath.Join(target, "a/b"))
	require.Equal(t, []any{uint32(0o510), int64(77), int64(5)}, []any{st.Mode & 0o7777, st.Mtim.Sec, st.Mtim.Nsec})
	require.Equal(t, int64(1e9), stat(t, filepath.Join(target, "a")).Mtim.Sec)
	require.Len(t, m.read, 4, "three directories and the file")
}

func TestIncludeAndExclude(t *testing.T) {
	tests := map[string]struct {
		files   *policy.Files
		want    map[string]string
		skipped int64
	}{
		"subtree":         {only(t, []string{"/a"}), map[string]string{"a": "/", "a/b": "/", "a/b/c": "1", "a/empty": "/", "a/x.log": "2"}, 0},
		"by name":         {only(t, []string{"*.log"}), map[string]string{"a": "/", "a/x.log": "2", "y.log": "3"}, 0},
		"without some":    {only(t, nil, "*.log", "b/"), map[string]string{"a": "/", "a/empty": "/", "f": "4"}, 3},
		"exclude is last": {only(t, []string{"/a"}, "c", "empty"), map[string]string{"a": "/", "a/b": "/", "a/x.log": "2"}, 2},
		"nothing there":   {only(t, []string{"/nowhere"}), map[string]string{}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			src := m.source(t, dir{"a": dir{"b": dir{"c": "1"}, "empty": dir{}, "x.log": "2"}, "y.log": "3", "f": "4"})
			src.Links = m.links(t, []string{"a/b/c", "gone"})
			target := filepath.Join(t.TempDir(), "target")
			res, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Files: test.files})
			require.NoError(t, err)
			require.Equal(t, test.want, list(t, target))
			require.Equal(t, test.skipped, res.Skipped)
		})
	}
}

// TestHardLinksOfAPart: when the first name is left out, the others are one file
// all the same.
func TestHardLinksOfAPart(t *testing.T) {
	m := newMemory()
	src := m.source(t, dir{"a": "x", "b": "x", "c": "x", "d": "x"})
	src.Links = m.links(t, []string{"a", "b", "c"})
	target := filepath.Join(t.TempDir(), "target")
	_, err := Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, target, Options{Files: only(t, nil, "a")})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "x", "c": "x", "d": "x"}, list(t, target))
	require.Equal(t, stat(t, filepath.Join(target, "b")).Ino, stat(t, filepath.Join(target, "c")).Ino)
	require.NotEqual(t, stat(t, filepath.Join(target, "b")).Ino, stat(t, filepath.Join(target, "d")).Ino)
}
