package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
)

// diffLines runs Diff and returns each change as a letter and a path.
func diffLines(t tb, r *Reader, a, b cas.Hash, opt DiffOptions) []string {
	t.Helper()
	lines := []string{}
	require.NoError(t, Diff(context.Background(), r, a, b, opt, func(c Change) error {
		line := c.Op.String() + " " + c.Path
		if c.From != "" {
			line = c.Op.String() + " " + c.From + " -> " + c.Path
		}
		lines = append(lines, line)
		require.Equal(t, c.Op == Added, c.Old == nil)
		require.Equal(t, c.Op == Deleted, c.New == nil)
		require.Equal(t, c.Op == Renamed, c.From != "")
		_, name := split(c.Path)
		require.True(t, c.New == nil || c.New.Name == name)
		if c.From != "" {
			_, name = split(c.From)
		}
		require.True(t, c.Old == nil || c.Old.Name == name)
		return nil
	}))
	return lines
}

// diff says what Diff has to say, slowly.
func (m model) diff(n model, opt DiffOptions) []string {
	lines := []string{}
	all := maps.Clone(m)
	maps.Copy(all, n)
	explained := map[string]bool{}
	for path := range all {
		old, inOld := m[path]
		new, inNew := n[path]
		if !inOld || !inNew || old.Kind != new.Kind {
			parent, _ := split(path)
			explained[parent] = true
		}
	}
	for _, path := range all.paths() {
		old, inOld := m[path]
		new, inNew := n[path]
		if !opt.Owner {
			new.Owned, new.UID, new.GID = old.Owned, old.UID, old.GID
		}
		timeless := new
		timeless.MtimeSec, timeless.MtimeNsec = old.MtimeSec, old.MtimeNsec
		op := ""
		switch {
		case !inOld:
			op = "A"
		case !inNew:
			op = "D"
		case old.Kind != new.Kind:
			op = "T"
		case old == new:
		case old.Kind == Dir:
			if timeless != old || !explained[path] {
				op = "m"
			}
		case old.Size != new.Size || old.Hash != new.Hash || old.Target != new.Target:
			op = "M"
		default:
			op = "m"
		}
		if op != "" {
			lines = append(lines, op+" "+path)
		}
	}
	return lines
}

func TestDiffModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawModel(t, "old"), drawModel(t, "new")
		if rapid.Bool().Draw(t, "alike") {
			b = maps.Clone(a)
			for _, path := range a.paths() {
				e := b[path]
				switch rapid.IntRange(0, 12).Draw(t, "change") {
				case 0:
					e.MtimeSec++
				case 1:
					e.Mode ^= 1
				case 2:
					e.Owned, e.UID = true, 7
				case 3:
					e.XAttrs = content("other set")
				case 4:
					if e.Kind == File {
						e.Flags ^= Torn
					}
				case 5:
					maps.DeleteFunc(b, func(p string, _ Entry) bool { return p == path || strings.HasPrefix(p, path+"/") })
					continue
				}
				if _, ok := b[path]; ok {
					b[path] = e
				}
			}
		}
		src := newMemory()
		ra, rb := a.build(t, src, ""), b.build(t, src, "")
		r := NewReader(src, int64(rapid.SampledFrom([]int{0, 1 << 20}).Draw(t, "cache")))
		opt := DiffOptions{Owner: rapid.Bool().Draw(t, "owner")}
		require.Equal(t, a.diff(b, opt), diffLines(t, r, ra.Hash, rb.Hash, opt))
		require.Empty(t, diffLines(t, r, ra.Hash, ra.Hash, opt))
		// Limited to paths it says what it says of these without a limit.
		opt.Paths = []string{rapid.SampledFrom(append(a.paths(), append(b.paths(), "nowhere")...)).Draw(t, "path")}
		var some []string
		for _, line := range a.diff(b, opt) {
			if Under(line[2:], opt.Paths[0]) {
				some = append(some, line)
			}
		}
		require.Equal(t, append([]string{}, some...), diffLines(t, r, ra.Hash, rb.Hash, opt))
	})
}

func TestDiff(t *testing.T) {
	d := dir("", cas.Hash{})
	later := d
	later.MtimeSec++
	private := later
	private.Mode = 0o700
	owned := d
	owned.Owned = true
	a := model{"d": d, "d/f": file("", "1"), "d/g": file("", "1"), "e": d, "e/f": file("", "1"), "k": d, "k/in": d, "k/in/f": file("", ""), "l": symlink("", "d"), "o": owned, "p": d, "p/x": d}
	b := model{"d": later, "d/f": file("", "2"), "d/g": file("", "1"), "e": later, "e/g": file("", "1"), "k": file("", ""), "l": d, "l/new": d, "l/new/f": file("", ""), "o": d, "p": private}
	src := newMemory()
	ra, rb := a.build(t, src, ""), b.build(t, src, "")
	r := NewReader(src, 1<<20)
	require.Equal(t, []string{
		"m d", "M d/f", // its time is not explained by a file that was written to
		"D e/f", "A e/g", // here it is
		"T k", "D k/in", "D k/in/f",
		"T l", "A l/new", "A l/new/f",
		"m p", "D p/x", // another mode is never explained
	}, diffLines(t, r, ra.Hash, rb.Hash, DiffOptions{}))
	require.Contains(t, diffLines(t, r, ra.Hash, rb.Hash, DiffOptions{Owner: true}), "m o")

	stop := errors.New("stop")
	for _, err := range []error{stop, SkipDir, SkipAll} {
		for _, at := range []string{"d", "e/f", "k/in", "l/new/f"} {
			require.Equal(t, err, Diff(context.Background(), r, ra.Hash, rb.Hash, DiffOptions{}, func(c Change) error {
				if c.Path == at {
					return err
				}
				return nil
			}))
		}
	}
	// Changes may be kept.
	var kept []Change
	require.NoError(t, Diff(context.Background(), r, ra.Hash, rb.Hash, DiffOptions{}, func(c Change) error {
		kept = append(kept, c)
		return nil
	}))
	require.Equal(t, content("1"), kept[1].Old.Hash)
	require.Equal(t, content("2"), kept[1].New.Hash)
}

func TestDiffLarge(t *testing.T) {
	src := newMemory()
	r := NewReader(src, 1<<20)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a := model{}
		for _, e := range flat(rng.IntN(3000), seed) {
			name := e.Name
			e.Name = ""
			a[name] = e
		}
		b := maps.Clone(a)
		for _, path := range a.paths() {
			switch k := rng.IntN(1 + rng.IntN(400)); {
			case k == 1:
				delete(b, path)
			case k == 2:
				b[path+"+"] = a[path]
			case k == 3:
				e := b[path]
				e.Hash = content("new")
				b[path] = e
			case k == 4:
				b[path] = symlink("", "x")
			}
		}
		ra, rb := a.build(t, src, ""), b.build(t, src, "")
		require.Equal(t, a.diff(b, DiffOptions{}), diffLines(t, r, ra.Hash, rb.Hash, DiffOptions{}), "seed %d", seed)
		require.Equal(t, b.diff(a, DiffOptions{}), diffLines(t, r, rb.Hash, ra.Hash, DiffOptions{}), "seed %d", seed)
	}
}

// TestDiffReadsLittle: what both sides share is not read.
func TestDiffReadsLittle(t *testing.T) {
	src := newMemory()
	es := flat(40_000, 5)
	old, _ := store(t, src, es)
	r := NewReader(src, 0)
	for _, at := range []int{0, 20_000, 39_999} {
		next := append([]Entry(nil), es...)
		next[at].Hash = content("changed")
		changed, _ := store(t, src, next)
		src.took()
		require.Equal(t, []string{"M " + es[at].Name}, diffLines(t, r, old.Hash, changed.Hash, DiffOptions{}))
		require.LessOrEqual(t, src.took(), 6)

		gone, _ := store(t, src, append(append([]Entry(nil), es[:at]...), es[at+1:]...))
		src.took()
		require.Equal(t, []string{"D " + es[at].Name}, diffLines(t, r, old.Hash, gone.Hash, DiffOptions{}))
		require.LessOrEqual(t, src.took(), 40)
	}
	// Whole directories, too.
	m := model{}
	for i := range 100 {
		p := fmt.Sprintf("d%02d", i)
		m[p] = dir("", cas.Hash{})
		m[p+"/f"] = file("", p)
	}
	a := m.build(t, src, "")
	m["d50/f"] = file("", "changed")
	b := m.build(t, src, "")
	src.took()
	require.Equal(t, []string{"M d50/f"}, diffLines(t, r, a.Hash, b.Hash, DiffOptions{}))
	require.Equal(t, 4, src.took())
}
