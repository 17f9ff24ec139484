package tree

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
)

func TestRenames(t *testing.T) {
	d := dir("", cas.Hash{})
	f := func(data string) Entry { return file("", data) }
	for name, c := range map[string]struct {
		a, b  model
		paths []string
		want  []string
	}{
		"a file":          {a: model{"old": f("1")}, b: model{"new": f("1")}, want: []string{"R old -> new"}},
		"metadata differ": {a: model{"old": f("1")}, b: model{"new": {Kind: File, Mode: 0o755, Size: 1, Hash: content("1")}}, want: []string{"R old -> new"}},
		"a copy is none":  {a: model{"old": f("1")}, b: model{"old": f("1"), "new": f("1")}, want: []string{"A new"}},
		"empty files":     {a: model{"old": f("")}, b: model{"new": f("")}, want: []string{"A new", "D old"}},
		"symlinks":        {a: model{"old": symlink("", "t")}, b: model{"new": symlink("", "t")}, want: []string{"A new", "D old"}},
		"one for two":     {a: model{"z": f("1")}, b: model{"x": f("1"), "y": f("1")}, want: []string{"R z -> x", "A y"}},
		"two for one":     {a: model{"y": f("1"), "z": f("1")}, b: model{"x": f("1")}, want: []string{"R y -> x", "D z"}},
		"the same name": {
			a:    model{"p": d, "p/one": f("1"), "p/two": f("1")},
			b:    model{"q": d, "q/a": f("1"), "q/two": f("1")},
			want: []string{"D p", "A q", "R p/one -> q/a", "R p/two -> q/two"},
		},
		"a directory": {
			a:    model{"p": d, "p/q": d, "p/q/f": f("1"), "p/empty": f("")},
			b:    model{"new": d, "new/p": d, "new/p/q": d, "new/p/q/f": f("1"), "new/p/empty": f("")},
			want: []string{"A new", "R p -> new/p"},
		},
		"a directory that changed": {
			a:    model{"p": d, "p/q": d, "p/q/f": f("1"), "p/g": f("1"), "p/h": f("2")},
			b:    model{"r": d, "r/q": d, "r/q/f": f("1"), "r/g": f("1"), "r/h": f("3")},
			want: []string{"D p", "D p/h", "A r", "R p/g -> r/g", "A r/h", "R p/q -> r/q"},
		},
		"the larger directory first": {
			a:    model{"x": d, "x/f": f("1"), "x/sub": d, "x/sub/g": f("2")},
			b:    model{"a": d, "a/sub": d, "a/sub/g": f("2"), "b": d, "b/f": f("1"), "b/sub": d, "b/sub/g": f("2")},
			want: []string{"A a", "A a/sub", "A a/sub/g", "R x -> b"},
		},
		"empty directories": {a: model{"p": d}, b: model{"q": d}, want: []string{"D p", "A q"}},
		"another kind":      {a: model{"p": f("1"), "q": f("2")}, b: model{"p": d, "p/p": f("1"), "r": f("2")}, want: []string{"T p", "A p/p", "R q -> r"}},
		"out of a directory that became a file": {
			a: model{"p": d, "p/x": f("1")}, b: model{"p": f("2"), "x": f("1")}, want: []string{"T p", "R p/x -> x"},
		},
		"the old path alone":  {a: model{"old": f("1")}, b: model{"new": f("1")}, paths: []string{"old"}, want: []string{"D old"}},
		"the new path alone":  {a: model{"old": f("1")}, b: model{"new": f("1")}, paths: []string{"new"}, want: []string{"A new"}},
		"both paths":          {a: model{"old": f("1"), "o": f("1")}, b: model{"new": f("1")}, paths: []string{"new", "old"}, want: []string{"R old -> new"}},
		"a path in both":      {a: model{"p": d, "p/q": d, "p/q/f": f("1")}, b: model{"r": d, "r/q": d, "r/q/f": f("1")}, paths: []string{"p/q", "r/q"}, want: []string{"R p/q -> r/q"}},
		"not what lies above": {a: model{"p": d, "p/f": f("1")}, b: model{"r": d, "r/f": f("1")}, paths: []string{"p/f", "r"}, want: []string{"A r", "R p/f -> r/f"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := newMemory()
			ra, rb := c.a.build(t, src, ""), c.b.build(t, src, "")
			opt := DiffOptions{Renames: true, Paths: c.paths, TooMany: func() { t.Error("too many") }}
			require.ElementsMatch(t, c.want, diffLines(t, NewReader(src, 1<<20), ra.Hash, rb.Hash, opt))
		})
	}
}

// replay makes of m what changes say.
func (m model) replay(changes []Change) model {
	n, moved := maps.Clone(m), model{}
	for _, c := range changes {
		if c.Op != Renamed {
			continue
		}
		for path, e := range m {
			if Under(path, c.From) {
				moved[c.Path+path[len(c.From):]] = e
				delete(n, path)
			}
		}
	}
	for _, c := range changes {
		if c.Op == Deleted {
			delete(n, c.Path)
		}
	}
	maps.Copy(n, moved)
	for _, c := range changes {
		if c.New != nil {
			e := *c.New
			e.Name = ""
			if e.Kind == Dir {
				e.Hash = cas.Hash{}
			}
			n[c.Path] = e
		}
	}
	return n
}

// TestRenamesModel: what is told of two trees makes the second of the first, in order of
// the walk, and tells no path twice.
func TestRenamesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawModel(t, "old"), drawModel(t, "new")
		for range rapid.IntRange(0, 4).Draw(t, "moves") { // from anywhere in a to anywhere in b
			if len(a) == 0 {
				break
			}
			from := rapid.SampledFrom(a.paths()).Draw(t, "from")
			var dirs []string
			for _, path := range append(b.paths(), "") {
				if e := b[path]; path == "" || e.Kind == Dir {
					dirs = append(dirs, path)
				}
			}
			to := join(rapid.SampledFrom(dirs).Draw(t, "to"), rapid.SampledFrom([]string{"a", "m", "n"}).Draw(t, "name"))
			maps.DeleteFunc(b, func(path string, _ Entry) bool { return Under(path, to) })
			for path, e := range a {
				if Under(path, from) {
					b[to+path[len(from):]] = e
				}
			}
		}
		src := newMemory()
		ra, rb := a.build(t, src, ""), b.build(t, src, "")
		r := NewReader(src, 1<<20)
		var changes []Change
		opt := DiffOptions{Owner: true, Renames: true}
		require.NoError(t, Diff(context.Background(), r, ra.Hash, rb.Hash, opt, func(c Change) error {
			changes = append(changes, c)
			return nil
		}))
		timeless := func(m model) model {
			for path, e := range m {
				if e.Kind == Dir {
					e.MtimeSec = 0
					m[path] = e
				}
			}
			return m
		}
		require.Equal(t, timeless(maps.Clone(b)), timeless(a.replay(changes)))

		// The same as without renames, but for what these stand for.
		plain := map[string]bool{}
		for _, line := range diffLines(t, r, ra.Hash, rb.Hash, DiffOptions{Owner: true}) {
			plain[line] = true
		}
		last := ""
		order := b.paths()
		at := func(path string) int {
			for i, p := range order {
				if p == path {
					return i
				}
			}
			return -1
		}
		for _, c := range changes {
			if c.New != nil {
				require.True(t, last == "" || at(last) < at(c.Path), "%s, %s", last, c.Path)
				last = c.Path
			}
			if c.Op != Renamed {
				require.True(t, plain[c.Op.String()+" "+c.Path])
				delete(plain, c.Op.String()+" "+c.Path)
				continue
			}
			require.Equal(t, c.Old.Hash, c.New.Hash)
			for line := range plain {
				if Under(line[2:], c.From) && line[0] == 'D' || Under(line[2:], c.Path) && line[0] == 'A' {
					delete(plain, line)
				}
			}
		}
		require.Empty(t, plain)
		require.Equal(t, diffLines(t, r, ra.Hash, rb.Hash, opt), diffLines(t, NewReader(src, 0), ra.Hash, rb.Hash, opt))
	})
}

// TestRenamesMany: beyond the limit only whole directories are found, and what is not
// looked at is not read.
func TestRenamesMany(t *testing.T) {
	d := dir("", cas.Hash{})
	a, b := model{"p": d, "lone": file("", "lone"), "many": d}, model{"new": d, "new/p": d, "lonely": file("", "lone"), "more": d}
	for i := range 3000 {
		name := fmt.Sprintf("/%05d", i)
		a["p"+name], b["new/p"+name] = file("", "1"), file("", "1")
		a["many"+name], b["more"+name] = file("", "a"+name), file("", "b"+name)
	}
	src := newMemory()
	ra, rb := a.build(t, src, ""), b.build(t, src, "")
	for _, c := range []struct {
		left    int
		tooMany bool
	}{{6010, false}, {3000, true}} {
		tooMany := false
		r := NewReader(src, 0)
		d := differ{ctx: t.Context(), r: r, opt: DiffOptions{TooMany: func() { tooMany = true }}}
		src.took()
		require.NoError(t, d.findRenames(ra.Hash, rb.Hash, c.left))
		require.Equal(t, c.tooMany, tooMany)
		require.Contains(t, d.moved.to, "new/p")
		require.Equal(t, !c.tooMany, d.moved.to["lonely"] != nil)
		require.Less(t, src.took(), 400)
		lines := 0
		d.emit = func(ch Change) error {
			lines++
			require.False(t, strings.HasPrefix(ch.Path, "p/") || strings.HasPrefix(ch.Path, "new/p/"))
			return nil
		}
		require.NoError(t, d.dirs("", ra.Hash, rb.Hash))
		require.Equal(t, map[bool]int{false: 6005, true: 6006}[c.tooMany], lines)
	}
}

// expecting is a source that is told what comes.
type expecting struct {
	*memory
	expected map[cas.Key]bool
	calls    int
	surprise int // objects that were read and not expected
}

func (e *expecting) Expect(_ context.Context, keys []cas.Key) {
	e.calls++
	for _, k := range keys {
		e.expected[k] = true
	}
}

func (e *expecting) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	if !e.expected[key] {
		e.surprise++
	}
	return e.memory.Read(ctx, key, dst)
}

// TestDiffExpects: the source hears of what both sides have in as many calls as there
// are levels.
func TestDiffExpects(t *testing.T) {
	a := model{}
	for i := range 500 { // a root that is cut
		p := fmt.Sprintf("d%03d", i)
		a[p], a[p+"/sub"] = dir("", cas.Hash{}), dir("", cas.Hash{})
		a[p+"/sub/f"] = file("", p)
	}
	b := maps.Clone(a)
	for i := range 20 {
		b[fmt.Sprintf("d%03d/sub/f", 25*i)] = file("", "changed")
	}
	src := &expecting{memory: newMemory(), expected: map[cas.Key]bool{}}
	ra, rb := a.build(t, src.memory, ""), b.build(t, src.memory, "")
	lines := diffLines(t, NewReader(src, 1<<20), ra.Hash, rb.Hash, DiffOptions{Renames: true})
	require.Len(t, lines, 20)
	require.Zero(t, src.surprise)
	require.LessOrEqual(t, src.calls, 4)

	// More than a wave.
	src = &expecting{memory: newMemory(), expected: map[cas.Key]bool{}}
	wide := func(data string) cas.Hash {
		below, _ := store(t, src.memory, []Entry{file("f", data)})
		var b Builder
		for i := range waveSize + 10 {
			require.NoError(t, b.Add(dir(fmt.Sprintf("d%05d", i), below.Hash), below.Totals))
		}
		root, objs, err := b.Finish()
		require.NoError(t, err)
		src.put(objs...)
		return root.Hash
	}
	require.Len(t, diffLines(t, NewReader(src, 64<<20), wide("1"), wide("2"), DiffOptions{Renames: true}), waveSize+10)
}
