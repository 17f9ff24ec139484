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
		out, ranges, err := set.RedactJSON(data)
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
