package secrets

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func setOf(t require.TestingT, values ...string) *Set {
	var list []Value
	for _, v := range values {
		list = append(list, Value{Bytes: []byte(v), Source: "test"})
	}
	set, err := NewSet(list)
	require.NoError(t, err)
	return set
}

func TestRedactJSON(t *testing.T) {
	for name, tt := range map[string]struct {
		values   []string
		in, want string
		count    int
	}{
		"a value":              {[]string{"s3cr3t-value-12345"}, `[{"role":"user","content":"x s3cr3t-value-12345 y"}]`, `[{"role":"user","content":"x ****************** y"}]`, 1},
		"a key":                {[]string{"s3cr3t-value"}, `{"s3cr3t-value": 1}`, `{"************": 1}`, 1},
		"twice":                {[]string{"s3cr3t-value"}, `["s3cr3t-values3cr3t-value"]`, `["************************"]`, 2},
		"escaped":              {[]string{"s3cr3t-value"}, `["\u00733cr3t-v\u0061lue\n\u00e4"]`, `["************\n\u00e4"]`, 1},
		"of several bytes":     {[]string{"pässwörter"}, `["a\"p\u00e4ssw\u00f6rter", "pässwörter"]`, `["a\"************", "************"]`, 2},
		"beyond the BMP":       {[]string{"key-😀-key"}, `["\ud83d\ude00 key-\ud83d\ude00-key"]`, `["\ud83d\ude00 ************"]`, 1},
		"with a line break":    {[]string{"line one\nline two"}, `["line one\nline two"]`, `["*****************"]`, 1},
		"JSON in a string":     {[]string{"line \"one\"\nline two"}, `["{\"a\":\"line \\\"one\\\"\\nline two\"}"]`, `["{\"a\":\"**********************\"}"]`, 1},
		"as it is written":     {[]string{`pass\new1`}, `["a pass\new1"]`, `["**********"]`, 1},
		"a number":             {[]string{"1234567890"}, `{"pin": 1234567890, "n": 12}`, `{"pin": "**********", "n": 12}`, 1},
		"with the quotes":      {[]string{`"s3cr3t-value"`}, `["a", "s3cr3t-value", "b"]`, `["a", "************", "b"]`, 1},
		"over several strings": {[]string{`abc","def`}, `["x-abc","def-y"]`, `["*****","*****"]`, 2},
		"an empty string":      {[]string{`abc","","def`}, `["x-abc","","def-y"]`, `["*****","","*****"]`, 2},
		"none":                 {[]string{"s3cr3t-value"}, " [ 1.5e+3, \"s3cr3t\" ]\n[]", " [ 1.5e+3, \"s3cr3t\" ]\n[]", 0},
		"overlapping":          {[]string{"abcdefgh", "efghijkl", "abcdefghi"}, `["zabcdefghijklz"]`, `["z************z"]`, 1},
		"before and behind":    {[]string{`s3cr3t-value`, `abc","def`}, `["s3cr3t-value","\u0041","x-abc","def-y","s3cr3t-value"]`, `["************","\u0041","*****","*****","************"]`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			out, ranges, err := redactJSON(t, setOf(t, tt.values...), []byte(tt.in), func() int { return 7 })
			require.NoError(t, err)
			require.Equal(t, tt.want, string(out))
			require.Len(t, ranges, tt.count)
			for _, r := range ranges {
				require.Equal(t, strings.Repeat("*", int(r.Len)), string(out[r.Off:r.End()]))
			}
		})
	}
	for _, size := range []int{1, 9, 1000} {
		_, _, err := redactJSON(t, setOf(t, "[[[[[[[["), []byte("[[[[[[[[1]]]]]]]]"), func() int { return size })
		require.ErrorIs(t, err, ErrUnusable)
		require.NotContains(t, err.Error(), "[[")
	}
}

// redactJSON reads a document that comes in pieces through [Screen.JSON], and compares the
// result with what becomes of the whole.
func redactJSON(t require.TestingT, set *Set, data []byte, size func() int) ([]byte, []Range, error) {
	r := Screen{Set: set}.JSON(&pieces{data: data, next: func(most int) int { return min(most, max(size(), 1)) }, hole: func() bool { return false }}, nil)
	defer r.Close()
	out, err := io.ReadAll(r)
	ranges := r.Report().Redacted
	want, wantRanges, wantErr := set.redactWhole(data)
	wantRanges = slices.DeleteFunc(wantRanges, func(r Range) bool { return r.Len == 0 }) // an empty string stays one
	if wantErr != nil {
		require.ErrorIs(t, err, ErrUnusable, "%q", data)
		require.Empty(t, set.Find(out), "%q", data)
		return nil, nil, err
	}
	require.NoError(t, err, "%q", data)
	require.Equal(t, string(want), string(out))
	require.ElementsMatch(t, wantRanges, ranges)
	require.True(t, slices.IsSortedFunc(ranges, func(a, b Range) int { return int(a.Off - b.Off) }))
	if json.Valid(data) {
		search := set.SearchJSON()
		for rest := data; len(rest) > 0; {
			n := min(len(rest), max(size(), 1))
			_, _ = search.Write(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, max(len(wantRanges), set.Count(data)), search.Count())
	}
	return out, ranges, nil
}

// TestRedactJSONAcross: values that take in the signs between strings, in documents of
// pieces of these, become what they become in the whole, wherever it is cut.
func TestRedactJSONAcross(t *testing.T) {
	bits := []string{`"`, `","`, `[`, `]`, `\"`, `\\`, `\u0061`, `a`, `b`, `1`, `,`, `abcdefgh`, `":"`, `{"a":1}`, `12345678`, ` `}
	text := rapid.SliceOfN(rapid.SampledFrom(bits), 1, 24)
	rapid.Check(t, func(t *rapid.T) {
		join := func(label string) string { return strings.Join(text.Draw(t, label), "") }
		doc := join("document")
		var values []string
		for range rapid.IntRange(1, 3).Draw(t, "values") {
			value := join("value")
			if rapid.Bool().Draw(t, "of the document") {
				from := rapid.IntRange(0, len(doc)).Draw(t, "from")
				value = doc[from:rapid.IntRange(from, len(doc)).Draw(t, "to")]
			}
			if (Value{Bytes: []byte(value)}).Check() == nil {
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			t.Skip("no value")
		}
		if !documents([]byte(doc)) {
			in, err := json.Marshal([]string{doc, "x", doc})
			require.NoError(t, err)
			doc = string(in)
		}
		_, _, _ = redactJSON(t, setOf(t, values...), []byte(doc), func() int { return rapid.IntRange(1, 20).Draw(t, "piece") })
	})
}

// documents reports whether data is JSON documents, one after the other.
func documents(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var doc json.RawMessage
		if err := dec.Decode(&doc); err != nil {
			return err == io.EOF
		}
	}
}

// What is JSON stays JSON of the same shape, and has no declared value any more, as it is
// written or decoded; without values it is what it was.
func TestRedactAnyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.StringN(8, 20, 100), rapid.StringMatching(`[a-c"\\\n]{8,12}`)).Filter(func(s string) bool {
			return Value{Bytes: []byte(s)}.Check() == nil
		}).Draw(t, "value")
		set := setOf(t, value)
		text := rapid.SliceOfN(rapid.OneOf(rapid.Just(value), rapid.StringN(0, 5, 20), rapid.Just(string(escaped([]byte(value), false, false, `\u%04x`)))), 0, 6)
		doc := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			doc[strings.Join(text.Draw(t, "key"), "")] = strings.Join(text.Draw(t, "text"), "")
		}
		in, err := json.Marshal(doc)
		require.NoError(t, err)
		out, ranges, err := redactJSON(t, set, in, func() int { return rapid.IntRange(1, 40).Draw(t, "piece") })
		require.NoError(t, err)
		require.True(t, json.Valid(out), "%q", out)
		require.False(t, bytes.Contains(out, []byte(value)))
		if len(ranges) == 0 {
			require.Equal(t, in, out)
		}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			tok, err := dec.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			if s, ok := tok.(string); ok {
				require.NotContains(t, s, value)
			}
		}
	})
}
