package fs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// put stores an object and returns its name.
func put(t *testing.T, w cas.Writer, obj cas.Object) cas.Hash {
	t.Helper()
	require.NoError(t, w.Put(t.Context(), obj))
	return obj.Key.Hash
}

// chunkList stores a list of chunks.
func chunkList(t *testing.T, w cas.Writer, chunks ...cas.Chunk) cas.Hash {
	t.Helper()
	data, err := cas.EncodeList(chunks)
	require.NoError(t, err)
	return put(t, w, cas.NewObject(cas.Files, cas.List, data))
}

// readAt reads from a path with a descriptor of its own. Who reads here and there is
// not answered from what the kernel read ahead.
func readAt(path string, n int, off int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	n, err = f.ReadAt(b, off)
	return b[:n], err
}

// answers fails unless the daemon still answers, for a file that is as it should be.
func answers(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// TestSizesThatLie: of files with one content all but those that tell its length
// cannot be read, wherever they are asked for, and the others are not harmed: neither
// by what is kept of a long object nor by what is kept of a list of chunks.
func TestSizesThatLie(t *testing.T) {
	d := start(t)
	d.damaged = true
	one, many := pattern(1, 600<<10), pattern(2, 3<<20)
	sizes := map[string]uint64{"short": 300 << 10, "three": 3, "long": 1 << 20, "longer": 1<<20 + 1, "exbibyte": 1 << 60, "most": 1<<63 - 1}
	cp := d.plantTree("t", func(w cas.Writer) tree.Root {
		var b tree.Builder
		add := func(name string, h cas.Hash, size uint64) {
			require.NoError(t, b.Add(tree.Entry{Name: name, Kind: tree.File, Mode: 0o644, Hash: h, Size: size}, tree.Totals{}))
		}
		object := put(t, w, cas.NewObject(cas.Files, cas.Data, one))
		half := cas.NewObject(cas.Files, cas.Data, many[:len(many)/2])
		rest := cas.NewObject(cas.Files, cas.Data, many[len(many)/2:])
		put(t, w, half)
		put(t, w, rest)
		l := chunkList(t, w, cas.Chunk{Len: int64(len(half.Data)), Hash: half.Key.Hash}, cas.Chunk{Len: int64(len(rest.Data)), Hash: rest.Key.Hash})
		add("a-honest", object, uint64(len(one)))
		add("b-honest", l, uint64(len(many)))
		for _, name := range []string{"exbibyte", "long", "longer", "most", "short", "three"} {
			if sizes[name] != 1<<63-1 { // more than one does not fit in the totals
				add("c-"+name, object, sizes[name])
			}
		}
		for _, name := range []string{"exbibyte", "longer", "short"} {
			add("d-"+name, l, sizes[name]+5)
		}
		return finish(t, &b, w)
	})
	dir := dirOf(d.mount(), cp)
	for range 2 {
		for name, want := range map[string][]byte{"a-honest": one, "b-honest": many} {
			got, err := readAt(filepath.Join(dir, name), 4096, 100)
			require.NoError(t, err)
			require.Equal(t, want[100:4196], got)
		}
		liars, err := filepath.Glob(dir + "/[cd]-*")
		require.NoError(t, err)
		require.Len(t, liars, 8)
		for _, path := range liars {
			st := stat(t, path)
			for _, off := range []int64{0, 4096, 299 << 10, 599 << 10, 700 << 10, 1<<20 - 4096, 2 << 20, st.Size - 1, st.Size / 2} {
				if off >= 0 && off < st.Size {
					got, err := readAt(path, 4096, off)
					require.ErrorIs(t, err, unix.EIO, "%s at %d: %d bytes", path, off, len(got))
				}
			}
		}
		answers(t, dir+"/a-honest", one)
		answers(t, dir+"/b-honest", many)
	}
}

// TestKindsThatLie: what is named as something else than it is cannot be read.
func TestKindsThatLie(t *testing.T) {
	d := start(t)
	d.damaged = true
	data := []byte("a file's content, as long as it need be to be something")
	cp := d.plantTree("t", func(w cas.Writer) tree.Root {
		var b tree.Builder
		require.NoError(t, b.Add(tree.Entry{Name: "x", Kind: tree.File, Mode: 0o644, Hash: put(t, w, cas.NewObject(cas.Files, cas.Data, data)), Size: uint64(len(data))}, tree.Totals{}))
		sub := finish(t, &b, w)
		set, err := tree.EncodeXAttrs([]tree.XAttr{{Name: "user.a"}})
		require.NoError(t, err)
		links, err := tree.EncodeLinks([][]string{{"a", "b"}})
		require.NoError(t, err)
		segment := put(t, w, cas.NewObject(cas.Trees, cas.Data, []byte("sfd\x01\x01\x01\x01a\x10\x10\x00\x00\x00\x00"+string(make([]byte, 31))+"\x01")))
		chunks := chunkList(t, w, cas.Chunk{Len: 2 << 20})
		file := cas.NewObject(cas.Files, cas.Data, data)
		for i, h := range []cas.Hash{
			put(t, w, set), put(t, w, cas.NewObject(cas.Trees, cas.Data, links)), segment, file.Key.Hash, chunks,
			put(t, w, cas.NewObject(cas.Trees, cas.Data, data)), put(t, w, cas.NewObject(cas.Trees, cas.Data, nil)), {1},
		} {
			require.NoError(t, b.Add(tree.Entry{Name: fmt.Sprintf("dir%d", i), Kind: tree.Dir, Mode: 0o755, Hash: h}, tree.Totals{}))
		}
		require.NoError(t, b.Add(tree.Entry{Name: "file0", Kind: tree.File, Mode: 0o644, Hash: sub.Hash, Size: 100}, tree.Totals{}))
		require.NoError(t, b.Add(tree.Entry{Name: "file1", Kind: tree.File, Mode: 0o644, Hash: file.Key.Hash, Size: 2 << 20}, tree.Totals{}))
		require.NoError(t, b.Add(tree.Entry{Name: "file2", Kind: tree.File, Mode: 0o644, Hash: chunks, Size: 100}, tree.Totals{}))
		require.NoError(t, b.Add(tree.Entry{Name: "good", Kind: tree.File, Mode: 0o644, Hash: file.Key.Hash, Size: uint64(len(data)), XAttrs: sub.Hash}, tree.Totals{}))
		return finish(t, &b, w)
	})
	dir := dirOf(d.mountWith(snapshot.MountRequest{XAttrs: true}), cp)
	for range 2 {
		for i := range 8 {
			path := fmt.Sprintf("%s/dir%d", dir, i)
			_, err := os.ReadDir(path)
			require.ErrorIs(t, err, unix.EIO, path)
			_, err = os.Lstat(path + "/a")
			require.ErrorIs(t, err, unix.EIO, path)
		}
		for i := range 3 {
			_, err := os.ReadFile(fmt.Sprintf("%s/file%d", dir, i))
			require.ErrorIs(t, err, unix.EIO, "%d", i)
		}
		_, err := unix.Llistxattr(dir+"/good", make([]byte, 100))
		require.ErrorIs(t, err, unix.EIO)
		answers(t, dir+"/good", data)
	}
}

// unfolding is a directory that stands for two to the power of depth files.
func unfolding(t *testing.T, w cas.Writer, depth int) tree.Root {
	t.Helper()
	var b tree.Builder
	require.NoError(t, b.Add(tree.Entry{Name: "f", Kind: tree.File, Mode: 0o644, Hash: put(t, w, cas.NewObject(cas.Files, cas.Data, []byte("x"))), Size: 1}, tree.Totals{}))
	root := finish(t, &b, w)
	for range depth {
		for _, name := range []string{"a", "b"} {
			require.NoError(t, b.Add(tree.Entry{Name: name, Kind: tree.Dir, Mode: 0o755, Hash: root.Hash}, root.Totals))
		}
		root = finish(t, &b, w)
	}
	return root
}

// TestTreeThatUnfolds: a few objects stand for more files than anybody can list. Who
// goes through them can be stopped, and the daemon's memory does not grow with it.
func TestTreeThatUnfolds(t *testing.T) {
	d := start(t)
	cp := d.plantTree("t", func(w cas.Writer) tree.Root { return unfolding(t, w, 40) })
	dir := dirOf(d.mount(), cp)
	for _, command := range [][]string{{"du", "-s", dir}, {"ls", "-R", dir}, {"find", dir, "-name", "nothing"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		require.Error(t, cmd.Run(), "%v cannot have come to an end", command)
		cancel()
		deepest := dir
		for range 40 {
			deepest += "/b"
		}
		answers(t, deepest+"/f", []byte("x"))
	}
	require.Less(t, d.peak(), int64(512<<20))
}

// peak returns the most memory that the daemon ever had, in bytes.
func (d *daemon) peak() int64 {
	d.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	require.NoError(d.t, err)
	_, rest, ok := bytes.Cut(data, []byte("VmHWM:"))
	require.True(d.t, ok)
	var kib int64
	_, err = fmt.Sscan(string(rest), &kib)
	require.NoError(d.t, err)
	return kib << 10
}

// TestRecordsThatLie: a checkpoint whose record names what is damaged, or longer than
// anything can be, shows all else, and the daemon's memory does not grow with what it
// claims.
func TestRecordsThatLie(t *testing.T) {
	d := start(t)
	d.damaged = true
	zeros := func(w cas.Writer, ns cas.Namespace) index.Blob {
		data, err := cas.EncodeList([]cas.Chunk{{Len: 1 << 60}})
		require.NoError(t, err)
		return index.Blob{Hash: put(t, w, cas.NewObject(ns, cas.List, data)), Size: 1 << 60}
	}
	bytesOf := func(w cas.Writer, ns cas.Namespace, data []byte) index.Blob {
		b, err := cas.WriteBlob(t.Context(), w, ns, bytes.NewReader(data))
		require.NoError(t, err)
		return index.Blob{Hash: b.Hash, Size: uint64(b.Size)}
	}
	artifacts := func(w cas.Writer, list ...index.Artifact) index.Blob {
		enc, _ := index.CBOR(cbor.DecOptions{})
		data, err := enc.Marshal(list)
		require.NoError(t, err)
		return bytesOf(w, cas.Records, data)
	}
	tests := []struct {
		thread string
		craft  func(w cas.Writer, rec *index.Record)
		broken []string // paths below the checkpoint
	}{
		{"links", func(w cas.Writer, rec *index.Record) { rec.Links = zeros(w, cas.Trees) }, []string{"files"}},
		{"garbage", func(w cas.Writer, rec *index.Record) {
			rec.Links = bytesOf(w, cas.Trees, []byte("sfl\x01\xff\xff\xff\xff\x01"))
		}, []string{"files"}},
		{"omissions", func(w cas.Writer, rec *index.Record) { rec.Omissions, rec.OmissionCount = zeros(w, cas.Records), 1 }, []string{"checkpoint.json"}},
		{"secrets", func(w cas.Writer, rec *index.Record) { rec.Secrets, rec.FindingCount = zeros(w, cas.Records), 1 }, []string{"checkpoint.json"}},
		{"policy", func(w cas.Writer, rec *index.Record) { rec.Policy = zeros(w, cas.Records) }, []string{"checkpoint.json"}},
		{"artifacts", func(w cas.Writer, rec *index.Record) { rec.Artifacts, rec.ArtifactCount = zeros(w, cas.Records), 1 }, []string{"artifacts"}},
		{"twins", func(w cas.Writer, rec *index.Record) {
			one := index.Artifact{Name: "a", Blob: bytesOf(w, cas.Artifacts, []byte("1"))}
			rec.Artifacts, rec.ArtifactCount = artifacts(w, slices.Repeat([]index.Artifact{one}, 50_000)...), 50_000
		}, []string{"artifacts"}},
		{"sizes", func(w cas.Writer, rec *index.Record) {
			b := bytesOf(w, cas.Artifacts, pattern(5, 300<<10))
			b.Size += 4096
			rec.Artifacts, rec.ArtifactCount = artifacts(w, index.Artifact{ID: "1", Name: "../../odd", Blob: b}), 1
		}, []string{"artifacts/" + snapshot.EncodeName("../../odd")}},
		{"conversation", func(w cas.Writer, rec *index.Record) {
			rec.Conversation = bytesOf(w, cas.Conversations, []byte("{}"))
			rec.Conversation.Size = 1 << 62
		}, []string{"conversation.json"}},
		{"attributes", func(w cas.Writer, rec *index.Record) { rec.Root.XAttrs = rec.Root.Tree }, nil},
	}
	var cps []snapshot.Checkpoint
	for _, test := range tests {
		cps = append(cps, d.plantRecord(test.thread, func(w cas.Writer, rec *index.Record) {
			var b tree.Builder
			require.NoError(t, b.Add(tree.Entry{Name: "f", Kind: tree.File, Mode: 0o644, Hash: put(t, w, cas.NewObject(cas.Files, cas.Data, []byte("x"))), Size: 1}, tree.Totals{}))
			root := finish(t, &b, w)
			rec.Root.Tree, rec.Totals = root.Hash, index.Totals(root.Totals)
			test.craft(w, rec)
		}))
	}
	m := d.mount()
	for range 2 {
		for i, test := range tests {
			top := filepath.Dir(dirOf(m, cps[i]))
			for _, name := range []string{"files", "files/f", "checkpoint.json", "artifacts", "conversation.json"} {
				if name == "conversation.json" && test.thread != "conversation" {
					continue
				}
				err := readAny(filepath.Join(top, name))
				if slices.Contains(test.broken, strings.Split(name, "/")[0]) {
					require.ErrorIs(t, err, unix.EIO, "%s of %s", name, test.thread)
				} else {
					require.NoError(t, err, "%s of %s", name, test.thread)
				}
			}
			for _, path := range test.broken {
				require.ErrorIs(t, readAny(filepath.Join(top, path)), unix.EIO, path)
			}
		}
	}
	require.Less(t, d.peak(), int64(512<<20))
}

// readAny reads the names of a directory, or the start of a file.
func readAny(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		_, err = f.ReadDir(-1)
		return err
	}
	if _, err = f.Read(make([]byte, 100)); err == io.EOF {
		err = nil
	}
	return err
}
