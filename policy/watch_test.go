package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestWatchedIncludes: a walk finds those includes unmatched that alone would take
// nothing, whatever the others take.
func TestWatchedIncludes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		files := mustCompile(t, opts)
		watched, unmatched := files.WatchedIncludes()
		again, _ := watched.WatchedIncludes()
		require.Same(t, watched, again)
		seen := func(f *Files) (kept bool) {
			walkPaths(smallTree, f.Root(), func(_ string, d Decision) { kept = kept || d.Keep })
			return kept
		}
		seen(watched)
		var want []Rule
		for _, r := range opts.Include {
			one := opts
			one.Include = []Rule{r}
			if !seen(mustCompile(t, one)) {
				want = append(want, r)
			}
		}
		require.Equal(t, want, unmatched(), "%+v", opts)
		walkPaths(smallTree, watched.Root(), func(path string, d Decision) {
			require.Equal(t, files.Decide(strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")), d, "%q of %+v", path, opts)
		})
	})
}

func mustCompile(t require.TestingT, opts FilesOptions) *Files {
	files, err := CompileFiles(opts)
	require.NoError(t, err)
	return files
}

// drawOptions draws excludes and includes that compile, without the defaults.
func drawOptions(t *rapid.T) FilesOptions {
	wide := rapid.SampledFrom([]string{"*", "**", "/**", "/*", "?*", "*/", "!*/", "!a/", "!/a/", "!*", "!a/*", "!**/a/", "!b", "/a/", "a/", "a/*", "a/**", "**/a/**", "/a/b/", "a/b/**", "a/**/", "**/b/*", "a/*/", "/a"})
	gen := rapid.OneOf(patternGen(), wide)
	draw := func(what string, bang bool) []Rule {
		var list []Rule
		for _, p := range rapid.SliceOfN(gen, 0, 5).Draw(t, what) {
			if parsed, err := parse(Rule{Pattern: p}); err == nil && (bang || !parsed.negated) {
				list = append(list, Rule{Pattern: p, Source: what + string(rune('0'+len(list)))})
			}
		}
		return list
	}
	return FilesOptions{NoDefaults: true, Exclude: draw("exclude", true), Include: draw("include", false)}
}

// smallTree has paths of colliding names; a directory ends in a slash and comes before
// what is in it.
var smallTree = func() (paths []string) {
	names := []string{"a", "b", "ab", "c", "abc", "*", "-", "!"}
	for _, x := range names {
		paths = append(paths, x, x+"/")
		for _, y := range names {
			paths = append(paths, x+"/"+y, x+"/"+y+"/")
			for _, z := range []string{"a", "b", "ab"} {
				paths = append(paths, x+"/"+y+"/"+z, x+"/"+y+"/"+z+"/")
			}
		}
	}
	return paths
}()

// walkPaths decides about paths as a walk does, and about nothing below what is out.
func walkPaths(paths []string, root Scope, decided func(path string, d Decision)) {
	scopes := map[string]Scope{"": root}
	for _, path := range paths {
		name, isDir := strings.CutSuffix(path, "/")
		at := strings.LastIndexByte(name, '/') + 1
		scope, ok := scopes[name[:at]]
		if !ok {
			continue
		}
		d, sub := scope.Decide(name[at:], isDir)
		decided(path, d)
		if d.Descend {
			scopes[path] = sub
		}
	}
}

func TestSeveral(t *testing.T) {
	for pattern, want := range map[string]bool{
		"a": false, "/a": false, "a/": false, "/a/": false, "!/a/": false, "[/a]b": false, "/[!/]*.log/": false, "a ": false, "*": false, "**": false,
		"a/b": true, "/a/*": true, "**/f": true, "!a/b": true, `a\/b`: true, "**/a/": true, "[!/]/b": true, "a/**": true, "/**/": false,
	} {
		require.Equal(t, want, Rule{Pattern: pattern}.Several(), pattern)
	}
}
