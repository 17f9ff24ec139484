package secrets

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJSONCheckSays: what is wrong, and at which byte.
func TestJSONCheckSays(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "the end where an array is wanted at byte 0",
		" \n":                  "the end where an array is wanted at byte 2",
		`{"a":1}`:              "an object where an array is wanted at byte 0",
		"\n\"x\"":              "a string where an array is wanted at byte 1",
		"null":                 "true, false or null where an array is wanted at byte 0",
		"-1":                   "a number where an array is wanted at byte 0",
		"[1]\n[2]":             "an array behind the end of the array at byte 4",
		"[1] x":                "'x' behind the end of the array at byte 4",
		"[1":                   "the end where the end of a number is wanted at byte 2",
		`["a`:                  "the end where the rest of a string is wanted at byte 3",
		"[1,]":                 "']' where a value is wanted at byte 3",
		`[{"a":1,}]`:           "'}' where a key is wanted at byte 8",
		`[{"a" 1}]`:            "'1' where a colon is wanted at byte 6",
		`[{1:1}]`:              "'1' where a key or } is wanted at byte 2",
		"[1 2]":                "'2' where a comma or the end of the array or object is wanted at byte 3",
		"[01]":                 "'1' where a comma or the end of the array or object is wanted at byte 2",
		"[tru]":                "']' where the rest of true, false or null is wanted at byte 4",
		"[\"a\nb\"]":           "control character 0x0a in a string at byte 3",
		`["\x"]`:               "'x' where the rest of an escape is wanted at byte 3",
		`["\u12g4"]`:           "'g' where a hex digit is wanted at byte 6",
		"[1.]":                 "']' where a digit is wanted at byte 3",
		"\xef\xbb\xbf[]":       "byte 0xef where an array is wanted at byte 0",
		"[\x00]":               "byte 0x00 where a value or ] is wanted at byte 1",
		"['a']":                "''' where a value or ] is wanted at byte 1",
		deep(MaxJSONDepth + 1): "more than 10000 arrays and objects in one another at byte 10000",
	} {
		c := JSONCheck{Array: true}
		_, err := c.Write([]byte(text))
		if err == nil {
			err = c.End()
		}
		var syntax *JSONError
		require.True(t, errors.As(err, &syntax), "%q", text)
		require.EqualError(t, err, want, "%.40q", text)
		top := strings.Contains(want, "where an array is wanted") || strings.Contains(want, "behind")
		require.Equal(t, top && json.Valid([]byte(text[syntax.Off:])), syntax.Document, "%q", text)
		require.Equal(t, err, c.End())
		if !strings.HasPrefix(want, "more") {
			_, err = c.Write([]byte("[]"))
			require.Error(t, err, "%q", text)
		}
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestJSONCheckTakes: everything that encoding/json does.
func TestJSONCheckTakes(t *testing.T) {
	for _, text := range []string{
		"[]", " [ ] \r\n\t", `[{"role":"user","role":"again"}]`, "[\"\xff\xfe\"]", `["\ud800"]`, `[1,-0,0.5,1e5,1E-2,-12.50e+3]`,
		`[[],{},"",null,true,false]`, `[{"a":{"b":[{"c":[]}]}}]`, `["\"\\\/\b\f\n\r\t\u00Ff"]`, deep(MaxJSONDepth), "[\"\x7f\"]",
	} {
		require.True(t, json.Valid([]byte(text)))
		for _, size := range []int{1, 2, len(text)} {
			c := JSONCheck{Array: true}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				_, err := c.Write([]byte(rest[:n]))
				require.NoError(t, err, "%.40q", text)
				rest = rest[n:]
			}
			require.NoError(t, c.End(), "%.40q", text)
		}
	}
}
