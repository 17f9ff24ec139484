package restore

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// onceFunc runs fn at its first call only.
func onceFunc(fn func()) func() { return sync.OnceFunc(fn) }

// failContent fails the read of every file's content.
func failContent(err error) func(cas.Key) error {
	return func(key cas.Key) error {
		if key.NS == cas.Files {
			return err
		}
		return nil
	}
}

// eachTarget runs a test into a missing directory and into an empty one; after
// it the directory must be as it was, and nothing else there.
func eachTarget(t *testing.T, fn func(t *testing.T, target string)) {
	t.Helper()
	for _, existing := range []bool{false, true} {
		name := "missing"
		if existing {
			name = "existing"
		}
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			target := filepath.Join(top, "target")
			want := map[string]string{}
			if existing {
				require.NoError(t, os.Mkdir(target, 0o700))
				want["target"] = "/"
			}
			fn(t, target)
			require.Equal(t, want, list(t, top))
			if existing {
				require.Equal(t, uint32(0o700), stat(t, target).Mode&0o7777)
			}
		})
	}
}

// TestDamagedStore: the restore fails with what is wrong and the path, and the
// target is as it was.
func TestDamagedStore(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 70_000)
	setup := func(t *testing.T) (*memory, Source, map[string]cas.Key) {
		m := newMemory()
		keys := map[string]cas.Key{}
		attr := m.file(t, 0o644, "attr")
		attr.XAttrs = m.xattrs(t, tree.XAttr{Name: "user.x", Value: []byte("1")})
		keys["xattrs"] = cas.Key{NS: cas.Trees, Hash: attr.XAttrs}
		inner := m.sub(t, 0o755, dir{"victim": "small"})
		keys["dir"] = cas.Key{NS: cas.Trees, Hash: inner.Hash}
		blob := m.blob(t, strings.NewReader("small"))
		keys["blob"] = cas.Key{NS: cas.Files, Hash: blob.Hash}
		blob = m.blob(t, strings.NewReader(big))
		keys["list"] = cas.Key{NS: cas.Files, Hash: blob.Hash}
		chunks, err := cas.Chunks(t.Context(), m, cas.Files, blob)
		require.NoError(t, err)
		keys["chunk"] = cas.Key{NS: cas.Files, Hash: chunks[len(chunks)-1].Hash}
		src := m.source(t, dir{"a": dir{"dir": inner, "big": big, "attr": attr}, "one": "1", "two": "1"})
		src.Stat.XAttrs = m.xattrs(t, tree.XAttr{Name: "user.root", Value: []byte("1")})
		keys["root"] = cas.Key{NS: cas.Trees, Hash: src.Root}
		keys["root xattrs"] = cas.Key{NS: cas.Trees, Hash: src.Stat.XAttrs}
		src.Links = m.links(t, []string{"one", "two"})
		keys["links"] = cas.Key{NS: cas.Trees, Hash: src.Links.Hash}
		return m, src, keys
	}
	paths := map[string]string{
		"xattrs": "a/attr", "dir": "a/dir", "blob": "a/dir/victim", "list": "a/big", "chunk": "a/big",
		"root": "directory", "root xattrs": ".", "links": "hard links",
	}
	for what, path := range paths {
		t.Run("missing "+what, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, target string) {
				m, src, keys := setup(t)
				delete(m.objects, keys[what])
				m.onRead = func(key cas.Key) error { // before the first write
					require.NoFileExists(t, filepath.Join(target, ".snapfs-restoring"))
					return nil
				}
				_, err := m.restore(t, src, target)
				require.ErrorIs(t, err, cas.ErrNotFound)
				require.ErrorContains(t, err, path)
			})
		})
		t.Run("damaged "+what, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, target string) {
				m, src, keys := setup(t)
				m.onRead = func(key cas.Key) error {
					if key == keys[what] {
						return cas.ErrCorrupt
					}
					return nil
				}
				_, err := m.restore(t, src, target)
				require.ErrorIs(t, err, cas.ErrCorrupt)
				require.ErrorContains(t, err, path)
			})
		})
	}
}

// TestWrongLength: bytes that are whole and not as many as the tree says.
func TestWrongLength(t *testing.T) {
	for name, size := range map[string]uint64{"more": 6, "fewer": 4, "none": 0, "chunked": cas.ChunkedSize + 1} {
		t.Run(name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, target string) {
				m := newMemory()
				e := m.file(t, 0o644, "12345")
				e.Size = size
				_, err := m.restore(t, m.source(t, dir{"d": dir{"f": e}}), target)
				require.ErrorIs(t, err, cas.ErrCorrupt)
				require.ErrorContains(t, err, "d/f")
			})
		})
	}
}

// TestCanceled: a restore that was ended leaves nothing.
func TestCanceled(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		m := newMemory()
		d := dir{}
		for _, name := range []string{"a", "b", "c", "d"} {
			d[name] = m.sub(t, 0o500, dir{"x": name, "y": "y" + name})
		}
		src := m.source(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		m.onRead = func(key cas.Key) error {
			if key.NS == cas.Files {
				cancel()
			}
			return nil
		}
		_, err := Tree(ctx, m, tree.NewReader(m, 1<<20), src, target, Options{})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestParentsThatWereMade are removed again when the restore fails.
func TestParentsThatWereMade(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	m.onRead = failContent(cas.ErrCorrupt)
	top := t.TempDir()
	_, err := m.restore(t, src, filepath.Join(top, "x/y/z"))
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Empty(t, list(t, top))
}

// zeroThen is a stream of zeros with a little at its end.
func zeroThen(zeros int64, end string) io.Reader {
	return io.MultiReader(io.LimitReader(zeroReader{}, zeros), strings.NewReader(end))
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestHoles: zeros take no room in the target, at the end neither.
func TestHoles(t *testing.T) {
	m := newMemory()
	front := m.blob(t, zeroThen(64<<20, "end"))
	back := m.blob(t, io.MultiReader(strings.NewReader(strings.Repeat("x", cas.ZeroBlock)), zeroThen(64<<20+5, "")))
	target := filepath.Join(t.TempDir(), "target")
	entry := func(b cas.Blob) tree.Entry {
		return tree.Entry{Kind: tree.File, Mode: 0o644, Hash: b.Hash, Size: uint64(b.Size)}
	}
	res, err := m.restore(t, m.source(t, dir{"front": entry(front), "back": entry(back)}), target)
	require.NoError(t, err)
	require.Equal(t, front.Size+back.Size, res.Bytes)
	for name, b := range map[string]cas.Blob{"front": front, "back": back} {
		st := stat(t, filepath.Join(target, name))
		require.Equal(t, b.Size, st.Size)
		require.Less(t, st.Blocks*512, int64(1<<20))
		f, err := os.Open(filepath.Join(target, name))
		require.NoError(t, err)
		again := m.blob(t, f)
		require.NoError(t, f.Close())
		require.Equal(t, b, again)
	}
}

// TestFullDisk: the error says so, and the room is given back.
func TestFullDisk(t *testing.T) {
	m := newMemory()
	d := dir{}
	for _, name := range []string{"a", "b", "c"} {
		d[name] = dir{"x": strings.Repeat(name, 1<<20), "y": strings.Repeat(name, 3<<20)}
	}
	src := m.source(t, d)
	volume := filepath.Join(t.TempDir(), "volume")
	mountTmpfs(t, volume, "4m")
	for _, target := range []string{volume, filepath.Join(volume, "target")} {
		_, err := m.restore(t, src, target)
		require.ErrorIs(t, err, cas.ErrNoSpace)
		require.Empty(t, list(t, volume))
	}

	inodes := filepath.Join(t.TempDir(), "inodes")
	mountTmpfs(t, inodes, "4m,nr_inodes=6")
	_, err := m.restore(t, m.source(t, dir{"a": dir{"b": dir{"c": dir{}, "d": "x"}, "e": "y"}, "f": symlink("g")}), inodes)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.Empty(t, list(t, inodes))
}
