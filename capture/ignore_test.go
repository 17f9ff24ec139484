package capture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// omissions are what a capture left out, by path.
func omissions(got Result) map[string]string {
	left := map[string]string{}
	for _, o := range got.Left {
		left[o.Path] = o.Why
	}
	return left
}

// withDefaults are the default excludes.
func withDefaults(t *testing.T) *policy.Files {
	t.Helper()
	files, err := policy.CompileFiles(policy.FilesOptions{})
	require.NoError(t, err)
	return files
}

func TestIgnoreFiles(t *testing.T) {
	gitToo := policy.Settings{GitIgnore: true}
	for name, tt := range map[string]struct {
		files    map[string]string
		settings policy.Settings
		exclude  []string
		want     []string          // paths in the tree
		left     map[string]string // path: part of the reason
		ignore   []string          // the files that were in force
	}{
		"at any depth": {
			files:  map[string]string{".snapfsignore": "*.log\n/top\n", "x.log": "", "top": "", "a/top": "", "a/b/.snapfsignore": "# own\n/y\n!keep.log\n", "a/b/y": "", "a/b/c/y": "", "a/b/keep.log": "", "a/keep.log": ""},
			want:   []string{".snapfsignore", "a", "a/b", "a/b/.snapfsignore", "a/b/c", "a/b/c/y", "a/b/keep.log", "a/top"},
			left:   map[string]string{"x.log": "*.log (.snapfsignore:1)", "top": "/top (.snapfsignore:2)", "a/b/y": "/y (a/b/.snapfsignore:2)", "a/keep.log": ".snapfsignore:1"},
			ignore: []string{".snapfsignore", "a/b/.snapfsignore"},
		},
		"one that is excluded itself counts": {
			files:  map[string]string{".snapfsignore": "/.snapfsignore\nx\n", "x": "", "y": ""},
			want:   []string{"y"},
			left:   map[string]string{".snapfsignore": ".snapfsignore:1", "x": ".snapfsignore:2"},
			ignore: []string{".snapfsignore"},
		},
		"none is read below what is excluded": {
			files:   map[string]string{"out/.snapfsignore": "x\n", "out/x": "", "y": ""},
			exclude: []string{"out"},
			want:    []string{"y"},
			left:    map[string]string{"out": "out (--exclude)"},
		},
		"git's only when asked for": {
			files: map[string]string{".gitignore": "x\n", "x": ""},
			want:  []string{".gitignore", "x"},
		},
		"git's": {
			files:    map[string]string{".gitignore": "x\n!y\n", ".snapfsignore": "y\n!x\n", "x": "", "y": "", "d/.gitignore": "!x\nz\n", "d/x": "", "d/z": ""},
			settings: gitToo,
			want:     []string{".gitignore", ".snapfsignore", "d", "d/.gitignore", "d/x"},
			left:     map[string]string{"x": ".gitignore:1", "y": ".snapfsignore:1", "d/z": "d/.gitignore:2"},
			ignore:   []string{".gitignore", ".snapfsignore", "d/.gitignore"},
		},
		"an empty one": {
			files:  map[string]string{".snapfsignore": "", "x": ""},
			want:   []string{".snapfsignore", "x"},
			ignore: []string{".snapfsignore"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			write(t, ws, tt.files)
			m := newMemory()
			got, err := Tree(t.Context(), ws, m, Options{Files: rules(t, tt.exclude...), Settings: tt.settings})
			require.NoError(t, err)
			all := m.entries(t, got)
			require.Equal(t, tt.want, sortedKeys(all))
			left := omissions(got)
			require.Len(t, left, len(tt.left))
			for path, why := range tt.left {
				require.Contains(t, left[path], why, path)
			}
			var ignore []string
			for _, f := range got.Ignore {
				ignore = append(ignore, f.Path)
				if e, saved := all[f.Path]; saved {
					require.Equal(t, e.Hash, cas.Hash(f.Hash), "its name in the tree")
				}
			}
			require.Equal(t, tt.ignore, ignore)
			require.Empty(t, got.Warnings)
		})
	}
}

// TestIgnoreFileLiftsNothing: whatever an agent writes into the workspace's
// ignore files, what the policy leaves out stays out.
func TestIgnoreFileLiftsNothing(t *testing.T) {
	ws := t.TempDir()
	lift := "!.env\n!/.env\n!**/.env\n!*\n!node_modules/\n!node_modules/**\n!.ssh/\n"
	write(t, ws, map[string]string{
		".snapfsignore": lift, ".gitignore": lift, "a/.snapfsignore": lift, ".env": "KEY=1", "a/.env": "KEY=2", "node_modules/x": "", ".ssh/id": "", "a/b": "",
	})
	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: withDefaults(t), Settings: policy.Settings{GitIgnore: true}})
	require.NoError(t, err)
	require.Equal(t, []string{".gitignore", ".snapfsignore", "a", "a/.snapfsignore", "a/b"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, 4, got.Excluded)
}

// TestIgnoreFileOfOtherKinds: only a regular file is one, and no other is opened.
func TestIgnoreFileOfOtherKinds(t *testing.T) {
	ws, outside := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"rules": "x\n"})
	write(t, ws, map[string]string{"a/x": "", "b/x": "", "c/x": "", "c/.snapfsignore/": ""})
	require.NoError(t, os.Symlink(filepath.Join(outside, "rules"), filepath.Join(ws, "a", ignoreName)))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "b", ignoreName), 0o644))
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a/.snapfsignore", "a/x", "b", "b/x", "c", "c/.snapfsignore", "c/x"}, sortedKeys(m.entries(t, got)))
	require.Empty(t, got.Ignore)
	require.Equal(t, []string{
		"a/.snapfsignore: is no regular file, and its rules do not count",
		"b/.snapfsignore: is no regular file, and its rules do not count",
		"c/.snapfsignore: is no regular file, and its rules do not count",
	}, got.Warnings)
}

// TestIgnoreFileThatCannotBeRead fails the capture, or takes its whole directory out.
func TestIgnoreFileThatCannotBeRead(t *testing.T) {
	ws := t.TempDir()
	longest := "secret\n#" + strings.Repeat("x", maxIgnoreFile-8)
	require.Len(t, longest, maxIgnoreFile)
	write(t, ws, map[string]string{"a/.snapfsignore": longest, "a/secret": "", "a/b": "", "c": ""})
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a/.snapfsignore", "a/b", "c"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, m.entries(t, got)["a/.snapfsignore"].Hash, cas.Hash(got.Ignore[0].Hash), "the longest is named as its blob")

	write(t, ws, map[string]string{"a/.snapfsignore": longest + "x"})
	_, err = captureAll(t, ws, newMemory())
	require.Equal(t, map[string]string{"a": "ignore file .snapfsignore: 1048577 bytes long, at most 1048576 are read"}, problems(t, err))

	m = newMemory()
	got, err = Tree(t.Context(), ws, m, Options{Files: rules(t), SkipUnreadable: true})
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, 1, got.Unreadable)
	require.Contains(t, omissions(got)["a"], "unreadable: ignore file")
}

func TestIgnoreFileThatIsReplaced(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{".snapfsignore": "x\n", "x": ""})
	d, err := openRoot(ws)
	require.NoError(t, err)
	defer d.close()
	listed := dirName{name: ignoreName, kind: unix.DT_REG}
	content, is, err := d.readIgnore(listed)
	require.NoError(t, err)
	require.True(t, is)
	require.Equal(t, "x\n", string(content))

	require.NoError(t, os.Remove(filepath.Join(ws, ignoreName)))
	_, _, err = d.readIgnore(listed)
	require.ErrorIs(t, vanished(err), errVanished)
	require.NoError(t, os.Symlink("x", filepath.Join(ws, ignoreName)))
	_, _, err = d.readIgnore(listed)
	require.ErrorIs(t, vanished(err), errReplaced)
	_, is, err = d.readIgnore(dirName{name: ignoreName, kind: unix.DT_UNKNOWN})
	require.NoError(t, err)
	require.False(t, is)
	require.NoError(t, os.Remove(filepath.Join(ws, ignoreName)))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, ignoreName), 0o644))
	_, _, err = d.readIgnore(listed)
	require.ErrorIs(t, vanished(err), errReplaced)
}

func TestBadLinesOfIgnoreFiles(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{
		"b/.gitignore": "ok\n[\nsec\x01ret[\n", "b/ok": "", "a\n/.snapfsignore": "!\n", "c/.snapfsignore": strings.Repeat("[\n", 250),
	})
	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Settings: policy.Settings{GitIgnore: true}})
	require.NoError(t, err)
	require.NotContains(t, m.entries(t, got), "b/ok", "the good lines count")
	require.Equal(t, []string{
		"\"a\\n/.snapfsignore\":1: pattern ! does not count: \"!\" alone matches nothing (write the pattern to lift behind the \"!\", or \\! for a name that begins with it)",
		"b/.gitignore:2: pattern [ does not count: \"[\" is not closed (close the set with ], or write \\[ for a bracket in a name)",
		"b/.gitignore:3: pattern \"sec\\001ret[\" does not count: \"[\" is not closed (close the set with ], or write \\[ for a bracket in a name)",
	}, got.Warnings[:3])
	require.Len(t, got.Warnings, maxWarnings+1)
	require.Equal(t, "and 4 more warnings", got.Warnings[maxWarnings])
}

// TestIgnoreFilesAreBounded: a workspace cannot make a capture take minutes.
func TestIgnoreFilesAreBounded(t *testing.T) {
	ws := t.TempDir()
	many := strings.Repeat("a\n", maxIgnoreFile/2)
	write(t, ws, map[string]string{".snapfsignore": many, "x": ""})
	_, err := captureAll(t, ws, newMemory())
	require.ErrorIs(t, err, policy.ErrTooManyRules)

	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("%d/.snapfsignore", i)] = strings.Repeat("a\n", 50_000)
	}
	ws = t.TempDir()
	write(t, ws, files)
	_, err = captureAll(t, ws, newMemory())
	require.ErrorIs(t, err, policy.ErrTooManyRules, "in all files together")
}

func TestCacheDirectories(t *testing.T) {
	ws := t.TempDir()
	tag := cacheSignature + "\n# made by a program\n"
	write(t, ws, map[string]string{
		"cache/CACHEDIR.TAG": tag, "cache/a": "1", "cache/b/c": "2", "cache/.snapfsignore": "", "only/CACHEDIR.TAG": tag,
		"no/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc5", "no/a": "", "deep/CACHEDIR.TAG/": "", "deep/a": "", "link/a": "", "x": "",
		"out/CACHEDIR.TAG": tag, "out/a": "",
	})
	require.NoError(t, os.Symlink("../cache/CACHEDIR.TAG", filepath.Join(ws, "link", CacheTag)))
	m := newMemory()
	opt := Options{Files: rules(t, "/out/CACHEDIR.TAG"), Settings: policy.Settings{ExcludeCaches: true}}
	got, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Equal(t, []string{
		"cache", "cache/CACHEDIR.TAG", "deep", "deep/CACHEDIR.TAG", "deep/a", "link", "link/CACHEDIR.TAG", "link/a", "no", "no/CACHEDIR.TAG", "no/a",
		"only", "only/CACHEDIR.TAG", "out", "x",
	}, sortedKeys(m.entries(t, got)))
	require.Equal(t, map[string]string{
		"cache": "a cache directory: all but its CACHEDIR.TAG", "out": "a cache directory: all but its CACHEDIR.TAG",
		"out/CACHEDIR.TAG": "excluded by /out/CACHEDIR.TAG (--exclude)",
	}, omissions(got))
	require.Equal(t, 3, got.Excluded)

	opt.Settings = policy.Settings{}
	got, err = Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Contains(t, m.entries(t, got), "cache/b/c", "only when asked for")

	root := t.TempDir()
	write(t, root, map[string]string{CacheTag: tag, "a": ""})
	opt.Settings.ExcludeCaches = true
	got, err = Tree(t.Context(), root, m, opt)
	require.NoError(t, err)
	require.Equal(t, []string{CacheTag}, sortedKeys(m.entries(t, got)))
	require.Contains(t, omissions(got), ".")
}

// TestPatternsOfSeveralParts: a pattern with several parts takes what it
// matches, and never the directory that its first part names.
func TestPatternsOfSeveralParts(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{
		".cache/foo/1/node_modules/z": "", ".cache/foo/1/big/z": "", ".cache/foo/1/2/big/z": "", ".cache/keep/y": "", "a/node_modules/x/i.js": "", "a/b": "", "dist/d": "", "dist/e/f": "", "locked/x": "",
	})
	locked := filepath.Join(ws, "locked") // a save as an ordinary user must not even try
	require.NoError(t, os.Chmod(locked, 0))
	t.Cleanup(func() { require.NoError(t, os.Chmod(locked, 0o755)) })
	for _, tt := range []struct {
		exclude []string
		want    []string
	}{
		{[]string{".cache/foo/*/node_modules", ".cache/foo/*/big", "dist/**", "**/node_modules", "locked"},
			[]string{".cache", ".cache/foo", ".cache/foo/1", ".cache/foo/1/2", ".cache/foo/1/2/big", ".cache/foo/1/2/big/z", ".cache/keep", ".cache/keep/y", "a", "a/b", "dist"}},
		{[]string{"node_modules/**", ".cache/foo/**", "/dist/", "/locked/"},
			[]string{".cache", ".cache/foo", ".cache/keep", ".cache/keep/y", "a", "a/b", "a/node_modules", "a/node_modules/x", "a/node_modules/x/i.js"}},
	} {
		m := newMemory()
		got, err := captureWith(t, ws, m, 2, func(w *walker) {
			w.opt.Files = rules(t, tt.exclude...)
			w.looked = func(path string) { require.NotContains(t, path, "locked", "what is excluded is not even looked at") }
		})
		require.NoError(t, err)
		require.Equal(t, tt.want, sortedKeys(m.entries(t, got)), tt.exclude)
	}
}

// TestWarnsOfEmptiedDirectories: a directory in the root of which a pattern of
// several parts leaves nothing.
func TestWarnsOfEmptiedDirectories(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{".cache/foo/1/a": "", "a/x": "", "a/y/z": "", "kept/x": "", "kept/y": "", "e/": "", "own/x": "", "own/.snapfsignore": "", "nm/node_modules/x": "", ".claude/skills/s": ""})
	warnings := func(ignore string, exclude ...string) []string {
		write(t, ws, map[string]string{".snapfsignore": ignore})
		opt := policy.FilesOptions{}
		for _, p := range exclude {
			opt.Exclude = append(opt.Exclude, policy.Rule{Pattern: p, Source: "--exclude"})
		}
		files, err := policy.CompileFiles(opt)
		require.NoError(t, err)
		got, err := Tree(t.Context(), ws, newMemory(), Options{Files: files})
		require.NoError(t, err)
		return got.Warnings
	}
	require.Equal(t, []string{
		".cache: no file in it is saved; one of the rules that leave them out is .cache/foo/** (--exclude)",
		"a: no file in it is saved; one of the rules that leave them out is /a/* (--exclude)",
	}, warnings("", ".cache/foo/**", "/a/*", "kept/x", "/e/*"))
	require.Equal(t, []string{"kept: no file in it is saved; one of the rules that leave them out is **/x (--exclude)"}, warnings("", "**/x", "**/y", "a", "own", "nm"), "each by a pattern of several parts")
	require.Empty(t, warnings("", "a", "/kept", "x", "node_modules", "y/", "/nm/", "[!/]wn"), "whole directories and plain names are meant")
	require.Empty(t, warnings("/own/*\n/a/*\n"), "the workspace's own files are the workspace's business")
}

// TestIgnoreFileAndLinks: an ignore file decides about links and directories by name, as
// all rules do.
func TestIgnoreFileAndLinks(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{".snapfsignore": "l\nd/\n", "d/x": "", "t": ""})
	require.NoError(t, os.Symlink("t", filepath.Join(ws, "l")))
	require.NoError(t, os.Symlink("t", filepath.Join(ws, "e")))
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, []string{".snapfsignore", "e", "t"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, tree.Symlink, m.entries(t, got)["e"].Kind)
}

// TestBudgetEndsTheWalk: once the patterns cost too much nothing more is compared.
func TestBudgetEndsTheWalk(t *testing.T) {
	if !soak.Large() {
		t.Skip("takes half a minute of one processor: set SNAPFS_LARGE=1")
	}
	ws := t.TempDir()
	pattern := "*" + strings.Repeat("a", 110) + "b*"
	files := map[string]string{".snapfsignore": strings.Repeat(pattern+"\n", maxIgnoreFile/(len(pattern)+1))}
	for i := range 2_000 {
		files[fmt.Sprintf("%s%05d", strings.Repeat("a", 240), i)] = ""
	}
	write(t, ws, files)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Tree(ctx, ws, newMemory(), Options{Files: rules(t)})
	require.ErrorIs(t, err, policy.ErrTooMuchWork)
}
