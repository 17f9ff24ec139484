package fs_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/soak"
)

// resident returns a process's resident memory in bytes.
func (d *daemon) resident() int64 {
	d.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	require.NoError(d.t, err)
	_, rest, ok := strings.Cut(string(data), "VmRSS:")
	require.True(d.t, ok)
	kib := int64(0)
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(d.t, err)
	return kib << 10
}

// TestMemory: what the kernel knows of a large tree costs the daemon little, a
// second pass nothing, and once it has forgotten it is given back. SNAPFS_LARGE
// makes the tree as large as it should be: a million entries.
func TestMemory(t *testing.T) {
	dirs, perDir, limit := 500, 100, int64(150<<20)
	if soak.Large() {
		dirs, limit = 10_000, 400<<20
	}
	d := start(t)
	cp := d.plant("t", dirs, perDir, func(i int) []byte { return fmt.Append(nil, i%1000) })
	files := dirOf(d.mount(), cp)
	entries := 1 + dirs + dirs*perDir
	find := func() {
		out, err := exec.Command("find", files, "-size", "+100k").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, out)
	}
	find()
	first := d.resident()
	stats, err := d.store.Stats(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.Mounts[0].Inodes, entries)
	require.Less(t, first, limit)
	requests := d.requests()["READDIRPLUS"]
	for range 3 {
		find()
	}
	t.Logf("%d entries: %d MiB after the first pass, %d after the fourth; %d and %d listings", entries, first>>20, d.resident()>>20, requests, d.requests()["READDIRPLUS"])
	require.Less(t, d.resident(), first+first/10+(8<<20), "a second pass costs memory")
	if os.Geteuid() != 0 {
		return
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // directories go once what is in them has gone
		require.NoError(c, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0))
		stats, err := d.store.Stats(t.Context())
		require.NoError(c, err)
		require.Less(c, stats.Mounts[0].Inodes, entries/10)
	}, time.Minute, 100*time.Millisecond, "what the kernel forgot is kept")
}
