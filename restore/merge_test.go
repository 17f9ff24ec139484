package restore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// randomTree draws a tree of few names, so that two of them have much in common, but
// with other contents, kinds, metadata and hard links.
func randomTree(t *testing.T, rt *rapid.T, m *memory, label string) Source {
	var files []string // that may be one file: equal entries
	var draw func(path string, depth int) dir
	draw = func(path string, depth int) dir {
		d := dir{}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "n", "x"}), 0, 4, rapid.ID).Draw(rt, label+path) {
			kind := rapid.IntRange(0, 5).Draw(rt, "kind")
			e := tree.Entry{}
			switch {
			case kind < 2 && depth < 3:
				e = m.sub(t, rapid.SampledFrom([]uint32{0o755, 0o700, 0o555}).Draw(rt, "mode"), draw(path+name+"/", depth+1))
			case kind == 2:
				to := rapid.SampledFrom([]string{"a", "/etc", ".."}).Draw(rt, "target")
				e = tree.Entry{Kind: tree.Symlink, Mode: 0o777, Target: to, Size: uint64(len(to))}
			case kind == 3:
				e = m.file(t, 0o644, "the same")
				files = append(files, path+name)
			default:
				e = m.file(t, rapid.SampledFrom([]uint32{0o644, 0o600, 0o444}).Draw(rt, "mode"), rapid.SampledFrom([]string{"", "one", "two", "twos"}).Draw(rt, "data"))
				if rapid.IntRange(0, 3).Draw(rt, "attributes") == 0 {
					e.XAttrs = m.xattrs(t, tree.XAttr{Name: "user.any", Value: []byte("v")})
				}
			}
			e.MtimeSec = 1e9
			if e.Kind != tree.File || e.Size != uint64(len("the same")) {
				e.MtimeSec += int64(rapid.IntRange(0, 1).Draw(rt, "time"))
			}
			d[name] = e
		}
		return d
	}
	src := m.source(t, draw("", 0))
	if len(files) > 1 && rapid.Bool().Draw(rt, "linked") {
		slices.Sort(files)
		src.Links = m.links(t, files)
	}
	return src
}

// randomFiles draws a policy over the names of randomTree.
func randomFiles(t *testing.T, rt *rapid.T, label string, includes bool) *policy.Files {
	patterns := []string{"n", "a/b", "/x", "b/**", "c", "/a/", "n/"}
	var include []string
	if includes {
		include = rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "b", "/a/b/c", "x/"}), 0, 2).Draw(rt, label+" include")
	}
	return only(t, include, rapid.SliceOfN(rapid.SampledFrom(patterns), 0, 2).Draw(rt, label+" exclude")...)
}

// TestMirrorIsTheCheckpoint: whatever was in the directory, a mirror of all makes of it
// what a restore into an empty one makes, in every respect, and does nothing the second
// time.
func TestMirrorIsTheCheckpoint(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, top := newMemory(), scratch(t)
		defer func() { require.NoError(rt, RemoveAll(top)) }()
		live, want := filepath.Join(top, "live"), filepath.Join(top, "want")
		before, src := randomTree(t, rt, m, "before"), randomTree(t, rt, m, "after")
		_, err := m.restore(t, before, live)
		require.NoError(rt, err)
		_, err = m.restore(t, src, want)
		require.NoError(rt, err)
		r := tree.NewReader(m, 1<<20)
		opt := Options{Mode: Mirror, Force: true}

		was := portrait(t, live)
		dry := opt
		dry.DryRun = true
		planned, err := Tree(t.Context(), m, r, src, live, dry)
		require.NoError(rt, err)
		require.Equal(rt, was, portrait(t, live), "a dry run changes nothing")

		res, err := Tree(t.Context(), m, r, src, live, opt)
		require.NoError(rt, err)
		require.Equal(rt, portrait(t, want), portrait(t, live))
		require.Empty(rt, res.Incomplete)
		res.Files, res.Dirs, res.Bytes = 0, 0, 0
		require.Equal(rt, planned, res, "what was planned was done")

		inodes := identities(t, live)
		again, err := Tree(t.Context(), m, r, src, live, opt)
		require.NoError(rt, err)
		require.Equal(rt, Result{Kept: again.Kept}, again)
		if len(inodes) > 1 { // an empty directory is as good as a new one
			require.Equal(rt, inodes, identities(t, live), "nothing was written")
		}
	})
}

// identities are the inode numbers and times of change of all that is in a directory.
func identities(t *testing.T, top string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		st := stat(t, path)
		all[path] = fmt.Sprint(st.Ino, st.Ctim)
		return err
	}))
	return all
}

// onlyMetadata is why an entry of a plan gets no other content.
var onlyMetadata = regexp.MustCompile(`^its (mode|time|owner|attributes)`)

// TestMergeKeepsToItsPolicies compares what overlays and mirrors do under random
// policies with a model of a few lines.
func TestMergeKeepsToItsPolicies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, top := newMemory(), scratch(t)
		defer func() { require.NoError(rt, RemoveAll(top)) }()
		live, want := filepath.Join(top, "live"), filepath.Join(top, "want")
		before, src := randomTree(t, rt, m, "before"), randomTree(t, rt, m, "after")
		_, err := m.restore(t, before, live)
		require.NoError(rt, err)
		flags, saved := randomFiles(t, rt, "flags", true), randomFiles(t, rt, "saved", false)
		mode := rapid.SampledFrom([]Mode{Overlay, Mirror}).Draw(rt, "mode")
		r := tree.NewReader(m, 1<<20)
		_, err = Tree(t.Context(), m, r, src, want, Options{Files: flags})
		require.NoError(rt, err)
		full := filepath.Join(top, "full")
		_, err = m.restore(t, src, full)
		require.NoError(rt, err)
		was, chosen, all := portrait(t, live), portrait(t, want), portrait(t, full)

		var plan []Change
		opt := Options{
			Files: flags, Mode: mode, Coverage: &Coverage{Files: saved}, Force: rapid.Bool().Draw(rt, "force"),
			Plan: func(all []Change) { plan = all },
		}
		res, err := Tree(t.Context(), m, r, src, live, opt)

		isDir := func(s seen) bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }
		protected := func(p string) bool {
			return mode == Overlay || !flags.Decide(p, isDir(was[p])).Keep || !saved.Decide(p, isDir(was[p])).Keep
		}
		guarded := func(p string) bool { // in the way of something else
			d, s := flags.Decide(p, isDir(was[p])), saved.Decide(p, isDir(was[p]))
			return !(d.Keep || d.Descend) || !(s.Keep || s.Descend)
		}
		blocked := false
		stays := map[string]bool{}
		for _, p := range slices.Backward(slices.Sorted(maps.Keys(was))) {
			over := false    // something else comes to where it is, or to above it
			skipped := false // or what would come there is left out
			for up := p; up != "."; up = filepath.Dir(up) {
				if c, ok := all[up]; ok {
					d := flags.Decide(up, isDir(c))
					skipped = skipped || !d.Keep && !d.Descend
				}
				if c, ok := chosen[up]; ok && c.Mode&unix.S_IFMT != was[up].Mode&unix.S_IFMT {
					over = true
					blocked = blocked || guarded(p) || !flags.Decide(up, isDir(c)).Keep
				}
			}
			if _, ok := chosen[p]; !over && (ok || skipped || protected(p) || stays[p]) {
				stays[p], stays[filepath.Dir(p)] = true, true
			}
		}
		if errors.Is(err, ErrInTheWay) || errors.Is(err, ErrDeletesMore) {
			require.False(rt, opt.Force)
			require.Equal(rt, blocked, errors.Is(err, ErrInTheWay))
			if !blocked {
				written := res.Created + res.Replaced
				for _, c := range plan {
					if c.Op == Replace && onlyMetadata.MatchString(c.Why) {
						written--
					}
				}
				require.Greater(rt, res.Deleted, written)
			}
			require.Equal(rt, was, portrait(t, live), "a refused restore changes nothing")
			return
		}
		require.NoError(rt, err)
		require.True(rt, opt.Force || !blocked)

		is := portrait(t, live)
		expected := map[string]bool{}
		for p := range stays {
			expected[p] = true
		}
		for p := range chosen {
			expected[p] = true
		}
		require.ElementsMatch(rt, slices.Collect(maps.Keys(expected)), slices.Collect(maps.Keys(is)))
		for p, s := range is {
			c, ok := chosen[p]
			_, there := was[p]
			asked := p == "." && !flags.Restricted() || p != "." && flags.Decide(p, isDir(s)).Keep
			switch {
			case ok && (asked || !there || was[p].Mode&unix.S_IFMT != c.Mode&unix.S_IFMT):
				c.First, s.First = "", ""
				require.Equal(rt, c, s, "%q of the checkpoint", p)
			default:
				old := was[p]
				old.First, s.First = "", ""
				if isDir(s) {
					old.Mtime, s.Mtime = unix.Timespec{}, unix.Timespec{}
				}
				require.Equal(rt, old, s, "%q, which stays as it was", p)
			}
		}
		checkPlan(rt, plan, was, is)
	})
}

// checkPlan compares a plan with what is there before and after.
func checkPlan(t require.TestingT, plan []Change, was, is map[string]seen) {
	listed := map[string]bool{}
	for _, c := range plan {
		require.False(t, listed[c.Path], "%s is listed twice", c.Path)
		listed[c.Path] = c.Op != Skip
		_, before := was[c.Path]
		_, after := is[c.Path]
		switch c.Op {
		case Create:
			require.True(t, after && !before || strings.Contains(c.Path, "/"), c)
		case Delete:
			require.True(t, before, c)
		case Replace:
			require.True(t, before && after, c)
			require.NotEmpty(t, c.Why)
		case Keep:
			require.True(t, before && after, c)
			require.Equal(t, was[c.Path].Content, is[c.Path].Content, c)
		}
	}
	for p := range is {
		if p != "." && !listed[p] { // it stays because of what is in it, or below an entry that stays
			_, before := was[p]
			require.True(t, before, "%s came without a word", p)
		}
	}
	for p := range was {
		if _, after := is[p]; !after {
			require.True(t, listed[p], "%s went without a word", p)
		}
	}
}
