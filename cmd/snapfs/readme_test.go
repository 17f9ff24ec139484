package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/fs"
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
	bin := programDir(t)
	script := "cd ../..\nls() { command ls -C -w 80 \"$@\"; }\n"
	for line := range strings.Lines(before) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			script += command
		}
	}
	for line := range strings.Lines(session) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			script += "echo " + shellQuote(strings.TrimSpace(line)) + "\n" + command
		}
	}
	t.Cleanup(func() { _ = fs.Unmount(filepath.Join(dir, "checkpoints"), true) })
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(script, "/tmp/", dir+"/"))
	cmd.Env = append(os.Environ(), programEnv+"=1", "SNAPFS_STORE="+filepath.Join(dir, "store"), "HOME="+dir, "XDG_CONFIG_HOME=", "LC_ALL=C", "GORACE=atexit_sleep_ms=10", "PATH="+bin+":"+os.Getenv("PATH"))
	got, err := cmd.CombinedOutput()
	require.NoError(t, err, string(got))

	odd := regexp.MustCompile(`[0-9]{8}-[0-9]{6}-[0-9a-f]{8}|\([0-9.]+ (KiB|B) new\)|(?m:^[0-9]+$)`)
	normal := func(s string) string {
		return odd.ReplaceAllString(strings.ReplaceAll(s, dir+"/", "/tmp/"), "#")
	}
	require.Equal(t, normal(session), normal(string(got)))
}

// shellQuote makes one word for a shell of any text.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
