package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update has the guides' blocks say what the program prints.
var update = flag.Bool("update", false, "write what the program prints into the guides")

// TestGuides runs every block of the guides, each page in an empty directory with a store of
// its own: it prints what stands there, but for ids, times and sizes of the store.
func TestGuides(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	require.Len(t, pages, 11)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			require.Contains(t, string(readme), "(docs/guides/"+filepath.Base(page)+")")
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			if strings.Contains(string(text), "$ snapfs mount") && !canMount() {
				require.NotEqual(t, "1", os.Getenv("SNAPFS_NEED_FUSE"))
				t.Skip("no FUSE")
			}
			if strings.Contains(string(text), "$ snapfs workspace") && (!canMount() || os.Geteuid() != 0) {
				t.Skip("no FUSE, or not root")
			}
			blocks := consoleBlocks(t, string(text))
			require.NotEmpty(t, blocks)
			dir := t.TempDir()
			work := filepath.Join(dir, "work")
			require.NoError(t, os.Mkdir(work, 0o755))
			printed := runBlocks(t, dir, work, "", blocks)
			for i := range printed {
				printed[i] = strings.ReplaceAll(printed[i], work+"/", "")
			}
			if *update {
				rest := string(text)
				var b strings.Builder
				for i, block := range blocks {
					before, after, _ := strings.Cut(rest, block)
					b.WriteString(before + printed[i])
					rest = after
				}
				require.NoError(t, os.WriteFile(page, []byte(b.String()+rest), 0o644))
				return
			}
			for i := range blocks {
				require.Equal(t, changeless(blocks[i]), changeless(printed[i]))
			}
		})
	}
}

// consoleBlocks returns what stands in a page's blocks. All of them are sessions: what else is to
// be typed would not be run.
func consoleBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	parts := strings.Split(page, "```")
	require.Equal(t, 1, len(parts)%2, "a block without an end")
	for i, part := range parts {
		if i%2 == 0 {
			require.NotContains(t, part, "\n    ", "a block without ticks")
			continue
		}
		block, ok := strings.CutPrefix(part, "console\n")
		require.True(t, ok, "a block of another kind: %s", part)
		blocks = append(blocks, block)
	}
	return blocks
}

// runBlocks types blocks of commands, each behind "$ " and with "> " before its further lines,
// into one shell that begins with some more, and returns the blocks with what was printed.
// dir has its store and home, and work is where it is.
func runBlocks(t *testing.T, dir, work, before string, blocks []string) []string {
	t.Helper()
	scripts, err := filepath.Abs("../../scripts")
	require.NoError(t, err)
	const end = "END OF A BLOCK"
	script := "ls() { command ls -C -w 80 \"$@\"; }\n" + before
	for _, block := range blocks {
		for _, command := range typed(block) {
			script += "echo " + shellQuote("$ "+strings.TrimSuffix(strings.ReplaceAll(command, "\n", "\n> "), "\n> ")) + "\n" + command
		}
		script += "echo '" + end + "'\n"
	}
	t.Cleanup(func() {
		require.NoError(t, unmountAll(dir))
	})
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), programEnv+"=1", "SNAPFS_STORE="+filepath.Join(dir, "store"), "HOME="+dir, "XDG_CONFIG_HOME=", "LC_ALL=C.UTF-8",
		"GORACE=atexit_sleep_ms=10", "PATH="+programDir(t)+":"+scripts+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	printed := strings.Split(string(out), end+"\n")
	require.Len(t, printed, len(blocks)+1, string(out))
	return printed[:len(blocks)]
}

// typed returns the commands of a block.
func typed(block string) (commands []string) {
	more := false // the line before was of a command
	for line := range strings.Lines(block) {
		if first, ok := strings.CutPrefix(line, "$ "); ok {
			commands, more = append(commands, first), true
		} else if rest, ok := strings.CutPrefix(line, "> "); ok && more {
			commands[len(commands)-1] += rest
		} else {
			more = false
		}
	}
	return commands
}

// Of a session: ids, times, how much the store grew, lengths of commands' columns.
var (
	oddID    = regexp.MustCompile(`[0-9]{8}-[0-9]{6}-[0-9a-f]{8}`)
	oddTime  = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?(\.[0-9]+Z?)?|(?m:[A-Z][a-z]{2} +[0-9]{1,2} +([0-9]{2}:[0-9]{2}|[0-9]{4}))`)
	oddSize  = regexp.MustCompile(`\([0-9.]+ (KiB|B) new\)|(?m:^[0-9]+$)|[0-9a-f]{64}`)
	oddAdded = regexp.MustCompile(`(T  +[0-9]+  +[0-9.]+ K?i?B  +)[0-9.]+ K?i?B`)
	spaces   = regexp.MustCompile(` +`)
)

// changeless is a session without what differs each time.
func changeless(s string) string {
	s = oddTime.ReplaceAllString(oddID.ReplaceAllString(s, "ID"), "T")
	s = oddSize.ReplaceAllString(oddAdded.ReplaceAllString(s, "${1}#"), "#")
	return spaces.ReplaceAllString(s, " ")
}
