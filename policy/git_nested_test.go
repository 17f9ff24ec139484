package policy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/internal/soak"
)

// Ignore files in several directories of one tree.
func TestNestedFilesAgreeWithGit(t *testing.T) {
	var paths []string
	for _, dir := range []string{"", "a/", "a/b/", "a/b/c/", "b/", "c/a/"} {
		for _, y := range []string{"a/ab", "b/*", "c/ab", "x", "b.c", "abc"} {
			paths = append(paths, dir+y)
		}
	}
	o := newGitOracle(t, paths)
	rapid.Check(t, func(t *rapid.T) {
		content := make(map[string][]byte)
		for _, file := range []string{".gitignore", "a/.gitignore", "a/b/.gitignore"} {
			var patterns []string
			for _, p := range rapid.SliceOfN(patternGen(), 0, 4).Draw(t, file) {
				if _, err := parse(Rule{Pattern: p}); err == nil {
					patterns = append(patterns, p)
				}
			}
			full := filepath.Join(o.work, file)
			writeLines(t, full, patterns)
			content[file], _ = os.ReadFile(full)
		}
		files, err := CompileFiles(FilesOptions{NoDefaults: true})
		require.NoError(t, err)
		want := o.ask(t)
		for _, p := range o.paths {
			path, isDir := strings.CutSuffix(p, "/")
			names := strings.Split(path, "/")
			scope, d := files.Root(), Decision{}
			for i, name := range names {
				file := strings.Join(append(names[:i:i], ".gitignore"), "/")
				scope, err = scope.Narrow(".gitignore", ParseIgnore(file, content[file]))
				require.NoError(t, err)
				d, scope = scope.Decide(name, isDir || i < len(names)-1)
			}
			rule := want[p]
			require.Equal(t, rule == (Rule{}) || strings.HasPrefix(rule.Pattern, "!"), d.Keep, "%q, git's rule is %q", p, rule)
			if !d.Keep {
				require.Equal(t, rule.Source, d.Rule.Source, "%q", p)
			}
		}
	})
}

// Lines with NUL bytes, as a file in UTF-16 has them: what git finds in them counts,
// and they are refused besides.
func TestNULInIgnoreFileAgreesWithGit(t *testing.T) {
	o := newGitOracle(t, []string{"a.pem", "b.pem", "c.key", "\xff\xfe*"})
	for _, content := range []string{"a.pem\x00x\n*.key\n", "*.pem\x00\r\n!b.pem\x00", "\x00*\n", "#a\x00\na.pem", "\xff\xfe*\x00.\x00p\x00e\x00m\x00\n\x00", "a.pem \x00x", "!\x00\n"} {
		file := filepath.Join(o.work, ".gitignore")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o666))
		files, err := CompileFiles(FilesOptions{NoDefaults: true})
		require.NoError(t, err)
		scope, err := files.Root().Narrow(".gitignore", ParseIgnore(".gitignore", []byte(content)))
		require.Equal(t, !strings.HasPrefix(content, "#"), err != nil, "%q is refused", content)
		for p, rule := range o.ask(t) {
			d, _ := scope.Decide(p, false)
			require.Equal(t, rule == (Rule{}) || strings.HasPrefix(rule.Pattern, "!"), d.Keep, "%q with %q", p, content)
		}
	}
}

// ignoredTree is a tree and what its ignore files say, by the directory that they are
// in: empty for the root, else its path with a slash at the end.
type ignoredTree struct {
	paths    []string // a directory ends in a slash
	patterns map[string][]string
}

// ignoredTreeGen makes trees of few, colliding names, and patterns of which many are
// made of parts of their paths.
func ignoredTreeGen() *rapid.Generator[ignoredTree] {
	name := rapid.SampledFrom([]string{"a", "b", "ab", "c", "abc", "aa", "*", "a*", " a", "b ", "\xff", "a\\", "...", "-", "!", "#a", "A", "a.b", ".a", "[a]"})
	return rapid.Custom(func(t *rapid.T) ignoredTree {
		tree := ignoredTree{patterns: map[string][]string{}}
		dirs := []string{""}
		seen := map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			path := rapid.SampledFrom(dirs).Draw(t, "in") + name.Draw(t, "name")
			if seen[path] || strings.Count(path, "/") > 4 {
				continue
			}
			seen[path] = true
			if rapid.IntRange(0, 2).Draw(t, "kind") > 0 {
				path += "/"
				dirs = append(dirs, path)
			}
			tree.paths = append(tree.paths, path)
		}
		part := rapid.Custom(func(t *rapid.T) string {
			path := rapid.SampledFrom(tree.paths).Draw(t, "path")
			names := strings.Split(strings.TrimSuffix(path, "/"), "/")
			for i := range names {
				switch rapid.IntRange(0, 7).Draw(t, "instead") {
				case 0:
					names[i] = "*"
				case 1:
					names[i] = "**"
				case 2:
					names[i] = names[i][:1] + "*"
				}
			}
			names = names[rapid.IntRange(0, len(names)-1).Draw(t, "from"):]
			return strings.Join(names, "/")
		})
		pattern := rapid.Custom(func(t *rapid.T) string {
			front := rapid.SampledFrom([]string{"", "", "!", "/", "!/", "**/"}).Draw(t, "front")
			return front + part.Draw(t, "part") + rapid.SampledFrom([]string{"", "", "/", "/*", "/**"}).Draw(t, "end")
		})
		for _, dir := range dirs {
			if dir != "" && rapid.IntRange(0, 3).Draw(t, "ignore file") > 0 {
				continue
			}
			var good []string
			for _, p := range rapid.SliceOfN(rapid.OneOf(pattern, pattern, patternGen()), 1, 5).Draw(t, "patterns") {
				if _, err := parse(Rule{Pattern: p}); err == nil {
					good = append(good, p)
				}
			}
			tree.patterns[dir] = good
		}
		return tree
	})
}

// TestRandomTreesAgreeWithGit: random trees with random ignore files in several
// directories. Git judges hundreds of them at once, each in a directory of its own.
// SNAPFS_LARGE makes them 20,000.
func TestRandomTreesAgreeWithGit(t *testing.T) {
	const batch = 250
	batches, gen := soak.Rounds(1, 80), ignoredTreeGen()
	first := int(rand.Uint32() >> 1)
	pairs, decisions, excluded := 0, 0, 0
	for b := range batches {
		trees := map[string]ignoredTree{}
		var paths []string
		for i := range batch {
			dir := fmt.Sprintf("%d/", first+b*batch+i)
			trees[dir] = gen.Example(first + b*batch + i)
			for _, p := range trees[dir].paths {
				paths = append(paths, dir+p)
			}
		}
		o := newGitOracle(t, paths)
		for dir, tree := range trees {
			require.NoError(t, os.MkdirAll(filepath.Join(o.work, dir), 0o777))
			for in, patterns := range tree.patterns {
				writeLines(t, filepath.Join(o.work, dir, in, ".gitignore"), patterns)
			}
		}
		want := o.ask(t)
		for dir, tree := range trees {
			pairs++
			for _, p := range tree.paths {
				d := tree.decide(t, p)
				rule := want[dir+p]
				what := fmt.Sprintf("tree %s: %q with %q: git's rule is %q", dir, p, tree.patterns, rule)
				require.Equal(t, rule == (Rule{}) || strings.HasPrefix(rule.Pattern, "!"), d.Keep, what)
				if !d.Keep {
					require.Equal(t, rule.Source, dir+d.Rule.Source, what)
					excluded++
				}
				decisions++
			}
		}
		require.NoError(t, os.RemoveAll(o.work))
	}
	t.Logf("%d pairs of a tree and patterns, %d decisions, %d of them excluded, the first is number %d", pairs, decisions, excluded, first)
	require.Greater(t, excluded, decisions/10)
	require.Less(t, excluded, decisions*9/10)
}

// decide walks down to a path, through the ignore files on the way.
func (it *ignoredTree) decide(t *testing.T, p string) Decision {
	path, isDir := strings.CutSuffix(p, "/")
	files, err := CompileFiles(FilesOptions{NoDefaults: true})
	require.NoError(t, err)
	scope, d, dir := files.Root(), Decision{}, ""
	for name, more := range names(path) {
		var text strings.Builder
		for _, pattern := range it.patterns[dir] {
			text.WriteString(pattern + "\r\n")
		}
		scope, err = scope.Narrow(".gitignore", ParseIgnore(dir+".gitignore", []byte(text.String())))
		require.NoError(t, err)
		d, scope = scope.Decide(name, isDir || more)
		dir += name + "/"
	}
	return d
}
