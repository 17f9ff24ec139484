package textdiff

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// apply makes the new text of the old one and the edits.
func (d *Diff) apply() string {
	var b strings.Builder
	at := 0
	for _, e := range append(slices.Clone(d.Edits), Edit{d.old.len(), d.old.len(), 0, 0}) {
		for ; at < e.From; at++ {
			b.WriteString(d.old.at(at))
		}
		for i := e.NewFrom; i < e.NewTo; i++ {
			b.WriteString(d.new.at(i))
		}
		at = e.To
	}
	return b.String()
}

func hunks(t require.TestingT, d *Diff) string {
	var b strings.Builder
	require.NoError(t, d.Hunks(&b))
	return b.String()
}

func TestHunks(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"the same":       {"a\n", "a\n", ""},
		"both empty":     {"", "", ""},
		"all new":        {"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"all gone":       {"a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		"in the middle":  {"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"},
		"two hunks":      {"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n", "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -8,3 +7,4 @@\n 8\n 9\n 10\n+11\n"},
		"no newline":     {"a\nb", "a\nc", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"},
		"newline added":  {"a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		"context has no": {"a\nb", "c\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n"},
		"odd bytes":      {"\xff\r\n\x00\n", "\xfe\r\n\x00\n", "@@ -1,2 +1,2 @@\n-\xff\r\n+\xfe\r\n \x00\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Compare(c.old, c.new)
			require.Equal(t, c.want, hunks(t, d))
			require.Equal(t, c.new, d.apply())
			inserted, deleted := d.Counts()
			require.Equal(t, strings.Count("\n"+c.want, "\n+"), inserted)
			require.Equal(t, strings.Count("\n"+c.want, "\n-"), deleted)
			require.Equal(t, Lines(c.new)-Lines(c.old), inserted-deleted)
		})
	}
}

func TestBinary(t *testing.T) {
	require.False(t, Binary(""))
	require.True(t, Binary("a\x00"))
	require.True(t, Binary(strings.Repeat("a", Head-1)+"\x00"))
	require.False(t, Binary(strings.Repeat("a", Head)+"\x00"))
}

// drawTexts draws a text and another one that is much like it, or not.
func drawTexts(t *rapid.T) (old, new string) {
	line := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"\n", "}\n", "x\n", "x\r\n", "\\ No newline at end of file\n", "--- a/f\n", "@@ -1 +1 @@\n"}).Draw(t, "common")
		case 1:
			return string(rapid.SliceOfN(rapid.ByteRange(1, 255), 0, 5).Draw(t, "bytes")) + "\n"
		}
		return fmt.Sprintf("line %d\n", rapid.IntRange(0, 2000).Draw(t, "n"))
	})
	a := rapid.SliceOfN(line, 0, 400).Draw(t, "old")
	b := slices.Clone(a)
	for range rapid.IntRange(0, 40).Draw(t, "edits") {
		at := rapid.IntRange(0, len(b)).Draw(t, "at")
		switch rapid.IntRange(0, 3).Draw(t, "edit") {
		case 0:
			b = slices.Delete(b, at, min(len(b), at+rapid.IntRange(0, 20).Draw(t, "many")))
		case 1:
			b = slices.Insert(b, at, rapid.SliceOfN(line, 0, 20).Draw(t, "more")...)
		case 2:
			if at < len(b) {
				b[at] = line.Draw(t, "other")
			}
		default: // a stretch moves
			end := min(len(b), at+20)
			some := slices.Clone(b[at:end])
			b = slices.Delete(b, at, end)
			b = slices.Insert(b, rapid.IntRange(0, len(b)).Draw(t, "to"), some...)
		}
	}
	last := func(text string) string {
		if rapid.IntRange(0, 3).Draw(t, "no newline") == 0 {
			return strings.TrimSuffix(text, "\n")
		}
		return text
	}
	return last(strings.Join(a, "")), last(strings.Join(b, ""))
}

func TestEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, new := drawTexts(t)
		d := Compare(old, new)
		require.Equal(t, new, d.apply())
		at, newAt := -1, -1
		for _, e := range d.Edits {
			require.Less(t, at, e.From)
			require.Less(t, newAt, e.NewFrom)
			require.Equal(t, e.From-max(at, 0), e.NewFrom-max(newAt, 0), "what is between edits is as long")
			at, newAt = e.To, e.NewTo
		}
		require.Empty(t, Compare(new, new).Edits)
	})
}

// TestPatch: what patch(1) makes of the hunks is the new text.
func TestPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch is not installed")
	}
	dir := t.TempDir()
	file, diff := filepath.Join(dir, "f"), filepath.Join(dir, "f.diff")
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		if n++; n > 50 && os.Getenv("SNAPFS_LARGE") != "1" {
			return // each starts a process
		}
		old, new := drawTexts(t)
		require.NoError(t, os.WriteFile(file, []byte(old), 0o600))
		require.NoError(t, os.WriteFile(diff, []byte("--- a/f\n+++ b/f\n"+hunks(t, Compare(old, new))), 0o600))
		if old == new {
			return
		}
		out, err := exec.Command("patch", "--posix", "-s", "-F0", file, diff).CombinedOutput()
		require.NoError(t, err, "%s", out)
		got, err := os.ReadFile(file)
		if !os.IsNotExist(err) || new != "" {
			require.NoError(t, err)
		}
		require.Equal(t, new, string(got))
	})
}

// TestLong: many edits in a long text cost little, and no more lines than were edited
// are told.
func TestLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 10_000
	if os.Getenv("SNAPFS_LARGE") == "1" {
		n = 300_000
	}
	repeated := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("%d\n", rng.IntN(20))
		}
		return all
	}
	distinct := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("the line %d\n", i)
		}
		return all
	}
	edit := func(a []string, n int) []string {
		b := slices.Clone(a)
		for range n {
			b[rng.IntN(len(b))] = fmt.Sprintf("edited %d\n", rng.Int())
		}
		return b
	}
	shuffle := func(a []string) []string {
		b := slices.Clone(a)
		rng.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		return b
	}
	long := distinct(n)
	dull := repeated(n)
	for name, c := range map[string]struct {
		a, b []string
		most int // edited lines
	}{
		"a few edits":      {long, edit(long, 20), 40},
		"thousands":        {long, edit(long, n/40), n / 20},
		"repeated lines":   {dull, edit(dull, n/200), n / 80},
		"nothing in it":    {dull, repeated(n), 2 * n},
		"shuffled":         {long, shuffle(long), 2 * n},
		"one line":         {[]string{strings.Repeat("x", n*40)}, []string{strings.Repeat("x", n*40) + "y"}, 2},
		"only empty lines": {slices.Repeat([]string{"\n"}, 2*n), append(slices.Repeat([]string{"\n"}, n), slices.Repeat([]string{"x\n"}, n)...), 2 * n},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			d := Compare(strings.Join(c.a, ""), strings.Join(c.b, ""))
			took := time.Since(begin)
			inserted, deleted := d.Counts()
			t.Logf("%v, %d inserted, %d deleted", took, inserted, deleted)
			require.LessOrEqual(t, inserted+deleted, c.most)
			require.Equal(t, strings.Join(c.b, ""), d.apply())
			require.Less(t, took, 20*time.Second)
		})
	}
}
