package tree

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// hard has an entry for each thing that is easily lost.
func hard() []Entry {
	set := content("a set")
	with := func(e Entry, change func(*Entry)) Entry { change(&e); return e }
	return []Entry{
		with(file("\x01", ""), func(e *Entry) { e.Mode = 0 }),
		with(file("\n", "x"), func(e *Entry) { e.MtimeSec, e.MtimeNsec = -1, 999_999_999 }),
		file("-rf", "x"),
		file("...", "x"),
		with(file("A", "x"), func(e *Entry) { e.Owned = true }),
		with(file("B", "x"), func(e *Entry) { e.Owned, e.UID, e.GID = true, math.MaxUint32-1, 5 }),
		with(file("C", "x"), func(e *Entry) { e.XAttrs, e.Flags = set, Redacted|Torn }),
		with(file("D", "x"), func(e *Entry) { e.MtimeSec, e.MtimeNsec = math.MinInt64, 0 }),
		with(file("E", "x"), func(e *Entry) { e.MtimeSec, e.Size = math.MaxInt64, math.MaxInt64-100 }),
		with(file("Logo.png", "x"), func(e *Entry) { e.Mode = 0o1777 }),
		symlink("e\u0301", "/usr/bin/python3"),
		with(symlink("h", strings.Repeat("t", 4095)), func(e *Entry) { e.XAttrs, e.Owned, e.UID = set, true, 1 }),
		symlink("i", "../../\xff"),
		file("logo.png", "x"),
		with(dir("tmp", content("dir")), func(e *Entry) { e.Mode, e.XAttrs = 0o1777, set }),
		file("\u00e9", "x"),
		file(strings.Repeat("\xff", 255), "x"),
	}
}

func TestBuilderKeepsAll(t *testing.T) {
	ctx := context.Background()
	var b Builder
	below := Totals{Files: 3, Dirs: 2, Bytes: 5, XAttrs: 4, Redacted: 1}
	for _, e := range hard() {
		var sub Totals
		if e.Kind == Dir {
			sub = below
		}
		require.NoError(t, b.Add(e, sub), "%q", e.Name)
	}
	root, objs, err := b.Finish()
	require.NoError(t, err)
	require.Len(t, objs, 1)
	require.Equal(t, cas.Trees, objs[0].Key.NS)
	require.Equal(t, cas.Data, objs[0].Kind)
	src := newMemory()
	src.put(objs...)

	d, err := NewReader(src, 0).Open(ctx, root.Hash)
	require.NoError(t, err)
	require.Equal(t, hard(), entries(t, d, 0))
	require.Equal(t, root, d.Root())
	require.Equal(t, len(hard()), d.Len())
	require.Equal(t, Totals{Files: 16 + 3, Dirs: 3, Bytes: root.Totals.Bytes, XAttrs: 3 + 4, Redacted: 2}, root.Totals)
	for _, e := range hard() {
		got, err := d.Lookup(ctx, e.Name)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestBuilderRefuses(t *testing.T) {
	zero := cas.Hash{}
	for why, e := range map[string]Entry{
		"slash":              file("a/b", ""),
		"dot dot":            file("..", ""),
		"empty name":         file("", ""),
		"no kind":            {Name: "n", Hash: content("")},
		"fifo":               {Name: "n", Kind: 4, Hash: content("")},
		"setuid":             {Name: "n", Kind: File, Mode: 0o4755, Hash: content("")},
		"setgid":             {Name: "n", Kind: Dir, Mode: 0o2755, Hash: content("")},
		"owner without flag": {Name: "n", Kind: File, UID: 1, Hash: content("")},
		"owner -1":           {Name: "n", Kind: File, Owned: true, UID: math.MaxUint32, Hash: content("")},
		"group -1":           {Name: "n", Kind: File, Owned: true, GID: math.MaxUint32, Hash: content("")},
		"nanoseconds":        {Name: "n", Kind: File, MtimeNsec: 1e9, Hash: content("")},
		"flag":               {Name: "n", Kind: File, Flags: 4, Hash: content("")},
		"flag of a dir":      {Name: "n", Kind: Dir, Flags: Torn, Hash: content("")},
		"size":               {Name: "n", Kind: File, Size: 1 << 63, Hash: content("")},
		"file without hash":  {Name: "n", Kind: File, Hash: zero},
		"dir without hash":   {Name: "n", Kind: Dir, Hash: zero},
		"dir with size":      {Name: "n", Kind: Dir, Size: 1, Hash: content("")},
		"file with target":   {Name: "n", Kind: File, Target: "x", Hash: content("")},
		"link without target": {
			Name: "n", Kind: Symlink,
		},
		"link with hash":   {Name: "n", Kind: Symlink, Target: "x", Size: 1, Hash: content("")},
		"link size":        {Name: "n", Kind: Symlink, Target: "x", Size: 2},
		"long target":      symlink("n", strings.Repeat("x", 4096)),
		"target with NUL":  symlink("n", "a\x00b"),
		"target of a dir":  {Name: "n", Kind: Dir, Target: "x", Hash: content("")},
		"name with NUL":    file("a\x00", ""),
		"name of 256":      file(strings.Repeat("n", 256), ""),
		"before the other": file("a", ""),
		"twice":            file("m", ""),
	} {
		var b Builder
		require.NoError(t, b.Add(file("m", "first"), Totals{}))
		require.ErrorIs(t, b.Add(e, Totals{}), ErrInvalid, why)
		root, _, err := b.Finish()
		require.NoError(t, err)
		want, _ := store(t, newMemory(), []Entry{file("m", "first")})
		require.Equal(t, want, root, "%s: a refused entry leaves no trace", why)
	}
}

func TestBuilderTotals(t *testing.T) {
	var b Builder
	require.ErrorIs(t, b.Add(file("a", ""), Totals{Files: 1}), ErrInvalid, "below a file")
	require.ErrorIs(t, b.Add(dir("a", content("")), Totals{XAttrs: 1}), ErrInvalid)
	require.ErrorIs(t, b.Add(dir("a", content("")), Totals{Files: 1, Redacted: 2}), ErrInvalid)
	require.ErrorIs(t, b.Add(dir("a", content("")), Totals{Bytes: 2}), ErrInvalid)
	require.ErrorIs(t, b.Add(dir("a", content("")), Totals{Files: 1, Bytes: 1 << 63}), ErrInvalid)
	require.ErrorIs(t, b.Add(dir("a", content("")), Totals{Dirs: math.MaxInt64}), ErrInvalid)
	huge := file("a", "")
	huge.Size = math.MaxInt64
	require.NoError(t, b.Add(huge, Totals{}))
	require.ErrorIs(t, b.Add(file("b", "x"), Totals{}), ErrInvalid)
	require.NoError(t, b.Add(file("b", ""), Totals{}))

	var sum Totals
	require.NoError(t, sum.Add(Totals{Files: math.MaxInt64}))
	require.ErrorIs(t, sum.Add(Totals{Dirs: 1}), ErrInvalid)
	require.Equal(t, Totals{Files: math.MaxInt64}, sum)
}

func TestBuilderIsReusable(t *testing.T) {
	var b Builder
	var first Root
	for i := range 3 {
		for _, e := range flat(1000, 1) {
			require.NoError(t, b.Add(e, Totals{}))
		}
		root, objs, err := b.Finish()
		require.NoError(t, err)
		for _, o := range objs {
			require.Equal(t, o.Key.Hash, o.Kind.Sum(o.Data), "objects do not share memory with the builder")
		}
		if i == 0 {
			first = root
		}
		require.Equal(t, first, root)
	}
	root, objs, err := b.Finish()
	require.NoError(t, err)
	require.Len(t, objs, 1)
	require.Equal(t, Root{Hash: objs[0].Key.Hash}, root)
	require.Equal(t, "sfd\x01\x00\x00", string(objs[0].Data))
}

func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 258, 300, 1000, 4097, 20_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx := context.Background()
			src := newMemory()
			es := flat(n, uint64(n))
			root, objs := store(t, src, es)
			require.EqualValues(t, n, root.Entries)
			require.Equal(t, n <= maxWhole, len(objs) == 1)
			r := NewReader(src, 1<<20)
			d, err := r.Open(ctx, root.Hash)
			require.NoError(t, err)
			require.Equal(t, root, d.Root())
			require.Equal(t, n, len(entries(t, d, 0)))
			require.True(t, n == 0 || entries(t, d, 0)[n/2] == es[n/2])
			require.NoError(t, Verify(ctx, r, root.Hash))
		})
	}
}

// TestFormIsPinned: what is stored stays readable and is found again only while
// the same directory has the same hash.
func TestFormIsPinned(t *testing.T) {
	for n, want := range map[int]string{
		300:    "1c0ccd659369a4367e3a69de2d6f6fbdfa3fec2ff4d4521c8e3ebdbd89177095",
		20_000: "29bd189e67f60819588a0415801141bb66f2703ce81fad52bba1b7c45bc344bf",
	} {
		var es []Entry
		for i := range n {
			es = append(es, file(fmt.Sprintf("file-%05d", i), "x"))
		}
		root, _ := store(t, newMemory(), es)
		require.Equal(t, want, root.Hash.String(), "%d files", n)
	}
}

// TestHostileNames: names that are cut points at each level still make lists
// that get shorter.
func TestHostileNames(t *testing.T) {
	var es []Entry
	for i := 0; len(es) < 2000; i++ {
		name := fmt.Sprintf("%08d", i)
		if cutPoint(0, name) && cutPoint(1, name) {
			es = append(es, file(name, ""))
		}
	}
	src := newMemory()
	root, objs := store(t, src, es)
	require.LessOrEqual(t, len(objs), 2000/minSegment+2)
	require.NoError(t, Verify(context.Background(), NewReader(src, 0), root.Hash))
}

// TestOneChange: a save of a large folder in which little changed costs
// kilobytes.
func TestOneChange(t *testing.T) {
	src := newMemory()
	es := flat(43_009, 7)
	_, old := store(t, src, es)
	have := map[cas.Key]bool{}
	for _, o := range old {
		have[o.Key] = true
	}
	cost := func(es []Entry) int {
		sum := 0
		_, objs := store(t, src, es)
		for _, o := range objs {
			if !have[o.Key] {
				sum += len(o.Data)
			}
		}
		return sum
	}
	changed, removed, worst := 0, 0, 0
	const tries = 4
	for i := range tries {
		at := i * len(es) / tries
		next := append([]Entry(nil), es...)
		next[at].Hash = content("changed")
		n := cost(next)
		changed += n
		worst = max(worst, n)

		next = append([]Entry(nil), es[:at]...)
		next = append(next, es[at+1:]...)
		removed += cost(next)
	}
	t.Logf("one entry changed: %d bytes on average, %d at worst; one removed: %d on average", changed/tries, worst, removed/tries)
	require.Less(t, worst, 12_000)
	require.Less(t, removed/tries, 16_000)
}

// What is taken early out of a large directory is what it has in the end.
func TestBuilderSettles(t *testing.T) {
	for _, n := range []int{0, 256, 257, 5_000, 60_000} {
		var whole, early Builder
		var got []cas.Object
		most := 0
		for i := range n {
			e := file(fmt.Sprintf("%08d-%s", i, strings.Repeat("n", 60)), "x")
			require.NoError(t, whole.Add(e, Totals{}))
			require.NoError(t, early.Add(e, Totals{}))
			most = max(most, len(early.buf))
			got = append(got, early.Settled()...)
		}
		root, want, err := whole.Finish()
		require.NoError(t, err)
		same, rest, err := early.Finish()
		require.NoError(t, err)
		require.Equal(t, root, same)
		require.Equal(t, want, append(got, rest...), "%d entries", n)
		if n == 60_000 {
			require.NotEmpty(t, got)
			require.Less(t, most, 2*settleAt)
		}
		again, objs, err := early.Finish()
		require.NoError(t, err)
		require.Zero(t, again.Entries)
		require.Len(t, objs, 1)
	}
}
