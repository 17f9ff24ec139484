package secrets

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSearchInPieces: whatever pieces a content comes in, as many ranges are counted as
// in the whole.
func TestSearchInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 1, 4).Draw(t, "values")
		s := setOf(t, values...)
		parts := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[ab]{0,20}`), rapid.SampledFrom(values)), 0, 8).Draw(t, "parts")
		var whole []byte
		search := s.Search()
		for _, p := range parts {
			gap := rapid.SampledFrom([]int{0, 0, 1, 3, 16, 24, 25, 100}).Draw(t, "gap")
			if gap > 0 {
				whole = append(whole, make([]byte, gap)...)
				search.Skip(int64(gap))
			}
			whole = append(whole, p...)
			rest := []byte(p)
			for len(rest) > 0 {
				n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
				_, err := search.Write(bytes.Clone(rest[:n]))
				require.NoError(t, err)
				rest = rest[n:]
			}
		}
		require.Equal(t, s.Count(whole), search.Count())
	})
}

func TestSearchNothing(t *testing.T) {
	var none *Set
	search := none.Search()
	_, err := search.Write([]byte("anything at all"))
	require.NoError(t, err)
	require.Zero(t, search.Count())
	require.Zero(t, setOf(t, "12345678").Search().Count())
}

// TestJSONStrings: what a document says is found, however it spells it, in keys and in
// one document after the other; what is no JSON is searched as it is.
func TestJSONStrings(t *testing.T) {
	s := setOf(t, `pass"word/ä1`)
	for text, want := range map[string]int{
		`{"a":"pass\"word\/\u00e41"}`:                                1,
		`{"pass\"word/ä1":["x pass\"word/ä1 pass\"word\/ä1"]}`:       3,
		`{"a":1} {"a":"pass\u0022word/ä1"}`:                          1,
		"\n[true,null,\"nothing\"]":                                  0,
		`pass"word/ä1`:                                               1,
		`{"a":"\u0070ass\"word/ä1"} x pass"word/ä1`:                  1, // no JSON: only the last
		`["\u0070ass\"word/ä1"]`:                                     1,
		`["\u0070ass\"word/ä1", `:                                    0, // no JSON
		`"a surrogate \ud83d\ude00 in front of pass\"word\/\u00e41"`: 1,
	} {
		search := s.SearchJSON()
		for _, c := range []byte(text) {
			_, err := search.Write([]byte{c})
			require.NoError(t, err)
		}
		require.Equal(t, want, search.Count(), "%s", text)
	}
}
