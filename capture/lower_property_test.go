package capture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// overlay is a workspace over a directory that was captured.
type overlay struct {
	dir, base, layer, ws string
	m                    *memory
	opt                  Options
	lower                *Lower
}

// newOverlay captures what fill makes, takes away what the policy left out, and mounts
// overlayfs on it. end takes that away.
func newOverlay(t require.TestingT, dir string, opt Options, fill func(base string)) (o *overlay, end func()) {
	o = &overlay{dir: dir, base: dir + "/base", layer: dir + "/layer", ws: dir + "/ws", m: newMemory(), opt: opt}
	for _, d := range []string{o.base, o.layer, o.layer + "/upper", o.layer + "/work", o.ws} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	fill(o.base)
	got, err := Tree(context.Background(), o.base, o.m, opt)
	require.NoError(t, err)
	for _, path := range got.ByPolicy {
		require.NoError(t, os.RemoveAll(filepath.Join(o.base, path)))
	}
	got, err = Tree(context.Background(), o.base, o.m, opt)
	require.NoError(t, err)
	o.lower = &Lower{
		Upper: o.layer + "/upper", Trees: tree.NewReader(o.m, 1<<20), Blobs: o.m, Root: got.Root.Hash, UID: got.Stat.UID, GID: got.Stat.GID,
		Secrets: got.Secrets, Ignore: got.Ignore,
	}
	if got.Links != (cas.Blob{}) {
		o.lower.Links, err = tree.DecodeLinks(o.m.objects[cas.Key{NS: cas.Trees, Hash: got.Links.Hash}])
		require.NoError(t, err)
	}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(o.base, &st))
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, o.lower.Upper, []unix.Timespec{st.Atim, st.Mtim}, 0))
	require.NoError(t, unix.Setxattr(o.lower.Upper, LowerMark, []byte("y"), 0))
	o.mount(t)
	return o, func() { _ = unix.Unmount(o.ws, unix.MNT_DETACH) }
}

func (o *overlay) mount(t require.TestingT) {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,redirect_dir=on,index=off,nfs_export=off,metacopy=off,xino=auto", o.base, o.layer, o.layer)
	require.NoError(t, unix.Mount("overlay", o.ws, "overlay", 0, options))
}

func (o *overlay) remount(t require.TestingT) {
	require.NoError(t, unix.Unmount(o.ws, 0))
	o.mount(t)
}

// fast captures the changes. It is refused with ErrNeedsScan where they do not suffice.
func (o *overlay) fast(known *Known) (Result, error) {
	opt := o.opt
	opt.Lower, opt.Known = o.lower, known
	return Tree(context.Background(), o.ws, o.m, opt)
}

func (o *overlay) full() (Result, error) { return Tree(context.Background(), o.ws, o.m, o.opt) }

// requireSame: all that a checkpoint has of two captures is the same.
func requireSame(t require.TestingT, fast, full Result) {
	require.Equal(t, full.Root, fast.Root)
	fast.Known, full.Known, fast.Read, full.Read = nil, nil, 0, 0
	slices.Sort(fast.ByPolicy) // they come in the order in which they were met
	slices.Sort(full.ByPolicy)
	require.Equal(t, full, fast)
}

var overlayNames = []string{"a", "b", "c", "d.log", "e.db", "e.db-wal", "keep"}

// operate does one operation of a program. What is not possible just now does nothing.
func (o *overlay) operate(t *rapid.T) {
	dirs, files := []string{"."}, []string{}
	_ = filepath.WalkDir(o.ws, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(o.ws, path)
		if err != nil || rel == "." {
			return nil
		}
		if d.IsDir() {
			dirs = append(dirs, rel)
		} else {
			files = append(files, rel)
		}
		return nil
	})
	all := append(slices.Clone(dirs[1:]), files...)
	old := func() string {
		if len(all) == 0 {
			return o.ws + "/none"
		}
		return filepath.Join(o.ws, all[rapid.IntRange(0, len(all)-1).Draw(t, "old")])
	}
	file := func() string {
		if len(files) == 0 {
			return o.ws + "/none"
		}
		return filepath.Join(o.ws, files[rapid.IntRange(0, len(files)-1).Draw(t, "file")])
	}
	place := func() string {
		return filepath.Join(o.ws, dirs[rapid.IntRange(0, len(dirs)-1).Draw(t, "in")], rapid.SampledFrom(overlayNames).Draw(t, "name"))
	}
	text := func() []byte { return []byte(strings.Repeat("x", rapid.IntRange(0, 40).Draw(t, "len"))) }
	switch op := rapid.IntRange(0, 18).Draw(t, "op"); op {
	case 0, 1:
		if at := place(); !isFifo(at) {
			_ = os.WriteFile(at, text(), 0o644)
		}
	case 2:
		if f, err := os.OpenFile(file(), os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0); err == nil {
			_, _ = f.Write(text())
			_ = f.Close()
		}
	case 3:
		_ = os.Truncate(file(), int64(rapid.IntRange(0, 30).Draw(t, "size")))
	case 4:
		_ = os.Chmod(old(), os.FileMode(rapid.SampledFrom([]uint32{0o600, 0o755, 0o640, 0o777}).Draw(t, "mode")))
	case 5:
		_ = os.Lchown(old(), rapid.IntRange(0, 2).Draw(t, "uid"), 0)
	case 6:
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, old(), []unix.Timespec{{Sec: 1}, {Sec: int64(rapid.IntRange(-5, 5).Draw(t, "time")), Nsec: 7}}, unix.AT_SYMLINK_NOFOLLOW)
	case 7, 8, 9:
		_ = os.Rename(old(), place())
	case 10:
		_ = unix.Renameat2(unix.AT_FDCWD, old(), unix.AT_FDCWD, old(), unix.RENAME_EXCHANGE)
	case 11:
		_ = os.Link(file(), place())
	case 12:
		_ = os.Symlink("a/"+string(text()), place())
	case 13:
		_ = os.Remove(file())
	case 14:
		_ = os.RemoveAll(old())
	case 15:
		_ = os.Mkdir(place(), 0o750)
	case 16: // a directory goes, and comes back; a file becomes one, or the reverse
		at := old()
		_ = os.RemoveAll(at)
		if rapid.Bool().Draw(t, "directory") {
			_ = os.Mkdir(at, 0o755)
		} else {
			_ = os.WriteFile(at, text(), 0o600)
		}
	case 17:
		if rapid.Bool().Draw(t, "set") {
			_ = unix.Lsetxattr(old(), "user.x", text(), 0)
		} else {
			_ = unix.Lremovexattr(old(), "user.x")
		}
	case 18:
		if rapid.IntRange(0, 3).Draw(t, "pipe") == 0 {
			_ = unix.Mkfifo(place(), 0o600)
		}
	}
}

// fillBase makes what is captured first: links, attributes, odd kinds, what rules leave out.
func fillBase(t *rapid.T, base string) {
	n := rapid.IntRange(5, 25).Draw(t, "entries")
	dirs := []string{base}
	var files []string
	for i := range n {
		dir := dirs[rapid.IntRange(0, len(dirs)-1).Draw(t, "dir")]
		path := filepath.Join(dir, rapid.SampledFrom(append(overlayNames, fmt.Sprint("f", i))).Draw(t, "name"))
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0, 1:
			if os.Mkdir(path, 0o755) == nil {
				dirs = append(dirs, path)
			}
		case 2, 3:
			if os.WriteFile(path, fmt.Append(nil, "content of ", i%7), 0o644) == nil {
				files = append(files, path)
			}
		case 4:
			_ = os.Symlink("to", path)
		case 5:
			if len(files) > 0 {
				_ = os.Link(files[rapid.IntRange(0, len(files)-1).Draw(t, "of")], path)
			}
		case 6:
			if os.WriteFile(path, []byte("AKIAIOSFODNN7EXAMPLQ\nkey"), 0o644) == nil {
				_ = unix.Setxattr(path, "user.y", []byte("1"), 0)
				files = append(files, path)
			}
		}
	}
}

// TestLowerProperty: whatever programs do in a workspace, a capture of its changes is the
// same as one that reads all of it.
func TestLowerProperty(t *testing.T) {
	needRoot(t)
	soak.Checks(t, 15, 700)
	root := shm(t)
	policies := [][]string{nil, {"/a/*.log", "/keep/b"}, {"*.log"}, {"/b/**/c", "!/b/a/c"}}
	captures, refused, operations := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		opt := Options{Files: rulesOf(t, rapid.SampledFrom(policies).Draw(t, "policy")), Screen: Screen{Mode: policy.SecretsWarn}}
		o, end := newOverlay(t, dir, opt, func(base string) { fillBase(t, base) })
		defer end()
		var known *Known
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 8).Draw(t, "operations") {
				o.operate(t)
				operations++
			}
			if rapid.IntRange(0, 4).Draw(t, "remount") == 0 {
				o.remount(t)
			}
			full, err := o.full()
			require.NoError(t, err)
			captures++
			fast, err := o.fast(known)
			if errors.Is(err, ErrNeedsScan) {
				refused++
				continue
			}
			require.NoError(t, err)
			requireSame(t, fast, full)
			known, _, err = DecodeKnown(fast.Known.Encode(nil))
			require.NoError(t, err)
		}
	})
	t.Logf("%d operations, %d captures, of which %d needed all of the workspace", operations, captures, refused)
	require.Less(t, refused, captures/2)
}

// shm is a directory in memory that overlayfs can write to.
func shm(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "snapfs-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func rulesOf(t require.TestingT, exclude []string) *policy.Files {
	var list []policy.Rule
	for _, p := range exclude {
		list = append(list, policy.Rule{Pattern: p, Source: "test"})
	}
	files, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Exclude: list})
	require.NoError(t, err)
	return files
}

// isFifo tells of what would keep a writer waiting.
func isFifo(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeNamedPipe
}
