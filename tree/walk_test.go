package tree

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
)

// drawModel draws a tree with few names, so that two of them have much in
// common.
func drawModel(t *rapid.T, label string) model {
	m := model{}
	var fill func(path string, depth int)
	fill = func(path string, depth int) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "a b", "a.b", "b", "\xff", "B", "é"}), 0, 4, rapid.ID).Draw(t, label)
		for _, name := range names {
			p := join(path, name)
			e := Entry{
				Mode:     rapid.SampledFrom([]uint32{0o644, 0o755}).Draw(t, "mode"),
				MtimeSec: rapid.Int64Range(-1, 0).Draw(t, "mtime"),
			}
			if rapid.IntRange(0, 9).Draw(t, "more") == 0 {
				e.Owned, e.UID = true, rapid.Uint32Range(0, 1).Draw(t, "uid")
				e.XAttrs = content("set")
			}
			switch k := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case k == 0:
				e.Kind, e.Target, e.Size = Symlink, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "target"), 1
			case k < 3 && depth < 3:
				e.Kind = Dir
				fill(p, depth+1)
			default:
				e.Kind, e.Size = File, rapid.Uint64Range(0, 1).Draw(t, "size")
				e.Hash = content(strings.Repeat("x", int(e.Size)))
				e.Flags = Flags(rapid.SampledFrom([]byte{0, 0, 0, 1, 2, 3}).Draw(t, "flags"))
			}
			m[p] = e
		}
	}
	fill("", 0)
	return m
}

func TestWalkModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		m := drawModel(t, "tree")
		src := newMemory()
		root := m.build(t, src, "")
		require.Equal(t, m.totals(), root.Totals)
		r := NewReader(src, 1<<20)
		require.Equal(t, m, read(t, r, root.Hash))
		for path, want := range m {
			e, err := r.Find(ctx, root.Hash, path)
			require.NoError(t, err)
			_, want.Name = split(path)
			if want.Kind == Dir {
				want.Hash = e.Hash
			}
			require.Equal(t, want, e)
		}
		set, err := EncodeXAttrs([]XAttr{{Name: "user.x"}})
		require.NoError(t, err)
		src.objs[cas.Key{NS: cas.Trees, Hash: content("set")}] = set.Data
		require.NoError(t, Verify(ctx, r, root.Hash))
	})
}

func TestWalkSkips(t *testing.T) {
	ctx := context.Background()
	d := dir("", cas.Hash{})
	m := model{"a": d, "a/x": file("", ""), "a/y": file("", ""), "a/z": d, "b": file("", ""), "c": d, "c/x": d, "c/x/x": file("", "")}
	src := newMemory()
	root := m.build(t, src, "")
	r := NewReader(src, 1<<20)
	for at, want := range map[string]string{
		"a": "a b c c/x c/x/x", "a/y": "a a/x a/y b c c/x c/x/x", "a/z": "a a/x a/y a/z b c c/x c/x/x",
		"b": "a a/x a/y a/z b", "c/x": "a a/x a/y a/z b c c/x", "": "a a/x a/y a/z b c c/x c/x/x",
	} {
		var seen []string
		require.NoError(t, Walk(ctx, r, root.Hash, func(path string, e Entry) error {
			seen = append(seen, path)
			if path == at {
				return SkipDir
			}
			return nil
		}))
		require.Equal(t, want, strings.Join(seen, " "), "skip at %s", at)
	}
	n := 0
	require.NoError(t, Walk(ctx, r, root.Hash, func(string, Entry) error { n++; return SkipAll }))
	require.Equal(t, 1, n)
	stop := errors.New("stop")
	require.Equal(t, stop, Walk(ctx, r, root.Hash, func(path string, _ Entry) error {
		if path == "c/x/x" {
			return stop
		}
		return nil
	}))
}

// deep stores a chain of n directories, and returns the hash of the outermost.
func deep(t *testing.T, src *memory, n int, innermost Entry) cas.Hash {
	t.Helper()
	root, _ := store(t, src, []Entry{innermost})
	for range n {
		var b Builder
		require.NoError(t, b.Add(dir("d", root.Hash), root.Totals))
		var objs []cas.Object
		var err error
		root, objs, err = b.Finish()
		require.NoError(t, err)
		src.put(objs...)
	}
	return root.Hash
}

func TestDepthIsBounded(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	r := NewReader(src, 1<<20)
	just := deep(t, src, 2047, file("f", ""))
	other := deep(t, src, 2047, file("f", "other"))
	n := 0
	require.NoError(t, Walk(ctx, r, just, func(path string, _ Entry) error { n = max(n, len(path)); return CheckPath(path) }))
	require.Equal(t, MaxPath, n)
	require.NoError(t, Verify(ctx, r, just))
	require.NoError(t, Diff(ctx, r, just, other, DiffOptions{}, func(c Change) error { return CheckPath(c.Path) }))

	tooDeep := deep(t, src, 2047, file("ff", ""))
	bottomless := deep(t, src, 50_000, file("f", ""))
	for _, h := range []cas.Hash{tooDeep, bottomless} {
		requireCorrupt(t, Walk(ctx, r, h, func(string, Entry) error { return nil }))
		requireCorrupt(t, Verify(ctx, r, h))
		requireCorrupt(t, Diff(ctx, r, just, h, DiffOptions{}, func(Change) error { return nil }))
		requireCorrupt(t, Diff(ctx, r, h, just, DiffOptions{}, func(Change) error { return nil }))
	}
}
