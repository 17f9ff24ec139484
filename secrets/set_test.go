package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNewSet(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		err   error
	}{
		"empty":        {"", ErrTooShort},
		"seven bytes":  {"1234567", ErrTooShort},
		"eight bytes":  {"12345678", nil},
		"longest":      {strings.Repeat("x", MaxLength), nil},
		"too long":     {strings.Repeat("x", MaxLength+1), ErrUnusable},
		"zero byte":    {"12345\x00678", ErrUnusable},
		"only stars":   {"**********", ErrUnusable},
		"only a space": {strings.Repeat(" ", 20), ErrUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := NewSet([]Value{{Bytes: []byte("another-value"), Source: "first"}, {Bytes: []byte(tt.value), Source: "second"}})
			if tt.err == nil {
				require.NoError(t, err)
				require.Equal(t, 2, set.Len())
				return
			}
			require.ErrorIs(t, err, tt.err)
			require.Contains(t, err.Error(), "second: ")
			require.NotContains(t, err.Error(), "first")
			if tt.value != "" {
				require.NotContains(t, err.Error(), tt.value)
			}
		})
	}
	none, err := NewSet(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	require.Empty(t, none.Find([]byte("anything at all")))
	require.Equal(t, "anything at all", none.Mask("anything at all"))
}

// Whatever prints a set or a value does not show what is in it.
func TestPrinted(t *testing.T) {
	v := Value{Bytes: []byte("s3cr3t-value"), Source: "variable TOKEN"}
	set, err := NewSet([]Value{v})
	require.NoError(t, err)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
		for _, x := range []any{v, &v, *set, set, []Value{v}, map[string]any{"a": set}} {
			text := fmt.Sprintf(format, x)
			require.NotContains(t, text, "s3cr3t", "%s of %T", format, x)
			require.NotContains(t, strings.ToLower(text), "733363723374", "%s of %T", format, x)
			require.NotContains(t, text, "115 51 99", "%s of %T", format, x)
		}
	}
	data, err := json.Marshal([]any{v, set})
	require.NoError(t, err)
	require.NotContains(t, string(data), "s3cr3t")
	require.NotContains(t, string(data), base64.StdEncoding.EncodeToString(v.Bytes)[:8])
}

func TestLines(t *testing.T) {
	got := Lines([]byte("first-value\n\r\nsecond value\r\n\nthird"), "F")
	require.Equal(t, []Value{{[]byte("first-value"), "F:1"}, {[]byte("second value"), "F:3"}, {[]byte("third"), "F:5"}}, got)
	require.Empty(t, Lines(nil, "F"))
}

func TestFind(t *testing.T) {
	for name, tt := range map[string]struct {
		values     []string
		text, want string
	}{
		"none":             {[]string{"abcdefgh"}, "abcdefg abcdefh", "abcdefg abcdefh"},
		"all of it":        {[]string{"abcdefgh"}, "abcdefgh", "********"},
		"side by side":     {[]string{"abcdefgh"}, "abcdefghabcdefgh", "****************"},
		"the longest":      {[]string{"abcdefgh", "abcdefghij", "abcdefghi"}, "xabcdefghijx", "x**********x"},
		"one in another":   {[]string{"abcdefgh", "0abcdefgh0"}, "0abcdefgh0 abcdefgh1", "********** ********1"},
		"itself":           {[]string{"abababab"}, "xababababababx", "x************x"},
		"chained":          {[]string{"abcd1234", "1234wxyz", "wxyzabcd"}, "-abcd1234wxyzabcd-", "-****************-"},
		"one byte before":  {[]string{"aaaaaaab"}, "aaaaaaaaaaab", "aaaa********"},
		"begins the same":  {[]string{"token-12345678", "token-12349999"}, "token-12349999 token-12345678", "************** **************"},
		"around the value": {[]string{"  spaced-value\n"}, "x=spaced-value;", "x=************;"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, setOf(t, tt.values...).Mask(tt.text))
		})
	}
}

// The spellings of text formats are covered, too.
func TestSpellings(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQC7VJTUt9Us8cKj+/x9==\n-----END KEY-----"
	// As Python's quote, encodeURIComponent, and PHP's json_encode write them.
	for value, text := range map[string]string{
		"p@ss word 12345!":   "p%40ss%20word%2012345%21 p%40ss%20word%2012345! p%40ss+word+12345%21",
		"it's (a) pass/word": "it%27s%20%28a%29%20pass/word it's%20(a)%20pass%2Fword it's%20(a)%20pass%2fword",
		"s3cr3t/ä@\"<12345":  `s3cr3t\/\u00e4@\"<12345 s3cr3t\/\u00E4@\"\u003C12345 \"s3cr3t/ä@\\\"\\u003c12345\"`,
	} {
		require.Len(t, setOf(t, value).Find([]byte(text)), 3, "%s in %s", value, text)
	}
	for _, value := range []string{"p@ss/w\"örd&\\1<2>\n3", "postgres-p%40ss:word?", "plain-value-1234", key} {
		set := setOf(t, value)
		twice := func(s string) string {
			data, err := json.Marshal(s)
			require.NoError(t, err)
			return string(data)
		}
		for name, text := range map[string]string{
			"plain": value, "JSON": twice(value), "JSON in JSON": twice(twice(value)), "ASCII": string(escaped([]byte(value), false, false, `\u%04x`)), "PHP": string(escaped([]byte(value), false, true, `\u%04X`)),
			"Go in Python": string(escaped(escaped([]byte(value), true, false, ""), false, false, `\u%04x`)),
			"slashes":      strings.ReplaceAll(string(escaped([]byte(value), false, false, "")), "/", `\/`),
			"query":        "https://x/?a=" + url.QueryEscape(value) + "&b", "path": "https://" + url.PathEscape(value) + "@x/",
			"CRLF": strings.ReplaceAll(value, "\n", "\r\n"),
		} {
			found := set.Find([]byte(text))
			require.Len(t, found, 1, "%s of %q", name, value)
			require.GreaterOrEqual(t, int(found[0].Len), len(value), name)
		}
		for shift := range 5 {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := enc.EncodeToString([]byte(strings.Repeat("u", shift) + value + ":rest"))
				found := set.Find([]byte(text))
				require.Len(t, found, 1, "%q behind %d", value, shift)
				require.GreaterOrEqual(t, int(found[0].Len), len(value)*8/6-1)
			}
		}
	}
	indented := "key: |\n  " + strings.ReplaceAll(key, "\n", "\n  ")
	masked := setOf(t, key).Mask(indented)
	require.NotContains(t, masked, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj")
	require.Contains(t, masked, "  -----BEGIN KEY-----\n", "what many files have is not a secret")
}

// What is plain has the spellings that it would have if it were not taken for that.
func TestPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := []byte(rapid.StringMatching(`[A-Za-z0-9._-]{8,30}`).Draw(t, "value"))
		require.True(t, isPlain(value))
		for _, form := range append(append(jsonForms(value), urlForms(value)...), octal(value)) {
			require.Equal(t, value, form)
		}
	})
}

// plainFind is what Find should return, the slow way.
func plainFind(set *Set, data []byte) []bool {
	covered := make([]bool, len(data))
	for _, some := range set.match.begins {
		for _, p := range some {
			for at := 0; at+len(p) <= len(data); at++ {
				if bytes.HasPrefix(data[at:], p) {
					for i := range p {
						covered[at+i] = true
					}
				}
			}
		}
	}
	return covered
}

// values draws a set of values that often overlap, and of which texts often have some.
func values(t *rapid.T) (set *Set, all []string) {
	all = rapid.SliceOfN(rapid.OneOf(
		rapid.StringMatching(`[ab]{8,12}`),
		rapid.StringMatching(`[a-c]{8,9}`),
		rapid.StringN(8, 40, 200),
	).Filter(func(s string) bool { return Value{Bytes: []byte(s)}.Check() == nil }), 1, 5).Draw(t, "values")
	return setOf(t, all...), all
}

func texts(all []string) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(all), rapid.StringMatching(`[a-c]{0,12}`), rapid.StringN(0, 8, 30),
			rapid.Custom(func(t *rapid.T) string {
				v := rapid.SampledFrom(all).Draw(t, "of")
				return v[rapid.IntRange(0, len(v)).Draw(t, "from"):]
			})), 0, 20).Draw(t, "parts")
		return []byte(strings.Join(parts, ""))
	})
}

func TestFindAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, all := values(t)
		data := texts(all).Draw(t, "data")
		covered := make([]bool, len(data))
		last := int64(0)
		for _, r := range set.Find(data) {
			require.GreaterOrEqual(t, r.Off, last)
			require.GreaterOrEqual(t, r.Len, int64(MinLength))
			last = r.End()
			for i := r.Off; i < r.End(); i++ {
				covered[i] = true
			}
		}
		require.Equal(t, plainFind(set, data), covered)
	})
}
