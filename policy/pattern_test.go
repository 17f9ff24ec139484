package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// badPattern is one that is refused, since it cannot match anything.
type badPattern struct {
	pattern string
	problem *flaw
}

func badPatterns() []badPattern {
	return []badPattern{
		{"", flawEmpty},
		{"   ", flawEmpty},
		{"!", flawBang},
		{"!  ", flawBang},
		{"/", flawRoot},
		{"!/", flawRoot},
		{"//", flawSlashes},
		{"#foo", flawComment},
		{"a\x00b", flawNUL},
		{"foo\nbar", flawNewline},
		{"//foo", flawSlashes},
		{"a//foo", flawSlashes},
		{"foo//", flawSlashes},
		{".", flawDots},
		{"..", flawDots},
		{"./foo", flawDots},
		{"../foo", flawDots},
		{"a/../foo", flawDots},
		{"a/.", flawDots},
		{`a/\.`, flawDots},
		{`foo\`, flawBackslash},
		{`foo\/`, flawBackslash},
		{`foo\\\`, flawBackslash},
		{`foo\\\/`, flawBackslash},
		{`foo/**\/`, flawBackslash},
		{`\/foo`, flawEscRoot},
		{`/\/foo`, flawEscRoot},
		{`\/**/foo`, flawEscRoot},
		{`a/\/foo`, flawSlashes},
		{`a\//foo`, flawSlashes},
		{`**/\/foo`, flawSlashes},
		{`foo/**//bar`, flawSlashes},
		{`foo**\//bar`, flawSlashes},
		{"**//foo", flawSlashes},
		{"fo[o]**//bar", flawSlashes},
		{"[.]", flawDots},
		{"[.]./foo", flawDots},
		{"a/[.-.]", flawDots},
		{"[", flawUnclosed},
		{"[ab", flawUnclosed},
		{"[]", flawUnclosed},
		{"[!]", flawUnclosed},
		{"[^]c", flawUnclosed},
		{`[a\]`, flawUnclosed},
		{`[a-\`, flawUnclosed},
		{`[\`, flawUnclosed},
		{"[a-", flawUnclosed},
		{"[!", flawUnclosed},
		{"[[:alpha:]c", flawUnclosed},
		{"[[:alpha", flawUnclosed},
		{"foo[/", flawUnclosed},
		{"a/[b/foo", flawUnclosed},
		{"[a/", flawUnclosed},
		{"[/", flawUnclosed},
		{"a[/]foo", flawSetEmpty},
		{"[/]", flawSetEmpty},
		{"/[/]", flawSetEmpty},
		{"**/[/]foo", flawSetEmpty},
		{"foo[/]bar", flawSetEmpty},
		{`foo[\/]bar`, flawSetEmpty},
		{"foo[/-/]bar", flawSetEmpty},
		{"foo[/-+]bar", flawSetEmpty},
		{"foo[//]bar", flawSetEmpty},
		{"[!\x01-\xff]", flawSetEmpty},
		{"[!\x01-.0-\xff]", flawSetEmpty},
		{"[[:letter:]]c", flawClass},
		{"[[::]]c", flawClass},
	}
}

func TestRefusesBadPatterns(t *testing.T) {
	for _, tt := range badPatterns() {
		_, err := CompileFiles(FilesOptions{Exclude: []Rule{{Pattern: tt.pattern, Source: "policy.yaml:7"}}})
		var refused *PatternError
		require.ErrorAs(t, err, &refused, "pattern %q", tt.pattern)
		require.Equal(t, tt.problem.problem, refused.Problem, "pattern %q", tt.pattern)
		require.Equal(t, tt.pattern, refused.Rule.Pattern)
		require.Contains(t, err.Error(), "policy.yaml:7")
		require.Contains(t, err.Error(), "\nhint: "+tt.problem.hint)
	}
}

func TestRefusalText(t *testing.T) {
	_, err := CompileFiles(FilesOptions{Exclude: []Rule{{Pattern: "[ab", Source: "--exclude"}}})
	require.EqualError(t, err, `compile pattern "[ab" from --exclude: "[" is not closed`+
		"\nhint: close the set with ], or write \\[ for a bracket in a name")
}

func TestRefusesAllBadPatternsAtOnce(t *testing.T) {
	_, err := CompileFiles(FilesOptions{
		Exclude: []Rule{{Pattern: "[", Source: "a:1"}, {Pattern: "good", Source: "a:2"}, {Pattern: "/", Source: "a:3"}},
		Include: []Rule{{Pattern: "x//y", Source: "b:1"}, {Pattern: "!x", Source: "b:2"}},
	})
	for _, source := range []string{"a:1", "a:3", "b:1", "b:2"} {
		require.ErrorContains(t, err, "from "+source+":")
	}
	require.NotContains(t, err.Error(), "a:2")
	require.ErrorContains(t, err, `an include cannot begin with "!"`)
	require.Len(t, strings.Split(err.Error(), "hint: "), 5)
	require.False(t, errors.Is(err, flawRoot), "checks stay inside")
}

// A hostile pattern must not cost more than its length allows.
func TestHostilePatternIsCheap(t *testing.T) {
	pattern := strings.Repeat("*a", 2000) + "b"
	files, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: []Rule{
		{Pattern: pattern},
		{Pattern: strings.Repeat("a/**/", 2000) + "b"},
		{Pattern: "a" + strings.Repeat("**/a", 2000) + "**/b"},
	}})
	require.NoError(t, err)
	require.True(t, files.Decide(strings.Repeat("a", 255), false).Keep)
	require.True(t, files.Decide(strings.Repeat("a/", 500)+"c", false).Keep)
	require.False(t, files.Decide(strings.Repeat("a/", 2100)+"b", false).Keep)
}
