package secrets

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRedactJSON: what was JSON is JSON without the value afterwards, or is refused.
func FuzzRedactJSON(f *testing.F) {
	f.Add([]byte(`{"a":["x s3cr3t-value y",12345678,true,null]}`), "s3cr3t-value")
	f.Add([]byte("[\"\\u0073\\ud83d\\ude00 \\\\n\"]\n{}"), `"\\u0073\ud`)
	f.Add([]byte(`["abc","defgh"]`), `abc","de`)
	f.Fuzz(func(t *testing.T, data []byte, value string) {
		set, err := NewSet([]Value{{Bytes: []byte(value), Source: "fuzz"}})
		if err != nil || !json.Valid(data) {
			return
		}
		out, ranges, err := redactJSON(t, set, data, func() int { return len(data)%7 + 1 })
		if err != nil {
			require.ErrorIs(t, err, ErrUnusable)
			return
		}
		require.True(t, json.Valid(out), "%q", out)
		require.NotContains(t, string(out), value)
		for _, r := range ranges {
			require.Equal(t, strings.Repeat("*", int(r.Len)), string(out[r.Off:r.End()]))
		}
		if len(ranges) == 0 {
			require.Equal(t, data, out)
		}
	})
}

// FuzzJSONCheck: what encoding/json takes is taken, and nothing else, in whatever pieces;
// what is no JSON can be searched, too.
func FuzzJSONCheck(f *testing.F) {
	set := setOf(f, "s3cr3t-value")
	for _, text := range []string{`[{"a":[1,-0.5e+10,true,false,null,"\u00e4\n"]}]`, "1 2\n[]", "\ufeff[]", `truefalse"a"01-2`, `[1,]`, `{"a":1,}`, "\"\x01\"", "[\"\xff\"]", `[01]`, "[1e]", `"\ud800"`} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		check := func(c *JSONCheck) error {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), int(size)+1)
				if _, err := c.Write(rest[:n]); err != nil {
					require.Error(t, c.End())
					return err
				}
				rest = rest[n:]
			}
			return c.End()
		}
		array := json.Valid(data) && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
		require.Equal(t, array, check(&JSONCheck{Array: true}) == nil, "%q", data)
		require.Equal(t, documents(data), check(&JSONCheck{}) == nil, "%q", data)
		search := set.SearchJSON()
		_, _ = search.Write(data)
		require.GreaterOrEqual(t, search.Count(), set.Count(data))
	})
}

// FuzzReader: a reader gives what the whole becomes, whatever its pieces are.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a s3cr3t-value b s3cr3t-values3cr3t-value"), "s3cr3t-value", uint16(3))
	f.Add(bytes.Repeat([]byte("abababab"), 100), "abababab", uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, value string, size uint16) {
		set, err := NewSet([]Value{{Bytes: []byte(value), Source: "fuzz"}})
		if err != nil {
			return
		}
		want := bytes.Clone(data)
		report, err := Screen{Set: set, Detect: true}.Screen(want, nil)
		r := Screen{Set: set, Detect: true}.Reader(&pieces{data: data, next: func(most int) int { return min(most, int(size)+1) }, hole: func() bool { return size%2 == 0 }}, nil)
		defer r.Close()
		got, rerr := io.ReadAll(r)
		require.ErrorIs(t, rerr, err)
		if err == nil {
			require.Equal(t, want, got)
			require.Equal(t, report, r.Report())
			require.NotContains(t, string(got), value)
		}
	})
}
