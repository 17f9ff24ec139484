package restore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// redacted is an entry of a file in which ranges of data were overwritten.
func (m *memory) redacted(t *testing.T, data string, ranges ...secrets.Range) tree.Entry {
	t.Helper()
	e := m.file(t, 0o600, blanked(data, ranges))
	e.Flags = tree.Redacted
	return e
}

// blanked is data with zero bytes in ranges.
func blanked(data string, ranges []secrets.Range) string {
	b := []byte(data)
	for _, r := range ranges {
		clear(b[r.Off:r.End()])
	}
	return string(b)
}

// knowing gives a source its list of ranges.
func knowing(src Source, all map[string][]secrets.Range) Source {
	src.Redacted = func() (map[string][]secrets.Range, error) { return all, nil }
	return src
}

// at is one range.
func at(off, length int64) []secrets.Range { return []secrets.Range{{Off: off, Len: length}} }

const (
	withSecret = "TOKEN=0123456789\nPORT=80\n"
	otherValue = "TOKEN=abcdefghij\nPORT=80\n"
	noSecret   = "TOKEN=\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\nPORT=80\n"
)

// tokenAt is where the secret of these is.
var tokenAt = at(6, 10)

// secretive is a tree with files that had secrets, the same in each process: alone, among
// hard links, and long.
func secretive(t *testing.T, m *memory) Source {
	t.Helper()
	env := m.redacted(t, withSecret, tokenAt...)
	long := at(3<<20, 100)
	src := m.source(t, dir{
		".env": env, "new.env": env, "f": "file", "d": dir{"x.env": env, "y": "another"},
		"long": m.redacted(t, string(noise(5<<20)), long...), "linked": env, "twice": env,
	})
	src.Links = m.links(t, []string{"linked", "twice"})
	return knowing(src, map[string][]secrets.Range{
		".env": tokenAt, "new.env": tokenAt, "d/x.env": tokenAt, "long": long, "linked": tokenAt, "twice": tokenAt,
	})
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// fill writes files.
func fill(t require.TestingT, top string, files map[string]string) {
	for name, data := range files {
		path := filepath.Join(top, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	}
}

// merge restores into a live directory.
func (m *memory) merge(t require.TestingT, src Source, dir string, opt Options) (Result, error) {
	return Tree(context.Background(), m, tree.NewReader(m, 1<<20), src, dir, opt)
}

// TestHide: what lies in the ranges is overwritten, wherever the data begins.
func TestHide(t *testing.T) {
	for _, c := range []struct {
		off    int64
		ranges []secrets.Range
		want   string
		some   bool
	}{
		{0, nil, "0123456789", false},
		{0, at(2, 3), "01...56789", true},
		{100, at(2, 3), "0123456789", false},
		{100, []secrets.Range{{Off: 90, Len: 10}, {Off: 100, Len: 1}, {Off: 105, Len: 2}, {Off: 110, Len: 5}}, ".1234..789", true},
		{100, at(0, 1000), "..........", true},
		{100, at(95, 7), "..23456789", true},
		{100, at(108, 7), "01234567..", true},
		{math.MaxInt64 - 10, at(math.MaxInt64-3, 3), "0123456...", true},
		{100, at(104, math.MaxInt64-104), "0123......", true},
		{100, []secrets.Range{{Off: 200, Len: 5}, {Off: 101, Len: 1}, {Off: 104, Len: -2}, {Off: 90, Len: 5}}, "0123456789", false}, // no order at all
	} {
		data := []byte("0123456789")
		require.Equal(t, c.some, hide(data, c.off, c.ranges), "%v", c)
		require.Equal(t, strings.ReplaceAll(c.want, ".", "\x00"), string(data), "%v", c)
	}
	require.False(t, hide(make([]byte, 10), 0, at(2, 3)), "there are zero bytes already")
}

// TestSecretsStay: a file that differs from the saved one only where secrets were is kept
// byte for byte, whatever its length and the ranges; one that differs in one byte
// elsewhere is replaced.
func TestSecretsStay(t *testing.T) {
	asUser(t)
	soak.Checks(t, 25, 500)
	rapid.Check(t, func(rt *rapid.T) {
		m, top := newMemory(), scratch(t)
		defer func() { require.NoError(rt, RemoveAll(top)) }()
		size := rapid.OneOf(rapid.IntRange(1, 200), rapid.SampledFrom([]int{cas.ChunkedSize, cas.ChunkedSize + 1, 3 << 20, 6<<20 + 5})).Draw(rt, "size")
		data := noise(size)
		if hole := rapid.IntRange(0, size).Draw(rt, "hole"); rapid.Bool().Draw(rt, "holes") {
			clear(data[hole:min(size, hole+2<<20)])
		}
		var ranges []secrets.Range
		for end := 0; end < size && len(ranges) < 6; {
			off := rapid.IntRange(end, size-1).Draw(rt, "off")
			end = off + rapid.IntRange(1, min(size-off, 1<<rapid.IntRange(0, 22).Draw(rt, "most"))).Draw(rt, "length")
			ranges = append(ranges, secrets.Range{Off: int64(off), Len: int64(end - off)})
		}
		live := []byte(blanked(string(data), ranges))
		for _, r := range ranges {
			for i := r.Off; i < r.End(); i++ {
				live[i] = data[i] ^ byte(size)
			}
		}
		src := knowing(m.source(t, dir{"d": dir{"f": m.redacted(t, string(data), ranges...)}}), map[string][]secrets.Range{"d/f": ranges})
		opt := Options{Mode: rapid.SampledFrom([]Mode{Overlay, Mirror}).Draw(rt, "mode"), Force: true}
		path := filepath.Join(top, "d", "f")
		fill(rt, top, map[string]string{"d/f": string(live)})
		before := stat(t, path)

		res, err := m.merge(rt, src, top, opt)
		require.NoError(rt, err)
		got, err := os.ReadFile(path)
		require.NoError(rt, err)
		require.True(rt, bytes.Equal(live, got), "it was changed")
		after := stat(t, path)
		require.Equal(rt, before.Ino, after.Ino)
		require.EqualValues(rt, 1e9, after.Mtim.Sec, "its metadata is the saved one")
		require.Empty(rt, res.Redacted)
		res, err = m.merge(rt, src, top, opt)
		require.NoError(rt, err)
		require.Equal(rt, Result{Kept: 2}, res, "nothing is left to do")

		// One byte elsewhere.
		var elsewhere []int
		for i, end := 0, 0; i <= len(ranges); i++ {
			next := size
			if i < len(ranges) {
				next = int(ranges[i].Off)
			}
			if end < next {
				elsewhere = append(elsewhere, end, next-1)
			}
			if i < len(ranges) {
				end = int(ranges[i].End())
			}
		}
		if len(elsewhere) == 0 {
			return
		}
		live[rapid.SampledFrom(elsewhere).Draw(rt, "elsewhere")] ^= 1
		fill(rt, top, map[string]string{"d/f": string(live)})
		res, err = m.merge(rt, src, top, opt)
		require.NoError(rt, err)
		got, err = os.ReadFile(path)
		require.NoError(rt, err)
		require.True(rt, bytes.Equal([]byte(blanked(string(data), ranges)), got), "it was not replaced")
		require.Equal(rt, []string{"d/f"}, res.Redacted)
	})
}

// TestKeptForItsSecrets: what becomes of a live file beside a redacted one, with all that
// a plan says of it.
func TestKeptForItsSecrets(t *testing.T) {
	old := func(top string) { // as it was saved
		for _, name := range []string{".env", "f"} {
			_ = os.Chtimes(filepath.Join(top, name), time.Unix(1e9, 0), time.Unix(1e9, 0))
		}
	}
	for name, c := range map[string]struct {
		live   map[string]string
		then   func(top string)
		ranges map[string][]secrets.Range
		want   string
		plan   Change
	}{
		"with its secret":    {map[string]string{".env": withSecret}, old, map[string][]secrets.Range{".env": tokenAt}, withSecret, Change{Op: Keep, Why: onlySecrets}},
		"with another value": {map[string]string{".env": otherValue}, old, map[string][]secrets.Range{".env": tokenAt}, otherValue, Change{Op: Keep, Why: onlySecrets}},
		"as it was saved":    {map[string]string{".env": noSecret}, old, map[string][]secrets.Range{".env": tokenAt}, noSecret, Change{Op: Keep}},
		"at another time":    {map[string]string{".env": withSecret}, nil, map[string][]secrets.Range{".env": tokenAt}, withSecret, Change{Op: Replace, Why: "its time; its content " + onlySecrets}},
		"not there":          {nil, nil, map[string][]secrets.Range{".env": tokenAt}, noSecret, Change{Op: Create, Redacted: true}},
		"longer":             {map[string]string{".env": withSecret + "X=1\n"}, old, map[string][]secrets.Range{".env": tokenAt}, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
		"elsewhere changed":  {map[string]string{".env": strings.Replace(withSecret, "80", "81", 1)}, old, map[string][]secrets.Range{".env": tokenAt}, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
		"a directory":        {map[string]string{".env/x": withSecret}, nil, map[string][]secrets.Range{".env": tokenAt}, noSecret, Change{Op: Replace, Why: "a directory", Redacted: true}},
		"no list":            {map[string]string{".env": withSecret}, old, nil, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
		"a list of others":   {map[string]string{".env": withSecret}, old, map[string][]secrets.Range{"f": tokenAt}, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
		"beyond its end":     {map[string]string{".env": withSecret}, old, map[string][]secrets.Range{".env": {{Off: 6, Len: 10}, {Off: 25, Len: 1 << 40}, {Off: 1 << 50, Len: 8}}}, withSecret, Change{Op: Keep, Why: onlySecrets}},
		"only beyond":        {map[string]string{".env": withSecret}, old, map[string][]secrets.Range{".env": at(1<<40, 8)}, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
		"ranges of nonsense": {map[string]string{".env": withSecret}, old, map[string][]secrets.Range{".env": {{Off: 16, Len: -10}, {Off: 3, Len: 0}}}, noSecret, Change{Op: Replace, Why: "its content", Redacted: true}},
	} {
		for _, mode := range []Mode{Overlay, Mirror} {
			t.Run(fmt.Sprintf("%s, %v", name, mode), func(t *testing.T) {
				m, top := newMemory(), scratch(t)
				src := m.source(t, dir{".env": m.redacted(t, withSecret, tokenAt...), "f": "file"})
				if c.ranges != nil {
					src = knowing(src, c.ranges)
				}
				fill(t, top, map[string]string{"f": "file"})
				fill(t, top, c.live)
				if c.then != nil {
					c.then(top)
				}
				was := portrait(t, top)
				var plan []Change
				opt := Options{Mode: mode, DryRun: true, Plan: func(all []Change) { plan = all }}
				planned, err := m.merge(t, src, top, opt)
				require.NoError(t, err)
				require.Equal(t, was, portrait(t, top))
				i := slices.IndexFunc(plan, func(p Change) bool { return p.Path == ".env" })
				require.GreaterOrEqual(t, i, 0)
				want := c.plan
				want.Path = ".env"
				require.Equal(t, want, plan[i])

				opt.DryRun = false
				res, err := m.merge(t, src, top, opt)
				require.NoError(t, err)
				require.Equal(t, c.want, list(t, top)[".env"])
				var lacking []string
				if c.plan.Redacted {
					lacking = []string{".env"}
				}
				require.Equal(t, lacking, res.Redacted)
				require.EqualValues(t, len(lacking), res.RedactedFiles)
				require.Equal(t, planned.Redacted, res.Redacted)
				require.Equal(t, planned.RedactedFiles, res.RedactedFiles)
			})
		}
	}
}

// TestSecretsOfHardLinks: no link is worth a secret: names of one file, and files of their
// own that should be one, stay as they are where that has one.
func TestSecretsOfHardLinks(t *testing.T) {
	link := func(from, to string) func(t *testing.T, top string) {
		return func(t *testing.T, top string) {
			require.NoError(t, os.Link(filepath.Join(top, from), filepath.Join(top, to)))
		}
	}
	for name, c := range map[string]struct {
		live      map[string]string
		then      func(t *testing.T, top string)
		a, b      string // wanted contents
		one, done bool   // wanted: they are one file, and a second restore does nothing
		lacking   []string
	}{
		"linked":              {map[string]string{"a": withSecret}, link("a", "b"), withSecret, withSecret, true, true, nil},
		"two files":           {map[string]string{"a": withSecret, "b": otherValue}, nil, withSecret, otherValue, false, true, nil},
		"linked elsewhere":    {map[string]string{"a": withSecret, "b": otherValue}, link("a", "c"), withSecret, otherValue, false, true, nil},
		"all linked":          {map[string]string{"a": withSecret}, func(t *testing.T, top string) { link("a", "b")(t, top); link("a", "c")(t, top) }, withSecret, withSecret, true, true, nil},
		"one is missing":      {map[string]string{"a": withSecret}, nil, withSecret, noSecret, false, false, []string{"b"}},
		"one has none":        {map[string]string{"a": noSecret, "b": otherValue}, nil, noSecret, otherValue, false, false, []string{"a"}},
		"two without secrets": {map[string]string{"a": noSecret, "b": noSecret}, nil, noSecret, noSecret, true, true, []string{"a", "b"}},
		"none":                {nil, nil, noSecret, noSecret, true, true, []string{"a", "b"}},
		"changed":             {map[string]string{"a": "changed", "b": "changed"}, nil, noSecret, noSecret, true, true, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, top := newMemory(), scratch(t)
			e := m.redacted(t, withSecret, tokenAt...)
			src := knowing(m.source(t, dir{"a": e, "b": e, "f": "file"}), map[string][]secrets.Range{"a": tokenAt, "b": tokenAt})
			src.Links = m.links(t, []string{"a", "b"})
			fill(t, top, map[string]string{"f": "file"})
			fill(t, top, c.live)
			if c.then != nil {
				c.then(t, top)
			}
			for i, want := range [][]string{c.lacking, nil} {
				res, err := m.merge(t, src, top, Options{Mode: Overlay})
				require.NoError(t, err)
				is := list(t, top)
				require.Equal(t, c.a, is["a"])
				require.Equal(t, c.b, is["b"])
				require.Equal(t, c.one, stat(t, top+"/a").Ino == stat(t, top+"/b").Ino)
				if i == 0 || c.done {
					require.Equal(t, want, res.Redacted)
				}
				if i == 1 && c.done {
					require.Zero(t, res.Created+res.Replaced)
				}
				if is["c"] != "" {
					require.Equal(t, withSecret, is["c"])
				}
			}
		})
	}
}

// TestSecretsOfOneFileOfTwoNames: a file that is at two places of the checkpoint is two
// files there, and stays one where it has a secret.
func TestSecretsOfOneFileOfTwoNames(t *testing.T) {
	m, top := newMemory(), scratch(t)
	e := m.redacted(t, withSecret, tokenAt...)
	other := e
	other.Mode = 0o640
	src := knowing(m.source(t, dir{"a": e, "b": other, "f": "file"}), map[string][]secrets.Range{"a": tokenAt, "b": tokenAt})
	fill(t, top, map[string]string{"a": withSecret, "f": "file"})
	require.NoError(t, os.Link(top+"/a", top+"/b"))
	for range 2 {
		_, err := m.merge(t, src, top, Options{Mode: Mirror})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": withSecret, "b": withSecret, "f": "file"}, list(t, top))
	}
	src.Links = m.links(t, []string{"a", "f"})
	_, err := m.merge(t, src, top, Options{Mode: Mirror, NoHardlinks: true})
	require.NoError(t, err)
	require.Equal(t, withSecret, list(t, top)["a"])
}

// TestRedactedFilesAreNamed: a new restore names all files that lack secrets, a part of
// it those of the part.
func TestRedactedFilesAreNamed(t *testing.T) {
	asUser(t)
	all := []string{".env", "d/x.env", "linked", "long", "new.env", "twice"}
	for name, c := range map[string]struct {
		include []string
		opt     Options
		want    []string
	}{
		"all":           {nil, Options{}, all},
		"one":           {[]string{"/d/x.env"}, Options{}, []string{"d/x.env"}},
		"none":          {[]string{"/f"}, Options{}, nil},
		"no hard links": {nil, Options{NoHardlinks: true}, all},
		"a dry run":     {nil, Options{DryRun: true}, all},
	} {
		t.Run(name, func(t *testing.T) {
			m, top := newMemory(), scratch(t)
			src := secretive(t, m)
			src.Redacted = func() (map[string][]secrets.Range, error) { panic("nobody needs it") }
			c.opt.Files = only(t, c.include)
			for _, target := range []string{"missing", "empty"} {
				target = filepath.Join(top, target)
				if strings.HasSuffix(target, "empty") {
					require.NoError(t, os.Mkdir(target, 0o755))
				}
				res, err := m.merge(t, src, target, c.opt)
				require.NoError(t, err)
				require.Equal(t, c.want, res.Redacted)
				require.EqualValues(t, len(c.want), res.RedactedFiles)
			}
		})
	}
}

// TestIncludeKeepsSecrets: an overlay of one file keeps it as well.
func TestIncludeKeepsSecrets(t *testing.T) {
	m, top := newMemory(), scratch(t)
	fill(t, top, map[string]string{"d/x.env": withSecret, "other": "mine"})
	res, err := m.merge(t, secretive(t, m), top, Options{Mode: Overlay, Files: only(t, []string{"/d/x.env", "/new.env"})})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"d": "/", "d/x.env": withSecret, "other": "mine", "new.env": noSecret}, list(t, top))
	require.Equal(t, []string{"new.env"}, res.Redacted)
}

// TestListOfSecretsIsLost: where it is not known what was secret, a live file that may
// have one is not touched.
func TestListOfSecretsIsLost(t *testing.T) {
	m, top := newMemory(), scratch(t)
	src := secretive(t, m)
	src.Redacted = func() (map[string][]secrets.Range, error) { return nil, cas.ErrCorrupt }
	fill(t, top, map[string]string{".env": withSecret})
	was := portrait(t, top)
	_, err := m.merge(t, src, top, Options{Mode: Overlay})
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Equal(t, was, portrait(t, top))
	_, err = m.merge(t, src, filepath.Join(scratch(t), "new"), Options{})
	require.NoError(t, err, "all that was saved can be restored")
}

// TestResumeKeepsSecrets: in what a killed restore left, a file in which secrets were put
// back is kept, whatever its time; one that was not written to its end is made anew.
func TestResumeKeepsSecrets(t *testing.T) {
	asUser(t)
	saved := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		change  func(t *testing.T, top string)
		want    map[string]string
		lacking []string
	}{
		"nothing": {func(*testing.T, string) {}, nil, []string{".env", "d/x.env", "linked", "long", "new.env", "twice"}},
		"put back": {func(t *testing.T, top string) {
			fill(t, top, map[string]string{".env": withSecret, "d/x.env": otherValue, "linked": withSecret})
		}, map[string]string{".env": withSecret, "d/x.env": otherValue, "linked": withSecret, "twice": withSecret}, []string{"long", "new.env"}},
		"put back, with the time of before": {func(t *testing.T, top string) {
			fill(t, top, map[string]string{".env": withSecret, "linked": withSecret})
			require.NoError(t, os.Chtimes(top+"/.env", saved, saved))
			require.NoError(t, os.Chtimes(top+"/linked", saved, saved))
		}, map[string]string{".env": withSecret, "linked": withSecret, "twice": withSecret}, []string{"d/x.env", "long", "new.env"}},
		"a link becomes a file": {func(t *testing.T, top string) {
			require.NoError(t, os.Remove(top+"/twice"))
			fill(t, top, map[string]string{"twice": withSecret})
		}, map[string]string{"twice": withSecret}, []string{".env", "d/x.env", "linked", "long", "new.env"}},
		"cut off": {func(t *testing.T, top string) {
			require.NoError(t, os.Truncate(top+"/.env", 10))
			require.NoError(t, os.Remove(top+"/new.env"))
		}, nil, []string{".env", "d/x.env", "linked", "long", "new.env", "twice"}},
		"something else": {func(t *testing.T, top string) {
			fill(t, top, map[string]string{".env": strings.Replace(withSecret, "80", "81", 1)})
		}, nil, []string{".env", "d/x.env", "linked", "long", "new.env", "twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			src := secretive(t, m)
			target := filepath.Join(scratch(t), "target")
			unfinished(t, m, src, target, nil)
			c.change(t, target)
			res, err := m.merge(t, src, target, Options{Checkpoint: "cp"})
			require.NoError(t, err)
			is := list(t, target)
			for _, name := range []string{".env", "new.env", "d/x.env", "linked", "twice"} {
				want := noSecret
				if c.want[name] != "" {
					want = c.want[name]
				}
				require.Equal(t, want, is[name], name)
				require.EqualValues(t, 1e9, stat(t, filepath.Join(target, name)).Mtim.Sec, name)
			}
			require.Equal(t, c.lacking, res.Redacted)
			require.NoFileExists(t, filepath.Join(target, capture.Marker))
		})
	}
}

// TestKilledMergeKeepsSecrets: a mirror that is killed before any of its steps, and the
// one that goes on, leave the secrets where they were.
func TestKilledMergeKeepsSecrets(t *testing.T) {
	asUser(t)
	m := newMemory()
	src := secretive(t, m)
	long := string(noise(5 << 20))
	stride, step := soak.Rounds(5, 1), 1
	if os.Geteuid() != 0 {
		step += stride / 2
	}
	for ; ; step += stride {
		top := scratch(t)
		live := map[string]string{".env": withSecret, "d/x.env": "longer: " + withSecret, "long": long, "linked": otherValue, "f": "other", "extra": "goes"}
		fill(t, top, live)
		killed := killedAt(t, top, step, childMode+"=secrets")
		intact := func() {
			t.Helper()
			is := list(t, top)
			require.Equal(t, withSecret, is[".env"], "step %d", step)
			require.Equal(t, otherValue, is["linked"], "step %d", step)
			require.True(t, is["long"] == long, "step %d", step)
		}
		intact()
		if !killed {
			require.Greater(t, step, 20)
			break
		}
		_, err := os.Lstat(filepath.Join(top, capture.Marker))
		begun := err == nil
		res, err := m.merge(t, src, top, Options{Mode: Mirror})
		require.NoError(t, err)
		intact()
		is := list(t, top)
		require.Equal(t, noSecret, is["d/x.env"])
		require.NotContains(t, is, "extra")
		if begun {
			require.Equal(t, []string{"d/x.env", "new.env", "twice"}, res.Redacted, "step %d", step)
		}
		require.NoError(t, RemoveAll(top))
		require.NoError(t, os.Mkdir(top, 0o700)) // for the cleanup
	}
}

// TestFirstPaths: of very many the first are kept.
func TestFirstPaths(t *testing.T) {
	var f firstPaths
	for i := range 5 * maxRedacted {
		f.add(fmt.Sprintf("%06d", 5*maxRedacted-1-i))
	}
	first := f.first()
	require.Len(t, first, maxRedacted)
	require.Equal(t, "000000", first[0])
	require.Equal(t, fmt.Sprintf("%06d", maxRedacted-1), first[maxRedacted-1])
	require.EqualValues(t, 5*maxRedacted, f.n)
	require.Nil(t, (&firstPaths{}).first())
}

// TestClosedFilesKeepTheirContent: a live file whose mode keeps its owner out is looked at
// all the same, and gets the saved metadata.
func TestClosedFilesKeepTheirContent(t *testing.T) {
	asUser(t)
	m, top := newMemory(), scratch(t)
	closed := m.file(t, 0, "closed")
	src := knowing(m.source(t, dir{".env": m.redacted(t, withSecret, tokenAt...), "plain": m.file(t, 0o640, "plain"), "closed": closed}), map[string][]secrets.Range{".env": tokenAt})
	fill(t, top, map[string]string{".env": withSecret, "plain": "plain", "closed": "closed"})
	inodes := map[string]uint64{}
	for _, name := range []string{".env", "plain", "closed"} {
		require.NoError(t, unix.Chmod(filepath.Join(top, name), 0))
		inodes[name] = stat(t, filepath.Join(top, name)).Ino
	}
	res, err := m.merge(t, src, top, Options{Mode: Overlay})
	require.NoError(t, err)
	require.Empty(t, res.Incomplete)
	for name, mode := range map[string]uint32{".env": 0o600, "plain": 0o640, "closed": 0} {
		st := stat(t, filepath.Join(top, name))
		require.Equal(t, inodes[name], st.Ino, name)
		require.Equal(t, mode, st.Mode&0o7777, name)
		require.EqualValues(t, 1e9, st.Mtim.Sec, name)
	}
	require.NoError(t, unix.Chmod(filepath.Join(top, "closed"), 0o600))
	require.Equal(t, map[string]string{".env": withSecret, "plain": "plain", "closed": "closed"}, list(t, top))
}
