package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// TestConversationMemory: a save of the longest conversation, and all that read it, need
// little more memory than without one, with a declared value too. SNAPFS_LARGE=1 does it.
func TestConversationMemory(t *testing.T) {
	if os.Getenv("SNAPFS_LARGE") != "1" {
		t.Skip("SNAPFS_LARGE=1 writes a conversation of 256 MiB")
	}
	dir := t.TempDir()
	talk, list, ws := filepath.Join(dir, "talk"), filepath.Join(dir, "list"), filepath.Join(dir, "ws")
	f, err := os.Create(talk)
	require.NoError(t, err)
	w, size := bufio.NewWriterSize(f, 1<<20), 2
	_ = w.WriteByte('[')
	for i := 0; ; i++ {
		message := fmt.Sprintf(`{"role":"user","id":%d,"content":"%s\n the pass\u0077ord-1234 %s"},`, i, strings.Repeat("some text\\t", i%97), strings.Repeat("é", i%13))
		if size += len(message); size > snapshot.MaxConversation {
			break
		}
		_, _ = w.WriteString(message)
	}
	_, _ = w.WriteString("0]")
	require.NoError(t, w.Flush())
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(list, []byte("password-1234\n"), 0o600))
	require.NoError(t, os.Mkdir(ws, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(ws, "f"), []byte("x"), 0o600))

	program, err := os.Executable()
	require.NoError(t, err)
	run := func(args ...string) int64 {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), programEnv+"=1", "SNAPFS_STORE="+filepath.Join(dir, "store"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Run(), "%s", stderr.String())
		most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
		t.Logf("%d MiB: %s", most>>20, args)
		return most
	}
	bare := run("save", "--thread", "t", "--id", "bare", ws)
	for _, args := range [][]string{
		{"save", "--thread", "t", "--id", "kept", "--conversation", talk, ws},
		{"save", "--thread", "u", "--id", "redacted", "--redact-file", list, "--conversation", talk, ws},
		{"conversation", "redacted"},
		{"restore", "--conversation", filepath.Join(dir, "back"), "kept", filepath.Join(dir, "new")},
		{"verify"},
		{"scrub", "--redact-file", list, "--thread", "u"},
	} {
		require.Less(t, run(args...), bare+64<<20, "%s", args)
	}
	want, err := os.ReadFile(talk)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "back"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
