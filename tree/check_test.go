package tree

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// lost are contents of files that are not there.
type lost map[cas.Hash]bool

func (l lost) Sound(_ context.Context, entries []Entry) (bool, error) {
	for _, e := range entries {
		if e.Kind == File && l[e.Hash] {
			return false, nil
		}
	}
	return true, nil
}

func (l lost) Fault(e Entry) error {
	if l[e.Hash] {
		return cas.ErrNotFound
	}
	return nil
}

// told is what a check says of a tree: paths with what is wrong there.
func told(t *testing.T, c *Checker, root cas.Hash) (list []string) {
	t.Helper()
	res, err := c.Check(t.Context(), root, func(path string, err error) error {
		require.True(t, errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt), err)
		list = append(list, path)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, res.Sound, len(list) == 0)
	return list
}

// TestCheckerReadsOnce: trees that share nearly everything cost what they do not
// share.
func TestCheckerReadsOnce(t *testing.T) {
	src := newMemory()
	m := model{"big": dir("", cas.Hash{})}
	for _, e := range flat(1000, 3) {
		m["big/"+e.Name] = e
	}
	for d := range 100 {
		m[fmt.Sprintf("d%d", d)] = dir("", cas.Hash{})
		m[fmt.Sprintf("d%d/f", d)] = file("", fmt.Sprint(d))
	}
	var roots []cas.Hash
	for i := range 50 {
		m[fmt.Sprintf("d%d/f", i)] = file("", fmt.Sprint("changed", i))
		roots = append(roots, m.build(t, src, "").Hash)
	}
	src.took()
	c := NewChecker(NewReader(src, 0), lost{}) // without a cache
	for _, root := range roots {
		require.Empty(t, told(t, c, root))
	}
	require.LessOrEqual(t, src.took(), len(src.objs))
	for _, root := range roots {
		require.Empty(t, told(t, c, root))
	}
	require.Zero(t, src.took())
}

// TestCheckerTellsPaths: whatever is wrong, each tree that suffers is told of it
// with its own paths, and no other.
func TestCheckerTellsPaths(t *testing.T) {
	build := func() (*memory, model, model) {
		one, d := model{}, dir("", cas.Hash{})
		one["shared"], one["shared/deep"], one["shared/deep/er"], one["top"] = d, d, d, file("", "top")
		one["shared/deep/er/f"], one["shared/deep/g"], one["shared/deep/twin"] = file("", "f"), file("", "g"), file("", "f")
		one["big"] = d
		for _, e := range flat(1500, 4) {
			one["big/"+e.Name] = e
		}
		other := model{"moved": d, "own": file("", "own")}
		for path, e := range one {
			if len(path) > 7 && path[:7] == "shared/" {
				other["moved/"+path[7:]] = e
			}
		}
		return newMemory(), one, other
	}
	for name, test := range map[string]struct {
		damage       func(t *testing.T, src *memory, root cas.Hash, bad lost)
		first, other []string
	}{
		"nothing": {damage: func(*testing.T, *memory, cas.Hash, lost) {}},
		"a file": {
			func(_ *testing.T, _ *memory, _ cas.Hash, bad lost) { bad[content("top")] = true }, []string{"top"}, nil,
		},
		"a shared file": {
			func(_ *testing.T, _ *memory, _ cas.Hash, bad lost) { bad[content("f")] = true },
			[]string{"shared/deep/er/f", "shared/deep/twin"}, []string{"moved/deep/er/f", "moved/deep/twin"},
		},
		"a shared directory, and what lies above": {
			func(t *testing.T, src *memory, root cas.Hash, bad lost) {
				lose(t, src, root, "shared/deep/er")
				bad[content("g")] = true
			},
			[]string{"shared/deep/er", "shared/deep/g"}, []string{"moved/deep/er", "moved/deep/g"},
		},
		"garbage for a directory": {
			func(t *testing.T, src *memory, root cas.Hash, _ lost) {
				e, err := NewReader(src, 0).Find(t.Context(), root, "shared/deep")
				require.NoError(t, err)
				src.objs[cas.Key{NS: cas.Trees, Hash: e.Hash}] = []byte("garbage")
			},
			[]string{"shared/deep"}, []string{"moved/deep"},
		},
		"the root": {
			func(t *testing.T, src *memory, root cas.Hash, _ lost) {
				delete(src.objs, cas.Key{NS: cas.Trees, Hash: root})
			},
			[]string{""}, nil,
		},
		"a segment, and a file in another": {
			func(t *testing.T, src *memory, root cas.Hash, bad lost) {
				r := NewReader(src, 0)
				e, err := r.Find(t.Context(), root, "big")
				require.NoError(t, err)
				d, err := r.Open(t.Context(), e.Hash)
				require.NoError(t, err)
				delete(src.objs, cas.Key{NS: cas.Trees, Hash: d.top.item(1).hash})
				bad[content("1499")] = true
			},
			[]string{"big", "big/" + named(flat(1500, 4), content("1499"))}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			src, one, other := build()
			first, second := one.build(t, src, "").Hash, other.build(t, src, "").Hash
			bad := lost{}
			test.damage(t, src, first, bad)
			for _, order := range [][]cas.Hash{{first, second}, {second, first}} {
				c := NewChecker(NewReader(src, 1<<20), bad)
				got := map[cas.Hash][]string{}
				for _, root := range order {
					got[root] = told(t, c, root)
				}
				require.Equal(t, test.first, got[first])
				require.Equal(t, test.other, got[second])
			}
		})
	}
}

// named is the entry with a content.
func named(es []Entry, h cas.Hash) string {
	for _, e := range es {
		if e.Hash == h {
			return e.Name
		}
	}
	return ""
}

// lose deletes a directory's object.
func lose(t *testing.T, src *memory, root cas.Hash, path string) {
	t.Helper()
	e, err := NewReader(src, 0).Find(t.Context(), root, path)
	require.NoError(t, err)
	delete(src.objs, cas.Key{NS: cas.Trees, Hash: e.Hash})
}

// TestCheckerKnowsWhereAPathIsTooLong: a tree that is fine by itself may lie too
// deep in another.
func TestCheckerKnowsWhereAPathIsTooLong(t *testing.T) {
	src := newMemory()
	inner, above := deep(t, src, 1500, file("f", "")), deep(t, src, 3000, file("f", ""))
	c := NewChecker(NewReader(src, 1<<20), nil)
	require.Equal(t, 1, len(told(t, c, above)))
	require.Empty(t, told(t, c, inner))
	require.Empty(t, told(t, NewChecker(NewReader(src, 1<<20), nil), inner))
}

// TestCheckerEnds: what keeps a store from being read is no finding.
func TestCheckerEnds(t *testing.T) {
	src := newMemory()
	root, _ := store(t, src, flat(1000, 5))
	down := errors.New("the daemon is gone")
	c := NewChecker(NewReader(failing{down}, 0), nil)
	_, err := c.Check(t.Context(), root.Hash, func(string, error) error { return nil })
	require.ErrorIs(t, err, down)
	stop := errors.New("stop")
	_, err = NewChecker(NewReader(newMemory(), 0), nil).Check(t.Context(), root.Hash, func(string, error) error { return stop })
	require.ErrorIs(t, err, stop)
}

// failing is a source that cannot be asked.
type failing struct{ err error }

func (f failing) Read(_ context.Context, _ cas.Key, dst []byte) ([]byte, error) { return dst, f.err }
