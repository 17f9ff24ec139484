package main

import (
	"errors"
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

// TestPrintNothing: what fails prints nothing, unless it has printed more than
// can be held back.
func TestPrintNothing(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		print func(func(io.Writer) error) error
		bytes int
		fails error
		want  int
	}{
		{"whole", printWhole, 1000, nil, 1000},
		{"whole, failing", printWhole, 3 << 20, broken, 0},
		{"content", printContent, 3 << 20, nil, 3 << 20},
		{"content, failing", printContent, 1000, broken, 0},
		{"much content, failing", printContent, 3 << 20, broken, 3 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			stdout, _ := output(t, func() {
				err = c.print(func(w io.Writer) error {
					_, err := w.Write(make([]byte, c.bytes))
					return errors.Join(err, c.fails)
				})
			})
			require.Equal(t, c.fails != nil, err != nil)
			require.Len(t, stdout, c.want)
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
