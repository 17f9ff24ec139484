package tree

import (
	"context"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// encode writes an object down again.
func (o *object) encode() []byte {
	b := appendHead(nil, o.level, o.count())
	rest, dirs := o.totals, false
	for i := range o.count() {
		if o.level > 0 {
			it := o.item(i)
			b = appendItem(b, o.level, &it)
			continue
		}
		e := o.entry(i)
		b = appendEntry(b, &e)
		var own Totals
		_ = own.addEntry(&e)
		rest.Files -= own.Files
		rest.Dirs -= own.Dirs
		rest.Bytes -= own.Bytes
		rest.XAttrs -= own.XAttrs
		rest.Redacted -= own.Redacted
		dirs = dirs || e.Kind == Dir
	}
	if dirs {
		b = appendTotals(b, rest)
	}
	return b
}

// Pieces of directory objects.
const (
	someHash = "0123456789abcdef0123456789abcdef"
	fileA    = "\x01\x01a\xa4\x03\x02\x00\x01" + someHash // a file "a", mode 0644, 1 s, one byte
	fileB    = "\x01\x01b\xa4\x03\x02\x00\x01" + someHash
	itemA    = "\x01a\x10\x10\x00\x10\x00\x00" + someHash // an item "a" of 16 files of one byte
	itemB    = "\x01b\x01\x01\x00\x01\x00\x00" + someHash
)

// wellFormed has objects, without what they all begin with.
var wellFormed = []string{
	"\x00\x00", "\x00\x01" + fileA, "\x00\x02" + fileA + fileB, "\x01\x02" + itemA + itemB,
	"\x00\x01\x02\x01a\x00\x00\x00" + someHash + "\x00\x00\x00\x00\x00",
	"\x00\x01\x03\x01a\x00\x00\x00\x01t",
	"\x00\x01\x09\x01a\x00\x00\x00\x00\x00\x01" + someHash,
	"\x00\x01\x31\x01a\x00\x00\x00\x01" + someHash + someHash + "\x03",
	"\x02\x01\x01a\x10\x80\x02\x80\x02\x00\x80\x02\x00\x00" + someHash,
}

func TestDecodeRefuses(t *testing.T) {
	const f, g, it, last, h = fileA, fileB, itemA, itemB, someHash
	zero := string(make([]byte, 32))
	const head = "sfd\x01"
	for _, good := range wellFormed {
		o, err := decodeObject(head + good)
		require.NoError(t, err, "%q", good)
		require.Equal(t, head+good, string(o.encode()))
	}
	for why, data := range map[string]string{
		"nothing":              "",
		"magic":                "sfx\x01\x00\x00",
		"version":              "sfd\x02\x00\x00",
		"no level":             head,
		"no count":             head + "\x00",
		"trailing":             head + "\x00\x00\x00",
		"trailing entry":       head + "\x00\x01" + f + g,
		"count too large":      head + "\x00\x03" + f + g,
		"huge count":           head + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + f,
		"more than 64 bits":    head + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02" + f,
		"long count":           head + "\x00\x81\x00" + f,
		"long mode":            head + "\x00\x01\x01\x01a\xa4\x83\x00\x02\x00\x01" + h,
		"long size":            head + "\x00\x01\x01\x01a\xa4\x03\x02\x00\x81\x00" + h,
		"long seconds":         head + "\x00\x01\x01\x01a\xa4\x03\x82\x00\x00\x01" + h,
		"seconds of 65 bits":   head + "\x00\x01\x01\x01a\xa4\x03\x82\x80\x80\x80\x80\x80\x80\x80\x80\x02\x00\x01" + h,
		"257 entries":          head + "\x00\x81\x02" + strings.Repeat(f, 257),
		"level":                head + "\x10\x02" + it + last,
		"empty list":           head + "\x01\x00",
		"unsorted":             head + "\x00\x02" + g + f,
		"twice":                head + "\x00\x02" + f + f,
		"kind 0":               head + "\x00\x01\x00\x01a\xa4\x03\x02\x00\x01" + h,
		"kind 4":               head + "\x00\x01\x04\x01a\xa4\x03\x02\x00\x01" + h,
		"head bit 6":           head + "\x00\x01\x41\x01a\xa4\x03\x02\x00\x01" + h,
		"head bit 7":           head + "\x00\x01\x81\x01a\xa4\x03\x02\x00\x01" + h,
		"no name":              head + "\x00\x01\x01\x00\xa4\x03\x02\x00\x01" + h,
		"dot":                  head + "\x00\x01\x01\x01.\xa4\x03\x02\x00\x01" + h,
		"dot dot":              head + "\x00\x01\x01\x02..\xa4\x03\x02\x00\x01" + h,
		"slash":                head + "\x00\x01\x01\x03a/b\xa4\x03\x02\x00\x01" + h,
		"absolute":             head + "\x00\x01\x01\x02/b\xa4\x03\x02\x00\x01" + h,
		"NUL":                  head + "\x00\x01\x01\x02a\x00\xa4\x03\x02\x00\x01" + h,
		"setuid":               head + "\x00\x01\x01\x01a\xa4\x13\x02\x00\x01" + h,
		"nanoseconds":          head + "\x00\x01\x01\x01a\xa4\x03\x02\x80\x94\xeb\xdc\x03\x01" + h,
		"size of 2^63":         head + "\x00\x01\x01\x01a\xa4\x03\x02\x00\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" + h,
		"file without hash":    head + "\x00\x01\x01\x01a\xa4\x03\x02\x00\x01" + zero,
		"dir without hash":     head + "\x00\x01\x02\x01a\x00\x00\x00" + zero + "\x00\x00\x00\x00\x00",
		"dir without totals":   head + "\x00\x01\x02\x01a\x00\x00\x00" + h,
		"totals without dir":   head + "\x00\x01" + f + "\x00\x00\x00\x00\x00",
		"redacted, no files":   head + "\x00\x01\x02\x01a\x00\x00\x00" + h + "\x00\x00\x00\x00\x01",
		"attributes, no files": head + "\x00\x01\x02\x01a\x00\x00\x00" + h + "\x00\x00\x00\x01\x00",
		"totals overflow":      head + "\x00\x01\x02\x01a\x00\x00\x00" + h + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00\x00",
		"dirs overflow":        head + "\x00\x01\x02\x01a\x00\x00\x00" + h + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00",
		"xattrs zero":          head + "\x00\x01\x11\x01a\xa4\x03\x02\x00\x01" + h + zero,
		"flags zero":           head + "\x00\x01\x21\x01a\xa4\x03\x02\x00\x01" + h + "\x00",
		"flags unknown":        head + "\x00\x01\x21\x01a\xa4\x03\x02\x00\x01" + h + "\x04",
		"flags of a symlink":   head + "\x00\x01\x23\x01a\x00\x00\x00\x01t\x01",
		"owner too large":      head + "\x00\x01\x09\x01a\x00\x00\x00\xff\xff\xff\xff\x0f\x00\x01" + h,
		"no target":            head + "\x00\x01\x03\x01a\x00\x00\x00\x00",
		"NUL in target":        head + "\x00\x01\x03\x01a\x00\x00\x00\x01\x00",
		"long target":          head + "\x00\x01\x03\x01a\x00\x00\x00\x80\x20" + strings.Repeat("t", 4096),
		"short target":         head + "\x00\x01\x03\x01a\x00\x00\x00\x05abcd",
		"items unsorted":       head + "\x01\x02" + "\x01c" + it[2:] + last,
		"item twice":           head + "\x01\x02" + it + "\x01a" + last[2:],
		"short segment":        head + "\x01\x02" + "\x01a\x0f\x10\x00\x10\x00\x00" + h + last,
		"long segment":         head + "\x01\x01" + "\x01a\x41\x41\x00\x41\x00\x00" + h,
		"empty segment":        head + "\x01\x02" + it + "\x01b\x00\x01\x00\x01\x00\x00" + h,
		"item without hash":    head + "\x01\x02" + it + last[:8] + zero,
		"item's name":          head + "\x01\x02" + it + "\x01/" + last[2:],
		"more than its totals": head + "\x01\x02" + it + "\x01b\x02\x01\x00\x01\x00\x00" + h,
		"fewer entries":        head + "\x02\x01\x01a\x10\x0f\x80\x02\x00\x80\x02\x00\x00" + h,
	} {
		_, err := decodeObject(data)
		require.ErrorIs(t, err, ErrInvalid, why)
		_, err = Refs([]byte(data))
		require.ErrorIs(t, err, ErrInvalid, why)

		src := newMemory()
		obj := cas.NewObject(cas.Trees, cas.Data, []byte(data))
		src.put(obj)
		_, err = NewReader(src, 0).Open(context.Background(), obj.Key.Hash)
		requireCorrupt(t, err)
	}
	// One that is cut anywhere is refused.
	var b Builder
	for _, e := range hard() {
		require.NoError(t, b.Add(e, Totals{}))
	}
	_, objs, err := b.Finish()
	require.NoError(t, err)
	for n := range objs[0].Data {
		_, err := decodeObject(string(objs[0].Data[:n]))
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// TestWorkedExample: the format page shows what the code does.
func TestWorkedExample(t *testing.T) {
	set, err := EncodeXAttrs([]XAttr{{Name: "user.tag", Value: []byte("new")}})
	require.NoError(t, err)
	links, err := EncodeLinks([][]string{{"src/a.txt", "src/b.txt"}})
	require.NoError(t, err)
	var b Builder
	require.NoError(t, b.Add(Entry{
		Name: "hello.txt", Kind: File, Mode: 0o644, Size: 6, Hash: content("hello\n"),
		MtimeSec: 1_700_000_000, MtimeNsec: 5, XAttrs: set.Key.Hash,
	}, Totals{}))
	require.NoError(t, b.Add(Entry{Name: "link", Kind: Symlink, Mode: 0o777, Size: 9, Target: "hello.txt", MtimeSec: -1}, Totals{}))
	empty := cas.NewObject(cas.Trees, cas.Data, []byte("sfd\x01\x00\x00"))
	require.NoError(t, b.Add(Entry{Name: "void", Kind: Dir, Mode: 0o1777, Hash: empty.Key.Hash, Owned: true, UID: 1000}, Totals{}))
	root, objs, err := b.Finish()
	require.NoError(t, err)

	page, err := os.ReadFile("../docs/FORMAT.md")
	require.NoError(t, err)
	// Comments stand behind three blanks.
	squeezed := ""
	for line := range strings.SplitSeq(string(page), "\n") {
		line, _, _ = strings.Cut(line, "   ")
		squeezed += strings.ReplaceAll(line, " ", "")
	}
	for what, b := range map[string][]byte{
		"directory": objs[0].Data, "root": root.Hash[:], "set": set.Data, "links": links, "empty": empty.Data, "empty's hash": empty.Key.Hash[:],
	} {
		if !strings.Contains(squeezed, hex.EncodeToString(b)) {
			t.Errorf("the page lacks the %s: %x", what, b)
		}
	}
}

func TestRefs(t *testing.T) {
	src := newMemory()
	var b Builder
	for _, e := range hard() {
		require.NoError(t, b.Add(e, Totals{}))
	}
	_, objs, err := b.Finish()
	require.NoError(t, err)
	refs, err := Refs(objs[0].Data)
	require.NoError(t, err)
	var want []Ref
	for _, e := range hard() {
		switch e.Kind {
		case File:
			want = append(want, Ref{Key: cas.Key{NS: cas.Files, Hash: e.Hash}, Size: e.Size})
		case Dir:
			want = append(want, Ref{Key: cas.Key{NS: cas.Trees, Hash: e.Hash}})
		}
		if !e.XAttrs.IsZero() {
			want = append(want, Ref{Key: cas.Key{NS: cas.Trees, Hash: e.XAttrs}})
		}
	}
	require.Equal(t, want, refs)

	// Following them reaches each object of a large directory.
	root, objs := store(t, src, flat(20_000, 8))
	seen := map[cas.Hash]bool{}
	todo := []cas.Hash{root.Hash}
	files := 0
	for len(todo) > 0 {
		h := todo[0]
		todo = todo[1:]
		seen[h] = true
		data, err := src.Read(context.Background(), cas.Key{NS: cas.Trees, Hash: h}, nil)
		require.NoError(t, err)
		refs, err := Refs(data)
		require.NoError(t, err)
		for _, ref := range refs {
			if ref.Key.NS == cas.Files {
				files++
			} else {
				todo = append(todo, ref.Key.Hash)
			}
		}
	}
	require.Len(t, seen, len(objs))
	require.Equal(t, 20_000, files)

	set, err := EncodeXAttrs([]XAttr{{Name: "user.x"}})
	require.NoError(t, err)
	links, err := EncodeLinks(nil)
	require.NoError(t, err)
	for _, data := range [][]byte{set.Data, links} {
		refs, err = Refs(data)
		require.NoError(t, err)
		require.Empty(t, refs)
	}
}

func TestVerifyCountsAgain(t *testing.T) {
	ctx := context.Background()
	src := newMemory()
	child, _ := store(t, src, []Entry{file("f", "data")})
	var b Builder
	wrong := child.Totals
	wrong.Bytes++
	require.NoError(t, b.Add(dir("a", child.Hash), wrong))
	root, objs, err := b.Finish()
	require.NoError(t, err)
	src.put(objs...)
	r := NewReader(src, 1<<20)
	require.NoError(t, Walk(ctx, r, root.Hash, func(string, Entry) error { return nil }))
	requireCorrupt(t, Verify(ctx, r, root.Hash))

	missing := file("f", "data")
	missing.XAttrs = content("no such set")
	root, _ = store(t, src, []Entry{missing})
	require.ErrorIs(t, Verify(ctx, r, root.Hash), cas.ErrNotFound)
}
