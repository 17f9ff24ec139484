package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// FuzzParseBytes: a size is a number of bytes, and one that is shown can be typed.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "0", "10485760", "10M", "1.5GiB", "7 kB", "1e3", "-1", "16E", "8EiB", "9223372036854775807", "9223372036854775808", "NaN", "0x10", "1,000", "K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseBytes(s)
		if err != nil {
			require.Zero(t, n)
			require.True(t, utf8.ValidString(err.Error()))
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		require.LessOrEqual(t, n, int64(math.MaxInt64))
	})
}

// yamlError is what is true of every error about a file.
func yamlError(t *testing.T, err error) {
	t.Helper()
	require.NotContains(t, err.Error(), "panic")
	require.Less(t, len(err.Error()), 1<<16)
}

// FuzzPolicyFile: a policy file that is accepted makes a policy, or its error names a
// pattern.
func FuzzPolicyFile(f *testing.F) {
	for _, s := range []string{
		"", "version: 1\nexclude: ['*.log', '!keep.log']\ninclude:\n  - /src/\nnoDefaultExcludes: true\n", "exclude: &a [x]\ninclude: *a\n",
		"version: 2\n", "exclude: x\n", "exclude: [[x]]\n", "exclude: [~]\n", "a: b\n", "--- 1\n--- 2\n", "exclude: ['[a']\n", "? [a]\n: b\n", "<<: {version: 1}\n", "\xff", "version: !!binary aGk=\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := policyFile{Version: 1}
		if err := decodeYAML(bytes.NewReader(data), &file); err != nil {
			yamlError(t, err)
			return
		}
		for _, p := range append(file.Exclude, file.Include...) {
			require.Positive(t, p.line)
			require.LessOrEqual(t, p.line, bytes.Count(data, []byte("\n"))+strings.Count(string(data), "\r")+3*strings.Count(string(data), "\u2028")+3*strings.Count(string(data), "\u2029")+strings.Count(string(data), "\u0085")+1)
			if _, err := policy.CompileFiles(policy.FilesOptions{Exclude: []policy.Rule{{Pattern: p.pattern, Source: "x"}}}); err != nil {
				var bad *policy.PatternError
				require.True(t, errors.As(err, &bad), "%v", err)
			}
		}
	})
}

// FuzzConfigFile: a configuration that is accepted sets what it says, and no more.
func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{
		"", "version: 1\nstore: /s\nlog: {level: debug}\nlimits:\n  maxSize: 10M\nmount: {allowOther: true}\n", "store: ~\n", "log: x\n", "mount: {allowOther: yes}\n",
		"limits: {maxSize: [1]}\n", "store: a\nstore: b\n", "stor: a\n", "version: 1.0\n", "log: {level: &x debug, format: *x}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := configFile{Version: 1}
		if err := decodeYAML(bytes.NewReader(data), &file); err != nil {
			yamlError(t, err)
			return
		}
		for _, s := range settings {
			if v := s.file(&file); v != nil && s.check != nil {
				if err := s.check(*v); err != nil {
					yamlError(t, err)
				}
			}
		}
	})
}

// FuzzArtifactFlag: NAME=FILE;type=MEDIA is taken apart at its first = and its last
// ;type=, and what names no file is refused.
func FuzzArtifactFlag(f *testing.F) {
	for _, s := range []string{"a=/dev/null", "a=/dev/null;type=text/html", "a==", "=x", "a=b=c;type=d;type=e", "a=;type=x", "a=\xff", "a=\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := artifactFile(text)
		if err != nil {
			require.Equal(t, snapshot.ArtifactFile{}, a)
			return
		}
		_, err = os.Stat(a.Path)
		require.NoError(t, err)
		require.NotEmpty(t, a.Name)
		require.NotContains(t, a.Name, "=")
		again := a.Name + "=" + a.Path
		if again != text {
			again += ";type=" + a.MediaType
		}
		require.Equal(t, text, again)
	})
}

// FuzzQuoted: what is shown stays in its line and tells a terminal nothing.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"a", "", "a b", "\x1b[2J", "a\nb", "\xff", `"\`, "\u202e", "\u0085", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, shown := range []string{quote(s), inLine(s), printable(errors.New(strings.ReplaceAll(s, "\n", " ")))} {
			require.True(t, utf8.ValidString(shown), "%q", shown)
			for _, r := range shown {
				require.False(t, r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0, "%q", shown)
			}
		}
	})
}
