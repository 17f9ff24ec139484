package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

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

// TestOddPathsInErrors: whatever path an error names, it has one line and a hint,
// and nothing that a terminal would take for a command.
func TestOddPathsInErrors(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "store")
	code := -1
	stdout, stderr := output(t, func() {
		code = run(t.Context(), []string{"snapfs", "--store", good, "save", "--thread", "t", "--id", "base", dir, "--exclude", "*"})
	})
	require.Equal(t, exitUsage, code, "it holds the store")
	require.Empty(t, stdout, stderr)
	ws := t.TempDir()
	_, stderr = output(t, func() {
		code = run(t.Context(), []string{"snapfs", "--store", good, "save", "--thread", "t", "--id", "base", ws})
	})
	require.Zero(t, code, stderr)
	for _, odd := range []string{"new\nline", "esc\x1b[31m", "\xff bytes", "tab\t and \"quotes\""} {
		absent, file := filepath.Join(dir, odd), filepath.Join(dir, odd+"file")
		full := filepath.Join(dir, odd+"dir")
		require.NoError(t, os.WriteFile(file, []byte("unknown: [key"), 0o600))
		require.NoError(t, os.Mkdir(full, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(full, odd), nil, 0o600))
		for _, line := range [][]string{
			{"save", "--thread", "t", absent},
			{"save", "--thread", "t", file},
			{"save", "--thread", "t", ws, "--policy", absent},
			{"save", "--thread", "t", ws, "--policy", file},
			{"save", "--thread", "t", ws, "--policy", full},
			{"save", "--thread", "t", ws, "--conversation", absent},
			{"save", "--thread", "t", ws, "--conversation", file},
			{"save", "--thread", "t", ws, "--conversation", full},
			{"save", "--thread", "t", ws, "--artifact", "a=" + absent},
			{"save", "--thread", "t", ws, "--artifact", "a=" + full},
			{"save", "--thread", "t", ws, "--artifact", odd},
			{"save", "--thread", "t", ws, "--label", odd},
			{"save", "--thread", "t", ws, "--compression", odd},
			{"save", "--thread", "t", ws, "--max-size", odd},
			{"save", "--thread", "t", ws, "--parent", odd},
			{"save", "--thread", "t", ws, "--id", odd + "\x00"},
			{"save", "--thread", "t", ws, "--name", "\xff" + odd},
			{"artifact", "add", "t", absent},
			{"artifact", "add", "t", full},
			{"artifact", "read", "base", odd},
			{"artifact", "remove", "t", odd},
			{"artifact", odd},
			{"restore", "base", full},
			{"restore", "base", file},
			{"restore", "base", filepath.Join(file, odd)},
			{"restore", "base", filepath.Join(good, odd)},
			{"restore", odd, absent},
			{"cat", "base", odd},
			{"cat", odd, odd},
			{"ls", "base", odd},
			{"diff", "base", odd},
			{"diff", "base", "base", odd},
			{"show", odd},
			{"list", odd},
			{"list", "--before", odd},
			{"rename", odd, odd},
			{"rename", "base", "\xff" + odd},
			{"fork", odd, odd},
			{"fork", "base", "\xff" + odd},
			{"delete", odd},
			{"delete", "--thread", odd},
			{"verify", odd},
			{"conversation", odd},
			{"mount", absent},
			{"mount", file},
			{"mount", filepath.Join(file, odd)},
			{"umount", absent},
			{"umount", full},
			{"list", "--store", absent},
			{"list", "--store", file},
			{"list", "--store", full},
			{"save", "--store", full, ws},
			{"init", "--store", full},
			{"init", "--store", filepath.Join(file, odd)},
			{"list", "--config", absent},
			{"list", "--config", file},
			{"list", "--config", full},
			{"list", "--log-file", full},
			{"list", "--log-level", odd},
			{"help", odd},
			{odd},
			{"--" + odd},
		} {
			stdout, stderr := output(t, func() { code = run(t.Context(), append([]string{"snapfs", "--store", good}, line...)) })
			require.Positive(t, code, "%q", line)
			require.Empty(t, stdout, "%q", line)
			require.NotContains(t, stderr, odd, "%q", line)
			require.True(t, utf8.ValidString(stderr), "%q: %q", line, stderr)
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			require.LessOrEqual(t, len(lines), 2, "%q: %s", line, stderr)
			require.Regexp(t, "^snapfs: ", lines[0], "%q", line)
			for i, text := range lines {
				require.NotRegexp(t, `[[:cntrl:]]`, text, "%q", line)
				require.True(t, i == 0 || strings.HasPrefix(text, "hint: "), "%q: %s", line, stderr)
			}
		}
	}
}
