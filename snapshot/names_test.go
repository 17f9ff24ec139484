package snapshot

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEncodeName(t *testing.T) {
	for _, c := range []struct{ id, name string }{
		{"plain-1_x", "plain-1_x"},
		{"20261129-195934-7f3a9c1e", "20261129-195934-7f3a9c1e"},
		{"with space", "with space"},
		{"emoji \U0001F600 \u00e9", "emoji \U0001F600 \u00e9"},
		{"x/../../PWNED", "x%2F..%2F..%2FPWNED"},
		{".", "%2E"},
		{"..", "%2E."},
		{".hidden", "%2Ehidden"},
		{"a.b", "a.b"},
		{"/", "%2F"},
		{"100%", "100%25"},
		{"%2E", "%252E"},
		{"tab\tnew\nline\x01\x7f", "tab%09new%0Aline%01%7F"},
		{"latest", "%6Catest"},
		{"by-name", "%62y-name"},
		{"Latest", "Latest"},
		{"latest ", "latest "},
		{strings.Repeat("a", 255), strings.Repeat("a", 255)},
		{strings.Repeat("a", 256), strings.Repeat("a", 200) + "%hdfce7664ce28f7fdebfdbdb06e9f4513"},
		{strings.Repeat("/", 85), strings.Repeat("%2F", 85)},
		{strings.Repeat("/", 86), strings.Repeat("%2F", 66) + "%ha3e06a56c78e2447ef3140d9484d2300"},
	} {
		require.Equal(t, c.name, EncodeName(c.id), "%q", c.id)
		id, long, ok := DecodeName(c.name)
		require.True(t, ok, "%q", c.name)
		require.Equal(t, len(c.id) > 255 || strings.Contains(c.name, "%h"), long)
		if !long {
			require.Equal(t, c.id, id)
		}
	}
}

// TestCutName: neither an escape nor a character is cut in two.
func TestCutName(t *testing.T) {
	for _, unit := range []string{"/", "\u00e9", "\u20ac", "\U0001F600", "a/\U0001F600"} {
		for shift := range 4 {
			id := strings.Repeat("x", shift) + strings.Repeat(unit, 200)
			name := EncodeName(id)
			require.LessOrEqual(t, len(name), 255)
			require.True(t, utf8.ValidString(name))
			kept, _, ok := strings.Cut(name, "%h")
			require.True(t, ok)
			require.LessOrEqual(t, len(kept), 200)
			require.Greater(t, len(kept), 200-4)
			start, long, ok := DecodeName(kept)
			require.True(t, ok && !long, "%q", kept)
			require.True(t, strings.HasPrefix(id, start))
		}
	}
}

func TestDecodeNameRefuses(t *testing.T) {
	for _, name := range []string{
		".", "..", ".hidden", "latest", "by-name", // reserved, or written otherwise
		"%2f", "%6catest", "%62Y-name%", // lower case, cut off
		"%", "%2", "a%", "a%2", "%zz", "%h", "a%h0", // no escapes
		"%61", "%41bc", "a%2E", "a%6Catest", "%6Catests", // nothing that is escaped
		"%00%", "a\nb", "a\x7fb", "a/b",
		strings.Repeat("a", 256),
	} {
		_, long, ok := DecodeName(name)
		require.False(t, ok, "%q", name)
		require.False(t, long)
	}
}

// FuzzEncodeName: a name of an id can be a file's name, and leads back.
func FuzzEncodeName(f *testing.F) {
	for _, id := range []string{"a", "..", "latest", "by-name", "%2F", "x/../y", strings.Repeat("\u00e9/", 128), "\x00", "\xff", strings.Repeat("a", 221) + "%h" + strings.Repeat("0", 32)} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if id == "" {
			return // no id
		}
		name := EncodeName(id)
		require.LessOrEqual(t, len(name), 255)
		require.NotContains(t, []string{"", ".", "..", "latest", "by-name"}, name)
		require.False(t, strings.HasPrefix(name, "."))
		for _, c := range []byte(name) {
			require.False(t, c < ' ' || c == 0x7f || c == '/', "%q", name)
		}
		if utf8.ValidString(id) {
			require.True(t, utf8.ValidString(name))
		}
		got, long, ok := DecodeName(name)
		require.True(t, ok)
		if !long {
			require.Equal(t, id, got)
		}
	})
}

// TestArtifactNames: a repeated name gets the artifact's id, and what looks like that by
// itself is no other's.
func TestArtifactNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ names, want []string }{
		{[]string{"a", "a", "a"}, []string{"a", "a~1", "a~2"}},
		{[]string{"a", "a", "a~1"}, []string{"a", "a~1", "a~1~2"}},
		{[]string{"a~2", "a", "a"}, []string{"a~2", "a", "a~2~2"}},
		{[]string{"a~2", "a~2~2", "a", "a"}, []string{"a~2", "a~2~2", "a", "a~3"}},
		{[]string{"a/b", "a%2Fb", ".", ".."}, []string{"a%2Fb", "a%252Fb", "%2E", "%2E."}},
		{[]string{"latest", "%6Catest", "\x00", "\n"}, []string{"%6Catest", "%256Catest", "%00", "%0A"}},
		{[]string{long, long, long + "~1"}, []string{EncodeName(long), EncodeName(long + "~1"), EncodeName(long + "~1~2")}},
		{nil, []string{}},
	} {
		require.Equal(t, tt.want, ArtifactNames(artifactsCalled(tt.names)), "%q", tt.names)
	}
}

// artifactsCalled makes artifacts with the ids 0, 1, 2 and so on.
func artifactsCalled(names []string) []Artifact {
	list := make([]Artifact, len(names))
	for i, name := range names {
		list[i] = Artifact{ID: strconv.Itoa(i), Name: name}
	}
	return list
}

// TestArtifactNamesDiffer: whatever artifacts are called, each has a file name of its own
// that can be one, and the first of a name has what the name alone gives.
func TestArtifactNamesDiffer(t *testing.T) {
	parts := []string{"a", "~1", "~2", "~", "/", "..", ".", "%", "%2F", "%h", "latest", "by-name", "\x00", "\x7f", "\u00e9", "\U0001F600", "A", strings.Repeat("x", 120), strings.Repeat("/", 70), "%h" + strings.Repeat("0", 32)}
	name := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 5), func(p []string) string { return strings.Join(p, "") }),
		rapid.StringN(1, 300, 4096),
	)
	rapid.Check(t, func(t *rapid.T) {
		list := artifactsCalled(rapid.SliceOfN(name, 0, 40).Draw(t, "names"))
		names := ArtifactNames(list)
		require.Len(t, names, len(list))
		seen, first := map[string]bool{}, map[string]bool{}
		for i, n := range names {
			require.False(t, seen[n], "%q", n)
			free := !seen[EncodeName(list[i].Name)]
			seen[n] = true
			require.True(t, len(n) > 0 && len(n) <= MaxFileName && !strings.ContainsAny(n, "/\x00") && n[0] != '.', "%q", n)
			if free && !first[list[i].Name] {
				require.Equal(t, EncodeName(list[i].Name), n)
			}
			first[list[i].Name] = true
		}
		require.Equal(t, names, ArtifactNames(list))
		more := ArtifactNames(append(list, Artifact{ID: "more", Name: name.Draw(t, "one more")}))
		require.Equal(t, names, more[:len(names)], "one more changes nothing")
	})
}

// FuzzDecodeName: an id has one name.
func FuzzDecodeName(f *testing.F) {
	for _, name := range []string{"a", "%2E", "%2e", "%6Catest", "%h", strings.Repeat("b", 200) + "%h" + strings.Repeat("0", 32)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, long, ok := DecodeName(name); ok && !long {
			require.Equal(t, name, EncodeName(id))
		}
	})
}
