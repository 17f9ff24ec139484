package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
)

// overlaid is a workspace over some files, with the capture of which a test goes on.
func overlaid(t *testing.T, opt Options, fill func(base string)) *overlay {
	t.Helper()
	needRoot(t)
	if opt.Files == nil {
		opt.Files = rules(t)
	}
	o, end := newOverlay(t, shm(t), opt, fill)
	t.Cleanup(end)
	return o
}

func sampleBase(t *testing.T) func(base string) {
	return func(base string) {
		write(t, base, map[string]string{
			"a": "a", "dir/b": "b", "dir/sub/c": "c", "dir/sub/d": "d", "other/e": "e", "other/deep/er/f": "f", "empty/": "",
			"data.db": "x", "log": strings.Repeat("l", 100),
		})
		require.NoError(t, os.Link(base+"/a", base+"/dir/linked"))
		require.NoError(t, os.Link(base+"/a", base+"/other/linked"))
		require.NoError(t, os.Symlink("dir/b", base+"/link"))
		require.NoError(t, os.WriteFile(base+"/other/secret", []byte("key AKIAIOSFODNN7EXAMPLQ\n"), 0o600))
	}
}

// TestLowerKinds: each kind of change in the upper directory, by what programs do.
func TestLowerKinds(t *testing.T) {
	for name, change := range map[string]func(ws string) error{
		"nothing":              func(string) error { return nil },
		"a whiteout":           func(ws string) error { return os.Remove(ws + "/dir/b") },
		"a whole directory":    func(ws string) error { return os.RemoveAll(ws + "/dir") },
		"opaque":               func(ws string) error { return errors.Join(os.RemoveAll(ws+"/dir"), os.Mkdir(ws+"/dir", 0o700)) },
		"a relative redirect":  func(ws string) error { return os.Rename(ws+"/dir", ws+"/renamed") },
		"an absolute redirect": func(ws string) error { return os.Rename(ws+"/dir/sub", ws+"/other/deep/sub") },
		"redirects of each other": func(ws string) error {
			return unix.Renameat2(unix.AT_FDCWD, ws+"/dir", unix.AT_FDCWD, ws+"/other/deep", unix.RENAME_EXCHANGE)
		},
		"moved, and something in it changed": func(ws string) error {
			return errors.Join(os.Rename(ws+"/other", ws+"/dir/other"), os.Remove(ws+"/dir/other/e"), os.WriteFile(ws+"/dir/other/deep/n", nil, 0o644))
		},
		"moved twice": func(ws string) error {
			return errors.Join(os.Rename(ws+"/dir", ws+"/x"), os.Rename(ws+"/x", ws+"/empty/y"))
		},
		"moved away and back": func(ws string) error {
			return errors.Join(os.Rename(ws+"/dir", ws+"/x"), os.Rename(ws+"/x", ws+"/dir"))
		},
		"metadata": func(ws string) error { return errors.Join(os.Chmod(ws+"/a", 0o600), os.Chmod(ws+"/dir", 0o700)) },
		"a file for a directory": func(ws string) error {
			return errors.Join(os.RemoveAll(ws+"/dir"), os.WriteFile(ws+"/dir", nil, 0o644))
		},
		"a directory for a file":   func(ws string) error { return errors.Join(os.Remove(ws+"/a"), os.MkdirAll(ws+"/a/b", 0o755)) },
		"a link for a directory":   func(ws string) error { return errors.Join(os.RemoveAll(ws+"/dir"), os.Symlink("x", ws+"/dir")) },
		"a hard link broken":       func(ws string) error { return os.WriteFile(ws+"/a", []byte("other"), 0o644) },
		"a hard link gone":         func(ws string) error { return os.Remove(ws + "/dir/linked") },
		"a hard link to the saved": func(ws string) error { return os.Link(ws+"/log", ws+"/more") },
		"new hard links": func(ws string) error {
			return errors.Join(os.WriteFile(ws+"/n", nil, 0o644), os.Link(ws+"/n", ws+"/dir/m"))
		},
		"a secret moved": func(ws string) error { return os.Rename(ws+"/other", ws+"/new") },
		"a secret gone":  func(ws string) error { return os.Remove(ws + "/other/secret") },
		"attributes":     func(ws string) error { return unix.Setxattr(ws+"/dir/b", "user.k", []byte("v"), 0) },
		"a device": func(ws string) error {
			return errors.Join(unix.Mknod(ws+"/dev", unix.S_IFCHR, 0x103), unix.Mkfifo(ws+"/dir/fifo", 0o600))
		},
		"setuid": func(ws string) error { return unix.Chmod(ws+"/dir/b", 0o4755) },
		"the root": func(ws string) error {
			return errors.Join(os.Chmod(ws, 0o700), unix.Setxattr(ws, "user.k", []byte("v"), 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := overlaid(t, Options{}, sampleBase(t))
			require.NoError(t, change(o.ws))
			for range 2 {
				full, err := o.full()
				require.NoError(t, err)
				fast, err := o.fast(nil)
				require.NoError(t, err)
				requireSame(t, fast, full)
				again, err := o.fast(known(t, fast))
				require.NoError(t, err)
				requireSame(t, again, full)
				require.Zero(t, again.Read)
				o.remount(t)
			}
		})
	}
}

// TestLowerReadsChanges: what did not change is not read, however much it is.
func TestLowerReadsChanges(t *testing.T) {
	o := overlaid(t, Options{}, sampleBase(t))
	require.NoError(t, os.WriteFile(o.ws+"/dir/b", []byte("changed"), 0o644))
	fast, err := o.fast(nil)
	require.NoError(t, err)
	require.EqualValues(t, len("changed"), fast.Read)
}

// byHand changes an upper directory as no mounted overlay may be changed, and mounts it
// again.
func (o *overlay) byHand(t *testing.T, change func(upper string)) {
	t.Helper()
	require.NoError(t, unix.Unmount(o.ws, 0))
	change(o.lower.Upper)
	o.mount(t)
}

// TestLowerWhiteoutFiles: an empty file with an attribute is a whiteout in a directory that
// is marked so, and a file everywhere else, as the kernel has it.
func TestLowerWhiteoutFiles(t *testing.T) {
	o := overlaid(t, Options{}, sampleBase(t))
	set := func(path, name, value string) { require.NoError(t, unix.Setxattr(path, name, []byte(value), 0)) }
	o.byHand(t, func(upper string) {
		write(t, upper, map[string]string{"dir/b": "", "dir/sub/c": "", "dir/linked": "not empty", "other/e": ""})
		for _, p := range []string{"dir/b", "dir/sub/c", "dir/linked"} {
			set(filepath.Join(upper, p), overlayWhiteout, "y")
		}
		set(upper+"/dir", overlayOpaque, "x")
		set(upper+"/other", overlayOpaque, "x")
	})
	// The kernel finds neither of them, but lists both: who reads all of it cannot go on.
	_, err := o.full()
	require.Equal(t, map[string]string{"dir/b": errVanished.Error(), "dir/sub/c": errVanished.Error()}, problems(t, err))
	_, err = o.fast(nil)
	require.Equal(t, map[string]string{"dir/sub/c": errVanished.Error()}, problems(t, err))
	o.byHand(t, func(upper string) { require.NoError(t, os.Remove(upper+"/dir/sub/c")) })
	fast, err := o.fast(nil)
	require.NoError(t, err)
	entries := o.m.entries(t, fast)
	require.NotContains(t, entries, "dir/b")
	for path, size := range map[string]int{"dir/linked": len("not empty"), "other/e": 0, "dir/sub/c": 1} {
		require.EqualValues(t, size, entries[path].Size, path)
	}
}

// TestLowerWithoutRights: who does not see the kernel's attributes reads all.
func TestLowerWithoutRights(t *testing.T) {
	o := overlaid(t, Options{}, sampleBase(t))
	require.NoError(t, unix.Removexattr(o.lower.Upper, LowerMark))
	_, err := o.fast(nil)
	require.ErrorIs(t, err, ErrNeedsScan)
	require.ErrorContains(t, err, "CAP_SYS_ADMIN")
}

// TestLowerReplaced: a directory that the kernel has replaced by an empty one, and from which
// it takes the whiteouts away, is not listed as if nothing in it were hidden.
func TestLowerReplaced(t *testing.T) {
	o := overlaid(t, Options{}, sampleBase(t))
	require.NoError(t, os.Remove(o.ws+"/dir/b"))
	opt := o.opt
	opt.Lower = o.lower
	root, err := openRoot(o.lower.Upper)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c := newWalker(ctx, cancel, o.m)
	c.opt, c.lower = opt, &lowerState{Lower: o.lower, mounted: o.ws, shown: map[string]*shownDir{}}
	up := &directory{fd: root, saved: &savedDir{hash: o.lower.Root}}
	w := &worker{walker: c}
	e := &child{}
	e.entry.Name = "dir"
	sub, err := w.openSubdir(up, e, "dir")
	require.NoError(t, err)
	require.NotNil(t, sub.saved)
	defer root.close()
	defer sub.fd.close()
	require.NoError(t, unix.Unmount(o.ws, 0))
	require.NoError(t, os.Mkdir(o.layer+"/work/new", 0o755))
	require.NoError(t, unix.Renameat2(unix.AT_FDCWD, o.layer+"/work/new", unix.AT_FDCWD, o.lower.Upper+"/dir", unix.RENAME_EXCHANGE))
	require.NoError(t, os.Remove(o.layer+"/work/new/b"))
	o.mount(t)
	names, err := w.readNames(sub.fd)
	require.NoError(t, err)
	_, _, err = w.withSaved(sub, names)
	require.ErrorIs(t, err, errReplaced)
}

// TestLowerMetacopy: a file that has its metadata only is refused by name, and so is the
// whole.
func TestLowerMetacopy(t *testing.T) {
	o := overlaid(t, Options{}, sampleBase(t))
	o.byHand(t, func(upper string) {
		write(t, upper, map[string]string{"dir/b": ""})
		require.NoError(t, unix.Setxattr(upper+"/dir/b", overlayMetacopy, nil, 0))
	})
	_, err := o.fast(nil)
	require.ErrorIs(t, err, ErrMetacopy)
	require.NotErrorIs(t, err, ErrNeedsScan)
	require.Contains(t, problems(t, err), "dir/b")
}

// TestLowerNeedsScan: where the changes do not tell, all has to be read, and is right.
func TestLowerNeedsScan(t *testing.T) {
	redirect := func(value string) func(t *testing.T, o *overlay) {
		return func(t *testing.T, o *overlay) {
			require.NoError(t, os.Mkdir(o.lower.Upper+"/hostile", 0o755))
			require.NoError(t, unix.Setxattr(o.lower.Upper+"/hostile", overlayRedirect, []byte(value), 0))
		}
	}
	includes, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Include: []policy.Rule{{Pattern: "dir/", Source: "test"}}})
	require.NoError(t, err)
	for why, c := range map[string]struct {
		opt    Options
		fill   func(base string)
		change func(t *testing.T, o *overlay)
	}{
		"the policy has includes":                 {opt: Options{Files: includes}},
		"the policy leaves out cache directories": {opt: Options{Settings: policy.Settings{ExcludeCaches: true}}},
		"the policy has a limit for all files":    {opt: Options{Settings: policy.Settings{MaxSize: 1 << 30}}},
		"the workspace's root has another owner":  {change: func(t *testing.T, o *overlay) { require.NoError(t, os.Chown(o.ws, 7, 7)) }},
		"the checkpoint has a lost+found":         {fill: func(base string) { require.NoError(t, os.Mkdir(base+"/lost+found", 0o755)) }},
		"the ignore file dir/.snapfsignore was":   {change: func(t *testing.T, o *overlay) { write(t, o.ws, map[string]string{"dir/.snapfsignore": "b\n"}) }},
		"the ignore file other/.snapfsignore was": {
			fill:   func(base string) { write(t, base, map[string]string{"other/.snapfsignore": "zzz\n"}) },
			change: func(t *testing.T, o *overlay) { require.NoError(t, os.Remove(o.ws+"/other/.snapfsignore")) },
		},
		"the ignore file new/.snapfsignore, which was moved|the ignore file new/.snapfsignore was moved": {
			fill:   func(base string) { write(t, base, map[string]string{"other/.snapfsignore": "zzz\n"}) },
			change: func(t *testing.T, o *overlay) { require.NoError(t, os.Rename(o.ws+"/other", o.ws+"/new")) },
		},
		"the policy leaves out skip/b, which was moved": {
			opt:    Options{Files: rules(t, "/skip/b")},
			change: func(t *testing.T, o *overlay) { require.NoError(t, os.Rename(o.ws+"/dir", o.ws+"/skip")) },
		},
		"the files of a database lie in both layers": {change: func(t *testing.T, o *overlay) { write(t, o.ws, map[string]string{"data.db-wal": "w"}) }},
		"is redirected to ..":                        {change: redirect("..")},
		"is redirected to /../dir":                   {change: redirect("/../dir")},
		"is redirected to /a/../dir":                 {change: redirect("/a/../dir")},
		"is redirected to dir/sub":                   {change: redirect("dir/sub")},
		"is redirected to /none":                     {change: redirect("/none")},
		"is redirected to none":                      {change: redirect("none")},
		"is redirected to /":                         {change: redirect("/")},
		"is redirected to \"a\\000b\"":               {change: redirect("a\x00b")},
		"is redirected to lll":                       {change: redirect(strings.Repeat("l", 10_000))},
		"the workspace's root is opaque": {change: func(t *testing.T, o *overlay) {
			require.NoError(t, unix.Setxattr(o.lower.Upper, overlayOpaque, []byte("y"), 0))
		}},
		"a directory of the checkpoint shows twice": {change: redirect("/dir/sub")},
	} {
		t.Run(why, func(t *testing.T) {
			o := overlaid(t, c.opt, func(base string) {
				sampleBase(t)(base)
				if c.fill != nil {
					c.fill(base)
				}
			})
			if why == "a directory of the checkpoint shows twice" {
				write(t, o.ws, map[string]string{"dir/sub/new": "n"})
			}
			if c.change != nil {
				c.change(t, o)
			}
			_, err := o.fast(nil)
			require.ErrorIs(t, err, ErrNeedsScan)
			text, matched := err.Error(), false
			for one := range strings.SplitSeq(why, "|") {
				matched = matched || strings.Contains(text, one)
			}
			require.True(t, matched, text)
		})
	}
}

// TestLowerHostile: attributes that no kernel writes lead nowhere out of the saved tree.
func TestLowerHostile(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"a redirect to a file":   {overlayRedirect: "/a"},
		"a redirect to a link":   {overlayRedirect: "/link"},
		"an empty redirect":      {overlayRedirect: ""},
		"an opaque of its own":   {overlayOpaque: "z"},
		"opaque with a redirect": {overlayOpaque: "y", overlayRedirect: "/dir"},
	} {
		t.Run(name, func(t *testing.T) {
			o := overlaid(t, Options{}, sampleBase(t))
			o.byHand(t, func(upper string) {
				require.NoError(t, os.Mkdir(upper+"/hostile", 0o755))
				for attr, value := range set {
					require.NoError(t, unix.Setxattr(upper+"/hostile", attr, []byte(value), 0))
				}
			})
			full, ferr := o.full()
			fast, err := o.fast(nil)
			if ferr != nil || errors.Is(err, ErrNeedsScan) {
				require.ErrorIs(t, err, ErrNeedsScan)
				return
			}
			require.NoError(t, err)
			requireSame(t, fast, full)
		})
	}
}

// TestLowerIgnoreFiles: an ignore file that only the saved tree has counts for what is new.
func TestLowerIgnoreFiles(t *testing.T) {
	o := overlaid(t, Options{}, func(base string) {
		sampleBase(t)(base)
		write(t, base, map[string]string{".snapfsignore": "*.tmp\n", "dir/.snapfsignore": "/local\n", "other/deep/.snapfsignore": "x\n"})
	})
	write(t, o.ws, map[string]string{"dir/x.tmp": "", "dir/local": "", "dir/sub/local": "", "other/x.tmp": "", "new/x.tmp": "", "new/kept": ""})
	require.NoError(t, os.RemoveAll(o.ws+"/other/deep"))
	full, err := o.full()
	require.NoError(t, err)
	require.Equal(t, 4, full.Excluded)
	fast, err := o.fast(nil)
	require.NoError(t, err)
	requireSame(t, fast, full)
}

// TestLowerLarge: directories that are cut into several objects, with names added, taken
// away and changed; what lies below those that did not change is not looked at.
func TestLowerLarge(t *testing.T) {
	o := overlaid(t, Options{}, func(base string) {
		for i := range 700 {
			write(t, base, map[string]string{filepath.Join("many", strings.Repeat("n", i%5+1)+string(rune('a'+i%26))+string(rune('a'+i/26)), "sub/f"): strings.Repeat("y", i)})
		}
	})
	compare := func() {
		full, err := o.full()
		require.NoError(t, err)
		fast, err := o.fast(nil)
		require.NoError(t, err)
		requireSame(t, fast, full)
	}
	entries, err := os.ReadDir(o.ws + "/many")
	require.NoError(t, err)
	names := func(i int) string { return o.ws + "/many/" + entries[i].Name() }
	require.NoError(t, os.WriteFile(names(3)+"/sub/f", []byte("changed"), 0o644))
	require.NoError(t, os.WriteFile(names(300)+"/new", nil, 0o644))
	compare()
	require.NoError(t, os.RemoveAll(names(100)))
	write(t, o.ws, map[string]string{"many/zzz/f": "1", "many/a": "a file"})
	compare()
	for i := 200; i < len(entries)-20; i++ { // fewer than one object holds
		require.NoError(t, os.RemoveAll(names(i)))
	}
	compare()
	require.NoError(t, os.Rename(o.ws+"/many", o.ws+"/moved"))
	compare()
}
