package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/memory"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// plainFile is a file or a link of a version that is made without a store.
type plainFile struct {
	mode   uint32 // of a file
	data   string
	target string // of a link
}

// plainTree is a version by path, without directories of its own.
type plainTree map[string]plainFile

// version stores a tree.
func (p plainTree) version(t require.TestingT, name string, s *memory.Store) version {
	w, err := s.NewWriter(context.Background())
	require.NoError(t, err)
	defer w.Close()
	var build func(below plainTree) tree.Root
	build = func(below plainTree) tree.Root {
		dirs, entries := map[string]plainTree{}, map[string]tree.Entry{}
		for at, f := range below {
			first, rest, deeper := strings.Cut(at, "/")
			switch {
			case deeper:
				if dirs[first] == nil {
					dirs[first] = plainTree{}
				}
				dirs[first][rest] = f
			case f.target != "":
				entries[first] = tree.Entry{Name: first, Kind: tree.Symlink, Mode: 0o777, Target: f.target, Size: uint64(len(f.target))}
			default:
				blob, err := cas.WriteBlob(context.Background(), w, cas.Files, strings.NewReader(f.data))
				require.NoError(t, err)
				entries[first] = tree.Entry{Name: first, Kind: tree.File, Mode: f.mode, Size: uint64(len(f.data)), Hash: blob.Hash}
			}
		}
		totals := map[string]tree.Totals{}
		for name, below := range dirs {
			root := build(below)
			entries[name], totals[name] = tree.Entry{Name: name, Kind: tree.Dir, Mode: 0o755, Hash: root.Hash}, root.Totals
		}
		var b tree.Builder
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			require.NoError(t, b.Add(entries[name], totals[name]))
		}
		root, objs, err := b.Finish()
		require.NoError(t, err)
		require.NoError(t, w.Put(context.Background(), objs...))
		return root
	}
	root := build(p)
	require.NoError(t, w.Flush(context.Background()))
	return version{name: name, root: tree.Entry{Kind: tree.Dir, Mode: 0o755, Hash: root.Hash}, content: func(ctx context.Context, _ string, e *tree.Entry, out io.Writer) error {
		return cas.CopyBlob(ctx, out, s, cas.Files, blob(e))
	}}
}

// patchOf compares two versions.
func patchOf(t require.TestingT, a, b plainTree) string {
	s := memory.New()
	c := &Comparison{old: a.version(t, "a", s), new: b.version(t, "b", s), trees: tree.NewReader(s, 1<<20)}
	var out bytes.Buffer
	require.NoError(t, c.Changes(context.Background(), DiffOptions{}, func(ch tree.Change) error {
		lines, err := c.Lines(context.Background(), ch)
		require.NoError(t, err)
		before := out.Len()
		if err := c.Patch(context.Background(), &out, ch); err != nil {
			return err
		}
		// What is counted is what the patch has.
		inserted, deleted, inHunks := 0, 0, false
		for line := range strings.Lines(out.String()[before:]) {
			switch {
			case strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "Binary files "):
				inHunks = false
			case strings.HasPrefix(line, "@@ "):
				inHunks = true
			case inHunks && line[0] == '+':
				inserted++
			case inHunks && line[0] == '-':
				deleted++
			}
		}
		if ch.Op != tree.Renamed { // where links are taken away and made anew
			require.Equal(t, LineStat{Inserted: inserted, Deleted: deleted, Binary: lines.Binary}, lines, "%s %s", ch.Op, ch.Path)
		}
		return nil
	}))
	return out.String()
}

// on writes a version to a directory.
func (p plainTree) on(t require.TestingT, dir string) {
	for at, f := range p {
		full := filepath.Join(dir, at)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if f.target != "" {
			require.NoError(t, os.Symlink(f.target, full))
			continue
		}
		require.NoError(t, os.WriteFile(full, []byte(f.data), 0o600))
		require.NoError(t, os.Chmod(full, os.FileMode(f.mode)))
	}
}

// plainTreeIn reads a directory.
func plainTreeIn(t require.TestingT, dir string) plainTree {
	p := plainTree{}
	require.NoError(t, filepath.WalkDir(dir, func(full string, e iofs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		require.NoError(t, err)
		var f plainFile
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(full)
			require.NoError(t, err)
			f = plainFile{mode: uint32(info.Mode().Perm()), data: string(data)}
		} else {
			f.target, err = os.Readlink(full)
			require.NoError(t, err)
		}
		at, err := filepath.Rel(dir, full)
		p[at] = f
		return err
	}))
	return p
}

func needPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch is not installed")
	}
}

// applied makes of a version what patch(1) does.
func applied(t require.TestingT, top string, a plainTree, diff string) plainTree {
	dir, err := os.MkdirTemp(top, "")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	a.on(t, dir)
	if diff != "" {
		cmd := exec.Command("patch", "-p1", "-s", "-F0", "--batch")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(diff)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, diff)
	}
	return plainTreeIn(t, dir)
}

// TestPatchModel: the patch between two versions, applied to the first, is the second.
func TestPatchModel(t *testing.T) {
	needPatch(t)
	top := t.TempDir()
	file := rapid.Custom(func(t *rapid.T) plainFile {
		if rapid.IntRange(0, 6).Draw(t, "kind") == 0 {
			return plainFile{target: rapid.SampledFrom([]string{"x", "../y", "a b", "\xff", "new\nline", "\\"}).Draw(t, "target")}
		}
		f := plainFile{mode: rapid.SampledFrom([]uint32{0o644, 0o755, 0o600, 0o444, 0o751}).Draw(t, "mode")}
		some := rapid.SampledFrom([]string{"\n", "1\n", "2\n", "\xff\r\n", "--- a/f\n", "+++ b/f\n", "diff --git a/x b/x\n", "long " + strings.Repeat("line ", 3000) + "\n", "\\ No newline\n"})
		f.data = strings.Join(rapid.SliceOfN(some, 0, 30).Draw(t, "lines"), "") + rapid.SampledFrom([]string{"", "", "", "end", "\xfe"}).Draw(t, "last")
		return f
	})
	names := rapid.SampledFrom([]string{"a", "a b", "é", "\xff", "q\"\\", "tab\t", "new\nline", "-dash", "b", "end\r", " "})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		if n++; n > 50 && os.Getenv("SNAPFS_LARGE") != "1" {
			return // each starts a process
		}
		// What is a directory in one is none in the other: GNU patch does not make that.
		draw := func(like plainTree, other string) plainTree {
			p := maps.Clone(like)
			for range rapid.IntRange(0, 5).Draw(t, "files") {
				at := rapid.SampledFrom([]string{"", "", other, "e f/", "dd/" + other}).Draw(t, "dir") + "f" + names.Draw(t, "name")
				p[at] = file.Draw(t, "file")
			}
			return p
		}
		a := draw(plainTree{}, "x/")
		b := draw(a, "y/")
		for _, at := range slices.Sorted(maps.Keys(a)) {
			f := b[at]
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0:
				delete(b, at)
			case 1:
				delete(b, at)
				b["moved/"+at] = f
			case 2:
				if f.target == "" {
					f.mode ^= 0o100
					b[at] = f
				}
			case 3:
				if f.target == "" {
					f.data = "first\n" + f.data
					b[at] = f
				}
			}
		}
		require.Equal(t, b, applied(t, top, a, patchOf(t, a, b)))
	})
}

func TestPatch(t *testing.T) {
	for name, c := range map[string]struct {
		a, b plainTree
		want string
	}{
		"a new file":        {plainTree{}, plainTree{"d/f": {mode: 0o640, data: "1\n2"}}, "diff --git a/d/f b/d/f\nnew file mode 100640\n--- /dev/null\n+++ b/d/f\n@@ -0,0 +1,2 @@\n+1\n+2\n\\ No newline at end of file\n"},
		"an empty one":      {plainTree{}, plainTree{"f": {mode: 0o644}}, "diff --git a/f b/f\nnew file mode 100644\nindex 0000000000..e69de29bb2\n"},
		"a deleted one":     {plainTree{"f": {mode: 0o644, data: "1\n"}}, plainTree{}, "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"},
		"only a mode":       {plainTree{"f": {mode: 0o644, data: "1\n"}}, plainTree{"f": {mode: 0o755, data: "1\n"}}, "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"},
		"a renamed file":    {plainTree{"o d": {mode: 0o644, data: "1\n"}}, plainTree{"né": {mode: 0o755, data: "1\n"}}, "diff --git \"a/o d\" \"b/n\\303\\251\"\nold mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from \"o d\"\nrename to \"n\\303\\251\"\n"},
		"a directory":       {plainTree{"o/f": {mode: 0o644, data: "1\n"}}, plainTree{"n/f": {mode: 0o644, data: "1\n"}}, "diff --git a/o/f b/n/f\nsimilarity index 100%\nrename from o/f\nrename to n/f\n"},
		"a link":            {plainTree{"l": {target: "old"}}, plainTree{"l": {target: "new"}}, "diff --git a/l b/l\nindex 489ce0f857..3e5126c4e7 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n"},
		"another kind":      {plainTree{"l": {target: "old"}}, plainTree{"l": {mode: 0o644, data: "1\n"}}, "diff --git a/l b/l\ndeleted file mode 120000\n--- a/l\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\\ No newline at end of file\ndiff --git a/l b/l\nnew file mode 100644\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+1\n"},
		"binary":            {plainTree{"f": {mode: 0o644, data: "\x00"}}, plainTree{"f": {mode: 0o755, data: "1\n"}}, "\nBinary files a/f and b/f differ\ndiff --git a/f b/f\nold mode 100644\nnew mode 100755\n"},
		"a new binary":      {plainTree{}, plainTree{"f": {mode: 0o644, data: "\x00"}}, "\nBinary files /dev/null and b/f differ\n"},
		"a deleted binary":  {plainTree{"f": {mode: 0o644, data: "\x00"}}, plainTree{}, "\nBinary files a/f and /dev/null differ\n"},
		"a renamed binary":  {plainTree{"f": {mode: 0o644, data: "\x00"}}, plainTree{"g": {mode: 0o644, data: "\x00"}}, "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n"},
		"bells and unicode": {plainTree{}, plainTree{"\a\b\v\f\r\x7f\xff": {mode: 0o644}}, "diff --git \"a/\\a\\b\\v\\f\\r\\177\\377\" \"b/\\a\\b\\v\\f\\r\\177\\377\"\nnew file mode 100644\nindex 0000000000..e69de29bb2\n"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, patchOf(t, c.a, c.b)) })
	}
	c := &Comparison{}
	_, err := c.text(t.Context(), &c.old, "too long", &tree.Entry{Kind: tree.File, Size: MaxText + 1}) // which is not read
	require.ErrorIs(t, err, errBinary)
}

// TestPatchBinary: what is named is not applied, and what follows is.
func TestPatchBinary(t *testing.T) {
	needPatch(t)
	a := plainTree{"b": {mode: 0o644, data: "\x00"}, "c": {mode: 0o644, data: "\x00"}, "f": {mode: 0o644, data: "1\n"}, "z": {mode: 0o644, data: "1\n"}}
	b := plainTree{"b": {mode: 0o755, data: "\x00\x00"}, "f": {mode: 0o644, data: "2\n"}, "n": {mode: 0o644, data: "\x00\x01"}, "z": {mode: 0o644, data: "2\n"}}
	want := plainTree{"b": {mode: 0o755, data: "\x00"}, "c": a["c"], "f": b["f"], "z": b["z"]}
	require.Equal(t, want, applied(t, t.TempDir(), a, patchOf(t, a, b)))
}

// TestPatchLarge: a real tree, edited in hundreds of places. SNAPFS_LARGE takes all of
// Go's sources.
func TestPatchLarge(t *testing.T) {
	needPatch(t)
	said, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	goroot := strings.TrimSpace(string(said))
	from := filepath.Join(goroot, "src/strconv")
	if os.Getenv("SNAPFS_LARGE") == "1" {
		from = goroot
	}
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-a", from, ws).Run())
	opt := SaveOptions{Workspace: ws, Thread: "t", ID: "a", Files: policy.FilesOptions{NoDefaults: true}}
	_, err = s.Save(t.Context(), opt)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	n := 0
	require.NoError(t, filepath.WalkDir(ws, func(full string, e iofs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || rng.IntN(10) > 0 && os.Getenv("SNAPFS_LARGE") == "1" || strings.Contains(full, "/moved") {
			return err
		}
		data, err := os.ReadFile(full)
		require.NoError(t, err)
		if bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		info, err := e.Info()
		require.NoError(t, err)
		n++
		switch n % 7 {
		case 0:
			data = append(data, "appended\n"...)
		case 1:
			return os.Remove(full)
		case 2:
			require.NoError(t, os.WriteFile(full+" new", data[:len(data)/2], 0o640))
		case 3:
			return os.Chmod(full, info.Mode()^0o111)
		case 4:
			require.NoError(t, os.MkdirAll(filepath.Join(ws, "moved"), 0o755))
			return os.Rename(full, filepath.Join(ws, "moved", fmt.Sprint(n)))
		case 5:
			data = slices.Concat(data[:len(data)/2], []byte("in the middle\n"), data[len(data)/2:])
		default:
			lines := bytes.SplitAfter(data, []byte("\n"))
			for range 1 + len(lines)/20 {
				lines[rng.IntN(len(lines))] = fmt.Appendf(nil, "line %d\n", rng.Int())
			}
			data = bytes.Join(lines, nil)
		}
		return os.WriteFile(full, data, 0o600)
	}))
	require.NoError(t, exec.CommandContext(t.Context(), "find", ws, "-type", "d", "-empty", "-delete").Run()) // which are in no patch
	opt.ID = "b"
	_, err = s.Save(t.Context(), opt)
	require.NoError(t, err)
	c, err := s.Compare(t.Context(), "a", "b")
	require.NoError(t, err)
	diff := filepath.Join(t.TempDir(), "diff")
	out, err := os.Create(diff)
	require.NoError(t, err)
	ops := map[tree.Op]int{}
	require.NoError(t, c.Changes(t.Context(), DiffOptions{}, func(ch tree.Change) error {
		ops[ch.Op]++
		return c.Patch(t.Context(), out, ch)
	}))
	require.NoError(t, out.Close())
	for _, op := range []tree.Op{tree.Added, tree.Deleted, tree.Modified, tree.Metadata, tree.Renamed} {
		require.NotZero(t, ops[op], op.String())
	}
	dir := restored(t, s, "a")
	in, err := os.Open(diff)
	require.NoError(t, err)
	defer in.Close()
	cmd := exec.CommandContext(t.Context(), "patch", "-p1", "-s", "-F0", "--batch")
	cmd.Dir, cmd.Stdin = dir, in
	said, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	said, err = exec.CommandContext(t.Context(), "diff", "-r", "--no-dereference", dir, ws).CombinedOutput()
	require.NoError(t, err, "%.1000s", said)
	modes := func(top string) map[string]string {
		all := map[string]string{}
		require.NoError(t, filepath.WalkDir(top, func(full string, e iofs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				info, ierr := e.Info()
				require.NoError(t, ierr)
				all[path.Clean(full[len(top):])] = info.Mode().String()
			}
			return err
		}))
		return all
	}
	require.Equal(t, modes(ws), modes(dir))
	t.Logf("%d files: %v", n, ops)
}
