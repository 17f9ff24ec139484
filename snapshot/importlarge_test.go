package snapshot

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/internal/soak"
)

// manyFiles writes an archive of small files whose order is not a tree's. Every other one
// is in one directory.
func manyFiles(t *testing.T, n int) io.ReadCloser {
	t.Helper()
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		hdr := tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: 8, ModTime: time.Unix(1e9, 0)}
		for i := range n {
			at := i * 7919 % n // a prime
			hdr.Name = fmt.Sprintf("dir-%04d/a-folder-in-it-%03d/file-number-%07d.txt", at/2000, at/20%100, at)
			if at%2 == 0 {
				hdr.Name = fmt.Sprintf("a-large-folder/file-number-%07d.txt", at)
			}
			if err := tw.WriteHeader(&hdr); err != nil {
				return
			}
			if _, err := fmt.Fprintf(tw, "%08d", i%1000); err != nil {
				return
			}
		}
		w.CloseWithError(tw.Close())
	}()
	return r
}

// resident is how much memory of this process is in use, in bytes.
func resident(t *testing.T) int64 {
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

// onHeap is how much of Go's heap is in use, in bytes.
func onHeap(*testing.T) int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// TestImportMany: what an import takes in memory does not grow with the archive.
func TestImportMany(t *testing.T) {
	// With the race detector only what Go has on its heap says anything.
	files, most, run, used := 6_000, int64(32<<20), 64<<10, onHeap
	dir := disktest.Memory(t)
	if soak.Large() {
		dir = t.TempDir()
		files, most, run, used = 1_000_000, 300<<20, 0, resident
	}
	s, err := Open(t.Context(), filepath.Join(dir, "store"), Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	runtime.GC()
	before := used(t)
	var peak atomic.Int64
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				peak.Store(max(peak.Load(), used(t)))
			case <-done:
				return
			}
		}
	}()
	in := manyFiles(t, files)
	defer in.Close()
	start := time.Now()
	res, err := s.Import(t.Context(), in, ImportOptions{Thread: "t", sortRun: run})
	close(done)
	<-watched
	require.NoError(t, err)
	require.Equal(t, uint64(files), res.Checkpoint.Files)
	t.Logf("%d files in %v: %d MiB in use before, %d at the most", files, time.Since(start), before>>20, peak.Load()>>20)
	require.Less(t, peak.Load()-before, most)
}
