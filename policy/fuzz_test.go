package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCompileFiles compiles what it is given, one pattern a line, and checks
// what must hold whatever the patterns mean.
func FuzzCompileFiles(f *testing.F) {
	f.Add("*.log\n!keep.log", "", "a/keep.log", false)
	f.Add("foo**/**/bar\na/**\n**/x/**/y/", "/a/b\n*.go", "a/b/x/q/y", true)
	f.Add("[[:alpha:]-]c\n[!a-]\n\\[x", "src/**", "src/\xff/c", false)
	f.Add("[a\\", "!", "//", true)
	f.Add("/[^/]*.log\n![/k]eep.log\n[z-a]c\n[/-9][!/]x", "foo**//bar\na/**\\/b", "foo/bar/x.log", false)
	f.Add("?*\n![b-/]\n*\x00x\n", "[!/]*/\n*\\/x/", "a/x/b", true)
	for _, bad := range badPatterns() {
		f.Add(bad.pattern, bad.pattern, "a/foo", true)
	}
	f.Fuzz(func(t *testing.T, exclude, include, path string, isDir bool) {
		good := func(name, text string) []Rule {
			var list []Rule
			for _, r := range ParseIgnore(name, []byte(text)) {
				_, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: []Rule{r}})
				if err != nil {
					require.ErrorContains(t, err, "\nhint: ")
					continue
				}
				if name == "exclude" || !strings.HasPrefix(r.Pattern, "!") {
					list = append(list, r)
				}
			}
			return list
		}
		excludes, includes := good("exclude", exclude), good("include", include)
		files, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: excludes, Include: includes})
		require.NoError(t, err)
		require.Equal(t, files.Encode(), files.Encode())

		names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
		scope := files.Root()
		narrowed, err := files.Root().Narrow("w", excludes)
		require.NoError(t, err)
		parent := Decision{Keep: true, Descend: true}
		for i, name := range names {
			dir := isDir || i < len(names)-1
			var d, n Decision
			d, scope = scope.Decide(name, dir)
			n, narrowed = narrowed.Decide(name, dir)
			require.Equal(t, d, files.Decide(strings.Join(names[:i+1], "/"), dir), "walk and path differ")
			require.Equal(t, d.Keep, n.Keep, "the same rules in the workspace change nothing")
			require.Equal(t, d.Descend, n.Descend)

			require.False(t, d.Descend && !dir, "descend into a file")
			require.False(t, d.Keep && dir && !d.Descend, "a kept directory is walked")
			if !parent.Descend {
				require.Equal(t, parent, d, "below what is out")
			}
			if parent.Keep && !d.Keep && (i > 0 || len(includes) == 0) {
				require.NotEqual(t, Rule{}, d.Rule, "a rule takes an entry out of a kept directory")
			}
			if files.All() {
				require.True(t, d.Keep)
			}
			parent = d
		}
	})
}
