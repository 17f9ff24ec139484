package policy

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// outcome writes a decision as letters: keep, descend.
func outcome(d Decision) string {
	var s string
	if d.Keep {
		s += "k"
	}
	if d.Descend {
		s += "d"
	}
	return s
}

func TestExclude(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		want     map[string]string // path (a directory ends in a slash): outcome
	}{
		{[]string{"a/*"}, map[string]string{"a/": "kd", "a/x": "", "a/x/": "", "b/a/x": "k"}},
		{[]string{"a/**"}, map[string]string{"a/": "kd", "a/x": "", "a/x/": ""}},
		{[]string{"a/"}, map[string]string{"a/": "", "a": "k", "a/x": "", "b/a/": ""}},
		{[]string{".cache/foo/*/node_modules"}, map[string]string{
			".cache/": "kd", ".cache/foo/": "kd", ".cache/foo/x/": "kd", ".cache/foo/x/node_modules/": "", ".cache/foo/x/y": "k", ".cache/bar": "k"}},
		{[]string{"a/", "!a/x"}, map[string]string{"a/": "", "a/x": ""}},
		{[]string{"a/*", "!a/x"}, map[string]string{"a/": "kd", "a/x": "k", "a/y": ""}},
		{[]string{"*.log", "!keep.log"}, map[string]string{"x.log": "", "keep.log": "k", "d/keep.log": "k", "x.log/keep.log": ""}},
	} {
		files := compile(t, FilesOptions{NoDefaults: true, Exclude: rules("test", tt.patterns...)})
		for p, want := range tt.want {
			path, isDir := strings.CutSuffix(p, "/")
			require.Equal(t, want, outcome(files.Decide(path, isDir)), "%q with %q", p, tt.patterns)
		}
	}
}

func TestInclude(t *testing.T) {
	for _, tt := range []struct {
		include, exclude []string
		want             map[string]string
	}{
		{[]string{"/src"}, nil, map[string]string{"src/": "kd", "src/a/": "kd", "src/a/b": "k", "x/": "", "x": "", "x/src/": "", "src": "k"}},
		{[]string{"/a/b/c"}, nil, map[string]string{"a/": "d", "a/b/": "d", "a/b/c": "k", "a/b/c/": "kd", "a/b/c/d": "k", "a/x/": "", "a/b/x/": "", "a/b": "", "b/": ""}},
		{[]string{"a/*/c"}, nil, map[string]string{"a/": "d", "a/x/": "d", "a/x/c": "k", "a/x/d/": "", "b/": ""}},
		{[]string{"/a?/c"}, nil, map[string]string{"ab/": "d", "abc/": "", "ab/c": "k"}},
		{[]string{"a/**"}, nil, map[string]string{"a/": "d", "a/x": "k", "a/x/": "kd", "a/x/y": "k", "b/": ""}},
		{[]string{"a/**/z"}, nil, map[string]string{"a/": "d", "a/x/": "d", "a/x/y/": "d", "a/x/y/z": "k", "b/": "", "a/x/y": ""}},
		{[]string{"*.go"}, nil, map[string]string{"a/": "d", "a/b/": "d", "a/b/x.go": "k", "a/b/x.c": "", "x.go/": "kd", "x.go/y": "k"}},
		{[]string{"**/x/y"}, nil, map[string]string{"a/": "d", "a/x/": "d", "a/x/y": "k", "y": ""}},
		{[]string{"src/"}, nil, map[string]string{"src": "", "src/": "kd", "a/src/": "kd", "a/": "d"}},
		{[]string{"/src", "*.md"}, []string{"/src/gen", "README.md"}, map[string]string{
			"src/": "kd", "src/gen/": "", "src/gen/x": "", "src/x": "k", "a/NEWS.md": "k", "a/README.md": "", "src/README.md": ""}},
		{[]string{"/src"}, []string{"*.o", "!keep.o"}, map[string]string{"src/a.o": "", "src/keep.o": "k", "keep.o": ""}},
	} {
		files := compile(t, FilesOptions{NoDefaults: true, Exclude: rules("exclude", tt.exclude...), Include: rules("include", tt.include...)})
		for p, want := range tt.want {
			path, isDir := strings.CutSuffix(p, "/")
			require.Equal(t, want, outcome(files.Decide(path, isDir)), "%q with includes %q, excludes %q", p, tt.include, tt.exclude)
		}
	}
}

func TestDecisionNamesTheRule(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true,
		Exclude: []Rule{{"*.o", "policy.yaml:1"}, {"*.o", "policy.yaml:2"}, {"!keep.o", "--exclude"}},
		Include: []Rule{{"/src", "--include"}, {"doc", "--include"}},
	})
	require.Equal(t, Rule{"*.o", "policy.yaml:2"}, files.Decide("src/a.o", false).Rule, "the last match")
	require.Equal(t, Rule{"*.o", "policy.yaml:2"}, files.Decide("src/d.o/deep/x", false).Rule, "the directory's rule")
	require.Equal(t, Rule{"!keep.o", "--exclude"}, files.Decide("src/keep.o", false).Rule)
	require.Equal(t, Rule{"/src", "--include"}, files.Decide("src/a/b", false).Rule, "the include above")
	require.Equal(t, Rule{}, files.Decide("other", false).Rule)
}

func TestEncode(t *testing.T) {
	opts := FilesOptions{NoDefaults: true,
		Exclude: []Rule{{"caf\xe9\"", "p.yaml:1"}, {"!é", "--exclude"}},
		Include: []Rule{{"/src ", "--include"}},
	}
	want := `snapfs files policy 1
exclude "caf\xe9\"" "p.yaml:1"
exclude "!\u00e9" "--exclude"
include "/src " "--include"
`
	require.Equal(t, want, string(compile(t, opts).Encode()))
	opts.NoDefaults = false
	lines := strings.Split(string(compile(t, opts).Encode()), "\n")
	require.Equal(t, `exclude "node_modules/" "default"`, lines[1])
	require.Len(t, lines, 1+len(Defaults())+3+1)
}

func TestOptionsAreNotKept(t *testing.T) {
	exclude := rules("test", "a")
	files := compile(t, FilesOptions{Exclude: exclude})
	exclude[0].Pattern = "b"
	require.Equal(t, "a", files.Decide("a", false).Rule.Pattern)
}

func TestConcurrentUse(t *testing.T) {
	files := compile(t, FilesOptions{Exclude: rules("test", "a/**/b", "x*y", "/p/q/*")})
	scope, err := files.Root().Narrow(".snapfsignore", rules("w", "/p/z", "**/c/d"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				require.False(t, files.Decide("a/x/y/b", false).Keep)
				_, p := scope.Decide("p", true)
				d, _ := p.Decide("z", true)
				require.False(t, d.Keep)
				_, c := p.Decide("c", true)
				d, _ = c.Decide("d", true)
				require.False(t, d.Keep)
			}
		})
	}
	wg.Wait()
}

// Includes and pruning against a definition that has no pruning: an entry is
// content if nothing on its path is excluded and something is included.
func TestIncludesEqualTheirDefinition(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "ab", "c", "\xff", "*"})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, least int, bang bool) []Rule {
			var list []Rule
			for _, p := range rapid.SliceOfN(patternGen(), least, 5).Draw(t, what) {
				if parsed, err := parse(Rule{Pattern: p}); err == nil && (bang || !parsed.negated) {
					list = append(list, Rule{Pattern: p})
				}
			}
			return list
		}
		exclude, include := draw("exclude", 0, true), draw("include", 1, false)
		if len(include) == 0 {
			t.Skip("no include is left")
		}
		files, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: exclude, Include: include})
		require.NoError(t, err)
		excluded, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: exclude})
		require.NoError(t, err)
		included, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: include})
		require.NoError(t, err)
		for range 20 {
			path := strings.Join(rapid.SliceOfN(names, 1, 6).Draw(t, "path"), "/")
			isDir := rapid.Bool().Draw(t, "isDir")
			got := files.Decide(path, isDir)
			out := !excluded.Decide(path, isDir).Keep
			in := !included.Decide(path, isDir).Keep
			require.Equal(t, in && !out, got.Keep, "%q", path)
			require.False(t, got.Descend && (!isDir || out), "%q", path)
			require.False(t, got.Keep && isDir && !got.Descend, "%q", path)
		}
	})
}
