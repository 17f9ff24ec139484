package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme runs the session of README.md: it prints what stands there, but for
// ids and for sizes that follow from them.
func TestReadme(t *testing.T) {
	if !canMount() {
		require.NotEqual(t, "1", os.Getenv("SNAPFS_NEED_FUSE"))
		t.Skip("no FUSE")
	}
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, page, found := strings.Cut(string(text), "\n## A session\n")
	require.True(t, found)
	before, rest, found := strings.Cut(page, "```console\n")
	require.True(t, found)
	session, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)

	dir := t.TempDir()
	commands := ""
	for line := range strings.Lines(before) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands += command
		}
	}
	here := strings.NewReplacer("/tmp/", dir+"/")
	printed := runBlocks(t, dir, "../..", here.Replace(commands), []string{here.Replace(session)})
	require.Equal(t, changeless(session), changeless(strings.ReplaceAll(printed[0], dir+"/", "/tmp/")))
}

// shellQuote makes one word for a shell of any text.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
