package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decideBelow asks a scope about a path of several names.
func decideBelow(s Scope, path string, isDir bool) Decision {
	var d Decision
	names := strings.Split(path, "/")
	for i, name := range names {
		d, s = s.Decide(name, isDir || i < len(names)-1)
	}
	return d
}

func TestScopeOfWhatIsOut(t *testing.T) {
	files := compile(t, FilesOptions{Include: rules("--include", "/src")})
	d, below := files.Root().Decide("node_modules", true)
	require.Equal(t, Decision{Rule: Rule{"node_modules/", "default"}}, d)
	require.Equal(t, d, decideBelow(below, "x/src", true), "out with its directory")

	d, below = files.Root().Decide("other", true)
	require.Equal(t, Decision{}, d)
	require.Equal(t, d, decideBelow(below, "src", true), "no include below")

	require.Equal(t, Decision{}, decideBelow(Scope{}, "src", true), "the zero Scope keeps nothing")
}

func TestNarrowOnlyExcludesMore(t *testing.T) {
	files := compile(t, FilesOptions{})
	root, err := files.Root().Narrow(".snapfsignore", ParseIgnore(".snapfsignore", []byte("!.env\n!node_modules/\n*.log\n!keep.log\n")))
	require.NoError(t, err)
	require.Equal(t, Decision{Rule: Rule{".env", "default"}}, decideBelow(root, "a/.env", false))
	require.False(t, decideBelow(root, "node_modules", true).Keep)
	require.Equal(t, Decision{Rule: Rule{"*.log", ".snapfsignore:3"}, Ignored: true}, decideBelow(root, "a/x.log", false))
	require.Equal(t, "k", outcome(decideBelow(root, "a/keep.log", false)), "its own rule is lifted")
	require.Equal(t, Rule{"!.env.sample", "default"}, decideBelow(root, ".env.sample", false).Rule)

	root, err = files.Root().Narrow(".snapfsignore", rules("w", ".env.sample"))
	require.NoError(t, err)
	require.False(t, decideBelow(root, ".env.sample", false).Keep, "lifted by us, but the workspace may exclude it")
}

func TestNarrowStandsInItsDirectory(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true})
	root, err := files.Root().Narrow(".gitignore", rules("top", "*.log", "/sub/deep/x", "/out"))
	require.NoError(t, err)
	_, sub := root.Decide("sub", true)
	sub, err = sub.Narrow(".gitignore", rules("sub", "!a.log", "/b", "c/d"))
	require.NoError(t, err)
	other, err := sub.Narrow(".snapfsignore", rules("own", "c.*", "!x.log"))
	require.NoError(t, err)

	for _, tt := range []struct {
		scope Scope
		path  string
		rule  string // source of the rule that excludes, "" if kept
	}{
		{root, "a.log", "top"},
		{root, "b", ""},
		{root, "out", "top"},
		{sub, "out", ""},
		{sub, "a.log", ""}, // a deeper file lifts a shallower one's rule
		{sub, "k/a.log", ""},
		{sub, "x.log", "top"},
		{sub, "b", "sub"},
		{sub, "k/b", ""},
		{sub, "c/d", "sub"},
		{sub, "k/c/d", ""},
		{sub, "deep/x", "top"},
		{sub, "deep/y", ""},
		{sub, "c.txt", ""},
		{other, "c.txt", "own"},
		{other, "c.log", "own"},
		{other, "x.log", "top"}, // files of different names do not lift each other's rules
		{other, "deep/x", "top"},
	} {
		d := decideBelow(tt.scope, tt.path, false)
		require.Equal(t, tt.rule == "", d.Keep, tt.path)
		require.Equal(t, tt.rule, d.Rule.Source, tt.path)
	}
}

func TestNarrowTakesTheGoodRules(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true, Include: rules("--include", "/src")})
	root, err := files.Root().Narrow(".snapfsignore", ParseIgnore(".snapfsignore", []byte("[\nsecret\n")))
	require.ErrorContains(t, err, `compile pattern "[" from .snapfsignore:1`)
	require.False(t, decideBelow(root, "src/secret", false).Keep)
	require.Equal(t, "k", outcome(decideBelow(root, "src/x", false)))
	require.Equal(t, "", outcome(decideBelow(root, "x", false)), "includes hold")

	same, err := root.Narrow(".snapfsignore", nil)
	require.NoError(t, err)
	require.Equal(t, root, same)
	_, out := root.Decide("x", true)
	out, err = out.Narrow(".snapfsignore", rules("w", "!x"))
	require.NoError(t, err)
	require.False(t, decideBelow(out, "x", false).Keep)
}

func TestParseIgnore(t *testing.T) {
	got := ParseIgnore("f", []byte("\ufeff*.log\r\n\n# comment\n  \n\\#x \n lead\n!a\n#\r\nlast"))
	require.Equal(t, []Rule{
		{"*.log", "f:1"}, {"\\#x ", "f:5"}, {" lead", "f:6"}, {"!a", "f:7"}, {"last", "f:9"},
	}, got)
	require.Empty(t, ParseIgnore("f", nil))
	require.Equal(t, []Rule{{"Icon\r", "f:1"}}, ParseIgnore("f", []byte("Icon\r\r\n")))
}
