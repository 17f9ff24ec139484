package fs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// packs lists a store's packs.
func packs(t *testing.T, store string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(store, "packs/*/*.pack"))
	require.NoError(t, err)
	return all
}

// flip changes one byte of a pack, where it holds a text.
func flip(t *testing.T, store, text string) {
	t.Helper()
	found := 0
	for _, path := range packs(t, store) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for at := bytes.Index(data, []byte(text)); at >= 0; at = bytes.Index(data, []byte(text)) {
			data[at] ^= 1
			found++
		}
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	require.NotZero(t, found, "no pack holds %q", text)
}

// TestDamagedContent: a file whose record is damaged cannot be read; its
// neighbours can.
func TestDamagedContent(t *testing.T) {
	d := start(t)
	d.damaged = true
	large := strings.Repeat("filler of a file of several chunks..", 1<<17) + "MARK TWO"
	ws := write(t, map[string]string{"bad": "MARK ONE", "good": "fine", "large": large})
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", Compression: local.Off})
	flip(t, d.dir, "MARK ONE")
	flip(t, d.dir, "MARK TWO")
	files := dirOf(d.mount(), cp)
	for range 2 {
		for _, name := range []string{"bad", "large"} {
			_, err := os.ReadFile(filepath.Join(files, name))
			require.ErrorIs(t, err, unix.EIO, name)
		}
		data, err := os.ReadFile(files + "/good")
		require.NoError(t, err)
		require.Equal(t, "fine", string(data))
	}
	// Up to the damaged chunk all is well.
	f, err := os.Open(files + "/large")
	require.NoError(t, err)
	head := make([]byte, 4096)
	_, err = f.ReadAt(head, 0)
	require.NoError(t, err)
	require.Equal(t, large[:4096], string(head))
	require.NoError(t, f.Close())
	d.logs(`msg="request failed" mountpoint=`)
	d.logs(`errno="5=input/output error"`)
	d.logs("request=read")
}

// TestDamagedDirectory: one that cannot be read is an error, never an empty
// directory or a name that does not exist.
func TestDamagedDirectory(t *testing.T) {
	d := start(t)
	d.damaged = true
	cp := d.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"sub/NAME OF A FILE": "1", "good": "2"}), Thread: "t", Compression: local.Off})
	flip(t, d.dir, "NAME OF A FILE")
	files := dirOf(d.mount(), cp)
	for range 2 {
		_, err := os.ReadDir(files + "/sub")
		require.ErrorIs(t, err, unix.EIO)
		for _, name := range []string{"NAME OF A FILE", "nothing"} {
			_, err = os.Lstat(filepath.Join(files, "sub", name))
			require.ErrorIs(t, err, unix.EIO)
		}
		require.EqualValues(t, unix.S_IFDIR, stat(t, files+"/sub").Mode&unix.S_IFMT)
		require.FileExists(t, files+"/good")
	}
}

// TestMissingPack: what was saved and is not there any more is an error, too.
func TestMissingPack(t *testing.T) {
	before := start(t)
	cp := before.save(snapshot.SaveOptions{Workspace: write(t, map[string]string{"sub/f": "1"}), Thread: "t"})
	before.end() // it may have the packs open
	for _, path := range packs(t, before.dir) {
		require.NoError(t, os.Remove(path))
	}
	d := startAs(t, before.dir, childClean)
	d.damaged = true
	files := dirOf(d.mount(), cp)
	for _, path := range []string{files, files + "/sub", filepath.Dir(files) + "/checkpoint.json"} {
		_, err := os.Lstat(path)
		require.ErrorIs(t, err, unix.EIO, path)
	}
	d.logs("request failed")
}

// TestOddChunkLists: a list of very many very short chunks, which nobody here
// writes, is read like any other.
func TestOddChunkLists(t *testing.T) {
	d := start(t)
	var want []byte
	cp := d.plantTree("t", func(w cas.Writer) tree.Root {
		var chunks []cas.Chunk
		add := func(data []byte) {
			o := cas.NewObject(cas.Files, cas.Data, data)
			require.NoError(t, w.Put(t.Context(), o))
			chunks = append(chunks, cas.Chunk{Off: int64(len(want)), Len: int64(len(data)), Hash: o.Key.Hash})
			want = append(want, data...)
		}
		for i := range 5000 {
			add([]byte{byte(i % 7)})
		}
		add(pattern(3, 2<<20))
		data, err := cas.EncodeList(chunks)
		require.NoError(t, err)
		list := cas.NewObject(cas.Files, cas.List, data)
		require.NoError(t, w.Put(t.Context(), list))
		var b tree.Builder
		require.NoError(t, b.Add(tree.Entry{Name: "f", Kind: tree.File, Mode: 0o644, Hash: list.Key.Hash, Size: uint64(len(want))}, tree.Totals{}))
		return finish(t, &b, w)
	})
	file := dirOf(d.mount(), cp) + "/f"
	got, err := exec.Command("timeout", "-s", "KILL", "20", "cat", file).Output()
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// TestOneContentTwoLengths: whose length is not that of its content cannot be read,
// whoever asked for the content before.
func TestOneContentTwoLengths(t *testing.T) {
	const files = 300
	d := start(t)
	d.damaged = true
	cp := d.plantTree("t", func(w cas.Writer) tree.Root {
		var b tree.Builder
		last := cas.Object{}
		for i := range files {
			o := cas.NewObject(cas.Files, cas.Data, smallFile(i))
			e := tree.Entry{Name: fmt.Sprintf("file-%05d", i), Kind: tree.File, Mode: 0o644, Hash: o.Key.Hash, Size: uint64(len(o.Data))}
			if i%20 == 19 { // it says that it is the one before, and of another length
				e.Hash, e.Size = last.Key.Hash, uint64(len(last.Data)+i%3-1+2*(i%2)*50)
			}
			last = o
			require.NoError(t, w.Put(t.Context(), o))
			require.NoError(t, b.Add(e, tree.Totals{}))
		}
		return finish(t, &b, w)
	})
	dir := dirOf(d.mount(), cp)
	for i := range files {
		got, err := os.ReadFile(fmt.Sprintf("%s/file-%05d", dir, i))
		if i%20 == 19 {
			require.ErrorIs(t, err, unix.EIO, "%d", i)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(smallFile(i)), string(got))
	}
}
