package tree

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
)

func TestLinks(t *testing.T) {
	groups := [][]string{{"b/x", "a/x"}, {"a/b", "a/a", "\xff"}, {"c", "ca"}}
	b, err := EncodeLinks(groups)
	require.NoError(t, err)
	got, err := DecodeLinks(b)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a/a", "a/b", "\xff"}, {"a/x", "b/x"}, {"c", "ca"}}, got)
	require.Equal(t, "b/x", groups[0][0], "the argument is not sorted in place")

	b, err = EncodeLinks(nil)
	require.NoError(t, err)
	got, err = DecodeLinks(b)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestLinksRefused(t *testing.T) {
	for _, groups := range [][][]string{
		{{}}, {{"a"}}, {{"a", "a"}}, {{"a", "b"}, {"b", "c"}}, {{"a", ".."}}, {{"/a", "b"}}, {{"a", "b/"}}, {{"", "a"}},
		{{"a", strings.Repeat("d/", 2048)}}, {{"a\x00", "b"}}, {{"a", "b"}, nil},
	} {
		_, err := EncodeLinks(groups)
		require.ErrorIs(t, err, ErrInvalid, "%.80q", groups)
	}
}

func TestDecodeLinksRefuses(t *testing.T) {
	_, err := DecodeLinks([]byte("sfl\x01\x01\x02\x00\x01a\x01\x01b"))
	require.NoError(t, err, "the form that the rest are variations of: a, ab")
	for why, data := range map[string]string{
		"empty":             "",
		"no count":          "sfl\x01",
		"magic":             "sfx\x01\x01\x02\x00\x01a\x01\x01b",
		"trailing":          "sfl\x01\x01\x02\x00\x01a\x01\x01b\x00",
		"short":             "sfl\x01\x01\x02\x00\x01a\x01\x01",
		"huge count":        "sfl\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"huge group":        "sfl\x01\x01\xff\xff\xff\xff\x0f\x00\x01a\x01\x01b",
		"one path":          "sfl\x01\x01\x01\x00\x03abc",
		"no path":           "sfl\x01\x01\x00\x00\x00\x00\x00",
		"shares too much":   "sfl\x01\x01\x02\x00\x01a\x02\x01b",
		"shares too little": "sfl\x01\x01\x02\x00\x01a\x00\x02ab",
		"unsorted":          "sfl\x01\x01\x02\x00\x01b\x00\x01a",
		"twice":             "sfl\x01\x01\x02\x00\x01a\x01\x00",
		"dot dot":           "sfl\x01\x01\x02\x00\x01a\x00\x04../b",
		"groups unsorted":   "sfl\x01\x02\x02\x00\x01c\x00\x01d\x02\x00\x01a\x00\x01b",
		"twice in groups":   "sfl\x01\x02\x02\x00\x01a\x00\x01d\x02\x00\x01b\x01\x00",
	} {
		_, err := DecodeLinks([]byte(data))
		require.ErrorIs(t, err, ErrInvalid, why)
	}
}

// TestLinksUnfold: a short list can not fill the memory.
func TestLinksUnfold(t *testing.T) {
	long := strings.Repeat("d/", 2000)
	b := []byte("sfl\x01\x01")
	const n = 80_000
	b = append(b, 0x80|n&0x7f, 0x80|n>>7&0x7f, n>>14)
	b = append(b, 0)
	b = appendString(b, long+"00000")
	for i := 1; i < n; i++ {
		path := fmt.Sprintf("%s%05d", long, i)
		shared := common(fmt.Sprintf("%s%05d", long, i-1), path)
		b = append(b, byte(0x80|shared&0x7f), byte(shared>>7))
		b = appendString(b, path[shared:])
	}
	require.Less(t, len(b), 1<<20)
	_, err := DecodeLinks(b)
	require.ErrorIs(t, err, ErrInvalid)
}

// TestManyLinks: a list with more names than memory should have is refused, and what
// would become one is not made.
func TestManyLinks(t *testing.T) {
	group := make([]string, maxLinkNames+1)
	for i := range group {
		group[i] = fmt.Sprintf("%07x", i)
	}
	_, err := EncodeLinks([][]string{group})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	b := append([]byte("sfl\x01\x01"), binary.AppendUvarint(nil, maxLinkNames+1)...)
	_, err = DecodeLinks(append(b, make([]byte, 3*maxLinkNames)...))
	require.ErrorIs(t, err, ErrInvalid)
	b = append([]byte("sfl\x01"), binary.AppendUvarint(nil, maxLinkNames/2+1)...)
	_, err = DecodeLinks(append(b, make([]byte, 6*maxLinkNames)...))
	require.ErrorIs(t, err, ErrInvalid)
}

// TestLinksAreShort: the names of a copied tree cost little.
func TestLinksAreShort(t *testing.T) {
	var groups [][]string
	text := 0
	for i := range 5000 {
		path := fmt.Sprintf("node_modules/package-%03d/dist/esm/internal/module-%04d.js", i/50, i)
		groups = append(groups, []string{"packages/app/" + path, "packages/web/" + path})
		text += 2*len(path) + 26
	}
	b, err := EncodeLinks(groups)
	require.NoError(t, err)
	t.Logf("%d bytes of paths in %d", text, len(b))
	require.Less(t, len(b), text/5)
}

func TestLinksModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfDistinct(rapid.StringMatching(`[ab]{1,3}(/[ab\x80]{1,2}){0,2}`), rapid.ID).Draw(t, "paths")
		var groups [][]string
		for len(paths) >= 2 {
			n := rapid.IntRange(2, min(len(paths), 5)).Draw(t, "n")
			groups = append(groups, slices.Sorted(slices.Values(paths[:n])))
			paths = paths[n:]
		}
		b, err := EncodeLinks(groups)
		require.NoError(t, err)
		got, err := DecodeLinks(b)
		require.NoError(t, err)
		require.ElementsMatch(t, groups, got)
		again, err := EncodeLinks(got)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
