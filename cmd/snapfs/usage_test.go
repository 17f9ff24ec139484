package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrongFlags: a mistake on the command line is exit code 2 with a hint on
// stderr, whichever verb it is made at, and nothing on stdout.
func TestWrongFlags(t *testing.T) {
	for _, line := range []string{
		"--no-such-flag save dir",
		"save --no-such-flag dir",
		"diff --no-such-flag a b",
		"save dir --thread",
		"save dir --store",
		"list --limit many",
		"no-such-verb",
		"show",
	} {
		t.Run(line, func(t *testing.T) {
			t.Setenv("SNAPFS_STORE", t.TempDir())
			code := -1
			stdout, stderr := output(t, func() { code = run(t.Context(), append([]string{"snapfs"}, strings.Fields(line)...)) })
			require.Equal(t, exitUsage, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "\nhint: ")
		})
	}
}

// output runs fn and returns what it wrote to the standard streams.
func output(t *testing.T, fn func()) (stdout, stderr string) {
	t.Helper()
	files := [2]*os.File{}
	streams := [2]**os.File{&os.Stdout, &os.Stderr}
	for i, stream := range streams {
		f, err := os.CreateTemp(t.TempDir(), "stream")
		require.NoError(t, err)
		defer f.Close()
		old := *stream
		defer func() { *stream = old }()
		files[i], *stream = f, f
	}
	fn()
	texts := [2]string{}
	for i, f := range files {
		_, err := f.Seek(0, io.SeekStart)
		require.NoError(t, err)
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		texts[i] = string(text)
	}
	return texts[0], texts[1]
}
