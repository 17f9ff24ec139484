package tree

import (
	"os/exec"
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

// TestQuoteShell has a shell read the words again.
func TestQuoteShell(t *testing.T) {
	for path, want := range map[string]string{
		"plain/path-1.txt": "plain/path-1.txt",
		"":                 "''",
		"a b":              "'a b'",
		"it's $HOME":       `'it'\''s $HOME'`,
		"na\nme\xff":       `$'na\nme\377'`,
		"it's\ta \\":       `$'it\'s\ta \\'`,
		`say "x"`:          `$'say "x"'`,
		"héllo":            "héllo",
	} {
		require.Equal(t, want, QuoteShell(path))
		out, err := exec.Command("bash", "-c", "printf %s "+want).Output()
		require.NoError(t, err)
		require.Equal(t, path, string(out))
	}
}
