package restore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// memory is a store in memory and its own writer. onRead runs before an object
// is read; its error is Read's.
type memory struct {
	onRead func(key cas.Key) error
	onHas  func()

	mu      sync.Mutex
	objects map[cas.Key][]byte
	read    map[cas.Key]int
}

func newMemory() *memory {
	return &memory{objects: map[cas.Key][]byte{}, read: map[cas.Key]int{}}
}

func (m *memory) Put(_ context.Context, objs ...cas.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objs {
		m.objects[o.Key] = bytes.Clone(o.Data)
	}
	return nil
}

func (m *memory) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.onRead != nil {
		if err := m.onRead(key); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read[key]++
	data, ok := m.objects[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
	}
	return append(dst, data...), nil
}

func (m *memory) Has(_ context.Context, keys []cas.Key) ([]bool, error) {
	if m.onHas != nil {
		m.onHas()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	has := make([]bool, len(keys))
	for i, k := range keys {
		_, has[i] = m.objects[k]
	}
	return has, nil
}

func (m *memory) NewWriter(context.Context) (cas.Writer, error) { return m, nil }
func (m *memory) Flush(context.Context) error                   { return nil }
func (m *memory) Stats() cas.WriterStats                        { return cas.WriterStats{} }
func (m *memory) Close() error                                  { return nil }

// dir describes a directory: a string is a file's content, a dir a directory, a
// symlink one, a tree.Entry anything with metadata of its own.
type dir map[string]any

type symlink string

// blob stores a file's content.
func (m *memory) blob(t *testing.T, r io.Reader) cas.Blob {
	t.Helper()
	b, err := cas.WriteBlob(t.Context(), m, cas.Files, r)
	require.NoError(t, err)
	return b
}

// file is an entry with content.
func (m *memory) file(t *testing.T, mode uint32, data string) tree.Entry {
	t.Helper()
	b := m.blob(t, strings.NewReader(data))
	return tree.Entry{Kind: tree.File, Mode: mode, Hash: b.Hash, Size: uint64(b.Size), MtimeSec: 1e9}
}

// sub is an entry with a directory below it.
func (m *memory) sub(t *testing.T, mode uint32, d dir) tree.Entry {
	t.Helper()
	return tree.Entry{Kind: tree.Dir, Mode: mode, Hash: m.dir(t, d).Hash, MtimeSec: 1e9}
}

// dir stores a directory. Totals below entries that are given whole are read
// back from the store.
func (m *memory) dir(t *testing.T, d dir) tree.Root {
	t.Helper()
	var b tree.Builder
	r := tree.NewReader(m, 0)
	for _, name := range slices.Sorted(maps.Keys(d)) {
		var e tree.Entry
		switch v := d[name].(type) {
		case string:
			e = m.file(t, 0o644, v)
		case symlink:
			e = tree.Entry{Kind: tree.Symlink, Mode: 0o777, Target: string(v), Size: uint64(len(v)), MtimeSec: 1e9}
		case dir:
			e = m.sub(t, 0o755, v)
		case tree.Entry:
			e = v
		}
		e.Name = name
		var below tree.Totals
		if e.Kind == tree.Dir {
			open, err := r.Open(t.Context(), e.Hash)
			require.NoError(t, err)
			below = open.Root().Totals
		}
		require.NoError(t, b.Add(e, below))
	}
	root, objs, err := b.Finish()
	require.NoError(t, err)
	require.NoError(t, m.Put(t.Context(), objs...))
	return root
}

// source stores a whole tree.
func (m *memory) source(t *testing.T, d dir) Source {
	t.Helper()
	return Source{Root: m.dir(t, d).Hash, Stat: tree.Entry{Kind: tree.Dir, Mode: 0o751, MtimeSec: 1e9, MtimeNsec: 7}}
}

// links stores groups of hard links.
func (m *memory) links(t *testing.T, groups ...[]string) cas.Blob {
	t.Helper()
	data, err := tree.EncodeLinks(groups)
	require.NoError(t, err)
	obj := cas.NewObject(cas.Trees, cas.Data, data)
	require.NoError(t, m.Put(t.Context(), obj))
	return cas.Blob{Hash: obj.Key.Hash, Size: int64(len(data))}
}

// xattrs stores a set of attributes.
func (m *memory) xattrs(t *testing.T, set ...tree.XAttr) cas.Hash {
	t.Helper()
	obj, err := tree.EncodeXAttrs(set)
	require.NoError(t, err)
	require.NoError(t, m.Put(t.Context(), obj))
	return obj.Key.Hash
}

// restore restores everything.
func (m *memory) restore(t *testing.T, src Source, dir string) (Result, error) {
	t.Helper()
	return Tree(t.Context(), m, tree.NewReader(m, 1<<20), src, dir, Options{})
}

// list returns what is in a directory, at any depth: a file's content, a link's
// target behind an arrow, a directory's slash.
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch d.Type() {
		case os.ModeDir:
			all[rel] = "/"
		case os.ModeSymlink:
			target, err := os.Readlink(path)
			all[rel] = "-> " + target
			return err
		default:
			data, err := os.ReadFile(path)
			all[rel] = string(data)
			return err
		}
		return nil
	}))
	return all
}

// stat looks at a path without following it.
func stat(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	require.NoError(t, unix.Lstat(path, &st))
	return st
}

// needRoot skips what only root can set up.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// mountTmpfs mounts a small file system and detaches it when the test ends.
func mountTmpfs(t *testing.T, dir, size string) {
	t.Helper()
	needRoot(t)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+size); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// acl makes a POSIX ACL as the kernel has it: of a version, with the user's
// entry of the given permissions, the group's, and the mask.
func acl(version uint32, user, group, mask uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, version)
	const nobody = 1<<32 - 1
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 6, nobody}, {0x02, user, 1234}, {0x04, group, nobody}, {0x10, mask, nobody}, {0x20, 0, nobody}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// sample is a tree with something of everything.
func sample(t *testing.T, m *memory) Source {
	t.Helper()
	return m.source(t, dir{
		"a": dir{"b": dir{"c": "deep"}, "empty": dir{}},
		"f": "file", "l": symlink("a/b"), "exe": m.file(t, 0o755, "#!/bin/sh"),
		"large": strings.Repeat("0123456789abcdef", 1<<17),
	})
}

// sampleList is what list says about it.
func sampleList() map[string]string {
	return map[string]string{
		"a": "/", "a/b": "/", "a/b/c": "deep", "a/empty": "/", "f": "file", "l": "-> a/b", "exe": "#!/bin/sh",
		"large": strings.Repeat("0123456789abcdef", 1<<17),
	}
}
