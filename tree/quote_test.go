package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	for path, want := range map[string]string{
		"":                   `""`,
		"plain/path with sp": "plain/path with sp",
		"héllo/😀":            "héllo/😀",
		"na\nme\xff":         `"na\nme\377"`,
		`a"b\c`:              `"a\"b\\c"`,
		"tab\tbell\a":        `"tab\tbell\007"`,
		"\u202ertl":          `"\342\200\256rtl"`,
		"-dash":              "-dash",
	} {
		require.Equal(t, want, Quote(path))
	}
}
