package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// after runs fn when path was looked at; "" is the listing of the root.
func after(path string, fn func()) func(path string) {
	return func(looked string) {
		if looked == path {
			fn()
		}
	}
}

// TestEntriesThatDoNotHoldStill: something that was listed and not looked at, or
// looked at and not read yet, is not what it was. Never is there a checkpoint
// without it.
func TestEntriesThatDoNotHoldStill(t *testing.T) {
	remove := func(path string) func(ws string) error {
		return func(ws string) error { return os.RemoveAll(filepath.Join(ws, path)) }
	}
	then := func(path string, make func(path string) error) func(ws string) error {
		return func(ws string) error {
			return errors.Join(os.RemoveAll(filepath.Join(ws, path)), make(filepath.Join(ws, path)))
		}
	}
	file := func(path string) error { return os.WriteFile(path, []byte("other"), 0o644) }
	link := func(path string) error { return os.Symlink("/etc", path) }
	dir := func(path string) error { return os.Mkdir(path, 0o755) }
	fifo := func(path string) error { return unix.Mkfifo(path, 0o644) }
	tests := map[string]struct {
		after  string
		change func(ws string) error
		want   map[string]string
	}{
		"file vanishes":               {"", remove("small"), map[string]string{"small": errVanished.Error()}},
		"large file vanishes":         {"", remove("large"), map[string]string{"large": errVanished.Error()}},
		"directory vanishes":          {"", remove("dir"), map[string]string{"dir": errVanished.Error()}},
		"link vanishes":               {"", remove("link"), map[string]string{"link": errVanished.Error()}},
		"directory becomes file":      {"", then("dir", file), map[string]string{"dir": errReplaced.Error()}},
		"directory becomes link":      {"", then("dir", link), map[string]string{"dir": errReplaced.Error()}},
		"directory becomes fifo":      {"", then("dir", fifo), map[string]string{"dir": errReplaced.Error()}},
		"file becomes link":           {"", then("small", link), map[string]string{"small": errReplaced.Error()}},
		"looked-at file becomes link": {"small", then("small", link), map[string]string{"small": errReplaced.Error()}},
		"looked-at file vanishes":     {"small", remove("small"), map[string]string{"small": errVanished.Error()}},
		"unread file becomes fifo":    {"", then("small", fifo), map[string]string{"small": errReplaced.Error()}},
		"file becomes fifo":           {"small", then("small", fifo), map[string]string{"small": "is no regular file any more"}},
		"file becomes directory":      {"small", then("small", dir), map[string]string{"small": "is no regular file any more"}},
		"link becomes file":           {"", then("link", file), map[string]string{"link": errReplaced.Error()}},
		"all of them at once":         {"", func(ws string) error { return errors.Join(remove("dir")(ws), remove("small")(ws)) }, map[string]string{"dir": errVanished.Error(), "small": errVanished.Error()}},
		"name of a file vanishes":     {"name1", remove("name1"), map[string]string{"name1": errVanished.Error(), "name2": "is a hard link to name1, which could not be read", "name3": "is a hard link to name1, which could not be read"}},
		"name becomes other file":     {"name1", then("name1", file), map[string]string{"name2": errReplaced.Error(), "name3": errReplaced.Error()}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			write(t, ws, map[string]string{"a/first": "1", "dir/x": "2", "small": "3", "name1": "4", "large": strings.Repeat("x", 2<<20)})
			for _, name := range []string{"name2", "name3"} {
				require.NoError(t, os.Link(filepath.Join(ws, "name1"), filepath.Join(ws, name)))
			}
			require.NoError(t, os.Symlink("small", filepath.Join(ws, "link")))
			m := newMemory()
			_, err := captureInOrder(t, ws, m, after(test.after, func() { require.NoError(t, test.change(ws)) }))
			require.Equal(t, test.want, problems(t, err))
			for path := range test.want {
				require.ErrorContains(t, err, path)
			}
		})
	}
}

// TestDirectoryBecomesAnother: what is saved is what the name leads to when it
// is opened, metadata and content of one directory.
func TestDirectoryBecomesAnother(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a/first": "1", "dir/x": "2"})
	m := newMemory()
	got, err := captureInOrder(t, ws, m, after("", func() {
		require.NoError(t, os.Rename(filepath.Join(ws, "dir"), filepath.Join(ws, "old")))
		write(t, ws, map[string]string{"dir/y": "3"})
		require.NoError(t, os.Chmod(filepath.Join(ws, "dir"), 0o750))
	}))
	require.NoError(t, err)
	all := m.entries(t, got)
	require.Equal(t, uint32(0o750), all["dir"].Mode)
	require.Contains(t, all, "dir/y")
	require.NotContains(t, all, "dir/x")
}

// TestFileGrowsBeforeItIsRead: it is saved as it is then, also when it has
// outgrown the place that was meant for it.
func TestFileGrowsBeforeItIsRead(t *testing.T) {
	for name, size := range map[string]int{"little": 100, "over the batch": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			write(t, ws, map[string]string{"a/first": "1", "log": "2", "other": "3"})
			require.NoError(t, os.Link(filepath.Join(ws, "log"), filepath.Join(ws, "log2")))
			grown := strings.Repeat("y", size)
			m := newMemory()
			got, err := captureInOrder(t, ws, m, after("log", func() { require.NoError(t, os.WriteFile(filepath.Join(ws, "log"), []byte(grown), 0o644)) }))
			require.NoError(t, err)
			all := m.entries(t, got)
			require.True(t, m.content(t, all["log"]) == grown)
			require.Equal(t, [][]string{{"log", "log2"}}, m.links(t, got))
			require.Equal(t, "3", m.content(t, all["other"]))
		})
	}
}

// TestFileChangesWhileItIsRead: it is read again a few times, and then it is an
// offender. The change comes when all of it was read.
func TestFileChangesWhileItIsRead(t *testing.T) {
	change := map[string]func(path string, n byte) error{
		"content": func(path string, n byte) error {
			return overwrite(path, 5, string(rune(n)))
		},
		"shrinks": func(path string, n byte) error { return os.Truncate(path, 2<<20-int64(n)) },
		"mode":    func(path string, n byte) error { return os.Chmod(path, 0o600+os.FileMode(n)) },
	}
	for name, fn := range change {
		for _, times := range []byte{1, 2, 100} {
			t.Run(name, func(t *testing.T) {
				ws := t.TempDir()
				path := filepath.Join(ws, "db")
				write(t, ws, map[string]string{"db": strings.Repeat("0123456789abcdef", 1<<17)})
				var n byte
				m := newMemory()
				m.onPut = func(objs []cas.Object) error {
					if objs[0].Kind == cas.List && n < times { // the last that is stored of it
						n++
						return fn(path, n)
					}
					return nil
				}
				got, err := captureAll(t, ws, m)
				if times >= tries {
					require.Equal(t, map[string]string{"db": errChanging.Error()}, problems(t, err))
					require.Equal(t, tries, int(n))
					return
				}
				require.NoError(t, err)
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				info, err := os.Stat(path)
				require.NoError(t, err)
				e := m.entries(t, got)["db"]
				require.True(t, m.content(t, e) == string(want), "it is as it was last read")
				require.Equal(t, uint32(info.Mode().Perm()), e.Mode)
				require.Equal(t, info.ModTime().UnixNano(), e.MtimeSec*1e9+int64(e.MtimeNsec))
			})
		}
	}
}

// TestFileGrowsWithoutEnd: a writer that is faster than the reader does not keep
// the capture going for ever.
func TestFileGrowsWithoutEnd(t *testing.T) {
	ws := t.TempDir()
	path := filepath.Join(ws, "log")
	write(t, ws, map[string]string{"log": strings.Repeat("x", 2<<20)})
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	const most = 256 << 20
	var mu sync.Mutex
	grown := 0
	m := newMemory()
	m.onPut = func(objs []cas.Object) error { // more than was just read
		mu.Lock()
		defer mu.Unlock()
		if len(objs[0].Data) > 1<<10 && grown < most {
			n, err := f.Write(bytes.Repeat([]byte{1 + byte(grown>>23)}, 2*cas.MaxChunk))
			grown += n
			return err
		}
		return nil
	}
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, 1, got.Grew)
	require.Equal(t, uint64(2<<20), got.Root.Totals.Bytes)
	require.Less(t, grown, most)
}

// TestEndsEarly: when the store fails or the caller gives up, the capture ends
// with that reason and not with a list of files.
func TestEndsEarly(t *testing.T) {
	ws := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		write(t, ws, map[string]string{name + "/x": name, name + "/large": strings.Repeat(name, 2<<20)})
	}
	m := newMemory()
	m.onPut = func([]cas.Object) error { return cas.ErrNoSpace }
	_, err := captureAll(t, ws, m)
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.NotErrorIs(t, err, ErrUnsavable)

	ctx, cancel := context.WithCancel(t.Context())
	m.onPut = func([]cas.Object) error { cancel(); return nil }
	_, err = Tree(ctx, ws, m, Options{Files: rules(t)})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrUnsavable)

	// Trees are stored last: only they meet the full disk.
	m.onPut = func(objs []cas.Object) error {
		if objs[0].Key.NS == cas.Trees {
			return cas.ErrNoSpace
		}
		return nil
	}
	_, err = captureAll(t, ws, m)
	require.ErrorIs(t, err, cas.ErrNoSpace)
}
