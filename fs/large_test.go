package fs_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/snapshot"
)

// TestLargeDirectory: as many files as a folder of a real node_modules has are
// listed fully, and each once.
func TestLargeDirectory(t *testing.T) {
	const files = 43_009
	d := start(t)
	ws := disktest.Memory(t)
	want := make(map[string]bool, files)
	for i := range files {
		name := fmt.Sprintf("file-%d.js", i)
		want[name] = true
		require.NoError(t, os.WriteFile(filepath.Join(ws, name), nil, 0o644))
	}
	root := open(t, dirOf(d.mount(), d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})))
	quiet := false
	// The kernel may drop a listing when it wants the memory: then the next pass asks again.
	for pass := 0; pass < 3 || !quiet && pass < 20; pass++ {
		before := d.requests()
		left := make(map[string]bool, files)
		for name := range want {
			left[name] = true
		}
		numbers := make(map[uint64]bool, files)
		for _, e := range dirents(t, fmt.Sprintf("/proc/self/fd/%d", fdOf(t, root))) {
			require.False(t, numbers[e.ino] && e.name != "." && e.name != "..", "number %d twice", e.ino)
			numbers[e.ino] = true
			if e.name != "." && e.name != ".." {
				require.True(t, left[e.name], "%s twice, or never saved", e.name)
				delete(left, e.name)
			}
		}
		require.Empty(t, left)
		quiet = quiet || maps.Equal(before, d.requests())
	}
	require.True(t, quiet, "every pass over the listing asks for it")
	st, err := d.store.Stats(t.Context())
	require.NoError(t, err)
	require.Greater(t, st.Mounts[0].Inodes, files)
}

// pattern is size bytes that do not compress.
func pattern(seed uint64, size int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(data)
	return data
}

// TestLargeFile: one of many chunks, with holes, read from the start, from
// anywhere, and by many at once.
func TestLargeFile(t *testing.T) {
	const size = 40 << 20
	d := start(t)
	ws := disktest.Memory(t)
	want := pattern(1, size)
	clear(want[5<<20 : 17<<20])
	clear(want[30<<20+100 : 33<<20+77])
	f, err := os.Create(ws + "/large")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	for _, part := range [][2]int{{0, 5 << 20}, {17 << 20, 30<<20 + 100}, {33<<20 + 77, size}} {
		_, err := f.WriteAt(want[part[0]:part[1]], int64(part[0]))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.Less(t, cp.NewBytes, int64(27<<20), "zeros were stored")

	file := dirOf(d.mount(), cp) + "/large"
	require.EqualValues(t, size, stat(t, file).Size)
	cold, err := os.Open(file) // random reads first: nothing is known yet
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		off, n := r.IntN(size), 1+r.IntN(200_000)
		buf := make([]byte, n)
		got, err := cold.ReadAt(buf, int64(off))
		if off+n > size {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, min(n, size-off), got)
		require.True(t, bytes.Equal(want[off:off+got], buf[:got]), "%d bytes at %d", n, off)
	}
	require.NoError(t, cold.Close())
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// TestParallelReaders: sixteen at once, no error and no wrong byte.
func TestParallelReaders(t *testing.T) {
	d := start(t)
	ws := disktest.Memory(t)
	const files = 400
	bytesOf := pattern(7, 9<<20)
	content := func(i int) []byte { return bytesOf[i*1000:][:i*i%150_000] }
	for i := range files {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/f%d", ws, i), content(i), 0o644))
	}
	require.NoError(t, os.WriteFile(ws+"/large", bytesOf, 0o644))
	dir := dirOf(d.mount(), d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"}))
	var g errgroup.Group
	var ready sync.WaitGroup
	ready.Add(16)
	for reader := range 16 {
		g.Go(func() error {
			ready.Done()
			ready.Wait()
			r := rand.New(rand.NewPCG(uint64(reader), 0))
			for _, i := range r.Perm(files) {
				got, err := os.ReadFile(fmt.Sprintf("%s/f%d", dir, i))
				if err != nil {
					return err
				}
				if !bytes.Equal(got, content(i)) {
					return fmt.Errorf("f%d has other bytes", i)
				}
			}
			got, err := os.ReadFile(dir + "/large")
			if err == nil && !bytes.Equal(got, bytesOf) {
				err = fmt.Errorf("large has other bytes")
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// TestHugeFile: one of 10 GB, nearly all holes, is listed and read here and there
// like a small one, and a read costs its chunk only.
func TestHugeFile(t *testing.T) {
	const size = 10 << 30
	d := start(t)
	ws := disktest.Memory(t)
	f, err := os.Create(ws + "/huge")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	want := pattern(9, 3<<20)
	const at = 6<<30 + 12345
	_, err = f.WriteAt(want, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.Less(t, cp.NewBytes, int64(5<<20))

	file := dirOf(d.mount(), cp) + "/huge"
	require.EqualValues(t, size, stat(t, file).Size)
	before := d.resident()
	g, err := os.Open(file)
	require.NoError(t, err)
	defer g.Close()
	buf := make([]byte, 8192)
	for i := range 50 {
		off := int64(i) * size / 50
		n, err := g.ReadAt(buf, off)
		require.NoError(t, err)
		require.Equal(t, len(buf), n)
		require.True(t, off > at-8192 && off < at+3<<20 || bytes.Equal(buf, make([]byte, len(buf))), "at %d", off)
	}
	_, err = g.ReadAt(buf, at+2<<20)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[2<<20:][:len(buf)], buf))
	n, err := g.ReadAt(buf, size-100)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 100, n)
	require.Less(t, d.resident()-before, int64(24<<20))
}

// TestStandardLibrary has it check that a checkpoint is a file system as it should
// be.
func TestStandardLibrary(t *testing.T) {
	d := start(t)
	ws := many(t)
	for i := range 5 { // they lead nowhere
		require.NoError(t, os.Remove(fmt.Sprintf("%s/d%d/link", ws, i)))
		require.NoError(t, os.Symlink("../d0/e0", fmt.Sprintf("%s/d%d/link", ws, i)))
	}
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	files := dirOf(d.mount(), cp)
	require.NoError(t, fstest.TestFS(os.DirFS(files), "d0/e0/f0", "d4/e19/f199", "d1/link"))
}
