package policy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// gitOracle asks git itself which rule decides about the entries of one tree.
type gitOracle struct {
	git   string
	work  string
	rules string
	paths []string // a directory ends in a slash
}

// newGitOracle makes a repository whose working tree holds the paths; those
// that end in a slash are directories.
func newGitOracle(t testing.TB, paths []string) *gitOracle {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: its check-ignore is what this test compares with")
	}
	dir := t.TempDir()
	o := &gitOracle{git: git, work: filepath.Join(dir, "work"), rules: filepath.Join(dir, "rules")}
	require.NoError(t, os.Mkdir(o.work, 0o777))
	seen := make(map[string]bool)
	for _, p := range paths {
		for i := range len(p) {
			if p[i] == '/' && !seen[p[:i+1]] {
				seen[p[:i+1]] = true
				require.NoError(t, os.Mkdir(filepath.Join(o.work, p[:i]), 0o777))
				o.paths = append(o.paths, p[:i+1])
			}
		}
		if !seen[p] {
			seen[p] = true
			require.NoError(t, os.WriteFile(filepath.Join(o.work, p), nil, 0o666))
			o.paths = append(o.paths, p)
		}
	}
	o.run(t, nil, "init", "-q", ".")
	return o
}

func (o *gitOracle) run(t require.TestingT, stdin []byte, args ...string) []byte {
	cmd := exec.Command(o.git, append([]string{"-c", "core.ignoreCase=false", "-c", "core.excludesFile=" + o.rules}, args...)...)
	cmd.Dir = o.work
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C"}
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 1 && stderr.Len() == 0 {
		err = nil // nothing is ignored
	}
	require.NoError(t, err, "git %v: %s", args, stderr.String())
	return out
}

// decide returns, for each path, the index of the pattern that decides, or -1.
func (o *gitOracle) decide(t require.TestingT, patterns []string) map[string]int {
	writeLines(t, o.rules, patterns)
	decided := make(map[string]int)
	for p, rule := range o.ask(t) {
		decided[p] = -1
		if rule != (Rule{}) {
			n, err := strconv.Atoi(strings.TrimPrefix(rule.Source, o.rules+":"))
			require.NoError(t, err)
			decided[p] = n - 1
		}
	}
	return decided
}

// ask returns, for each path, the rule that decides, with FILE:LINE as source.
func (o *gitOracle) ask(t require.TestingT) map[string]Rule {
	var stdin bytes.Buffer
	for _, p := range o.paths {
		stdin.WriteString(strings.TrimSuffix(p, "/"))
		stdin.WriteByte(0)
	}
	out := o.run(t, stdin.Bytes(), "check-ignore", "--no-index", "--verbose", "--non-matching", "--stdin", "-z")
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	require.Len(t, fields, 4*len(o.paths), "fields of git's answer")
	rules := make(map[string]Rule)
	for i, p := range o.paths {
		f := fields[4*i:]
		rules[p] = Rule{}
		if f[0] != "" {
			rules[p] = Rule{Pattern: f[2], Source: f[0] + ":" + f[1]}
		}
	}
	return rules
}

// writeLines writes a file of patterns. Git drops one CR at the end of a line:
// with it, a pattern may itself end in CR.
func writeLines(t require.TestingT, file string, patterns []string) {
	var text string
	for _, p := range patterns {
		text += p + "\r\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
}

// compare checks every decision about the tree against git's: the outcome, and
// the rule that decided.
func (o *gitOracle) compare(t require.TestingT, patterns []string) {
	var rules []Rule
	for i, p := range patterns {
		rules = append(rules, Rule{Pattern: p, Source: strconv.Itoa(i)})
	}
	files, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: rules})
	require.NoError(t, err)
	want := o.decide(t, patterns)
	for _, p := range o.paths {
		path, isDir := strings.CutSuffix(p, "/")
		got := files.Decide(path, isDir)
		decided := -1
		if got.Rule != (Rule{}) {
			decided, _ = strconv.Atoi(got.Rule.Source)
		}
		what := fmt.Sprintf("%q with patterns %q", p, patterns)
		require.Equal(t, want[p], decided, "rule that decides about %s", what)
		keep := want[p] < 0 || strings.HasPrefix(patterns[want[p]], "!")
		require.Equal(t, Decision{Keep: keep, Descend: keep && isDir, Rule: got.Rule}, got, what)
	}
}

// oracleTree has the entries on which the tables below try their patterns.
func oracleTree() []string {
	names := []string{
		"foo", "foobar", "foox/bar", "foo.d/bar", "foo.d/x/bar", "food/foo/foo/bar", "a/foo", "a/b/foo", "a/b/c/foo",
		"bar/foo/bar", "bar/foo/x/bar", "a/x/a/b", "a/x/y/b", "a/bb/b", "a/a/a/a/b", "ab/c", "ab/d/c", "a.b",
		"node_modules/x/index.js", "pkg/node_modules/y/index.js", "pkg/deep/er/node_modules/z", "pkg/src/node_modules.js",
		".cache/foo/x/node_modules/a", ".cache/foo/node_modules/b", ".cache/foo/x/y/node_modules/c", ".cache/other/d",
		"dist/a.js", "dist/sub/b.js", "pkg/dist/c.js", "keep.log", "x.log", "logs/keep.log", "logs/y.log", "logs/sub/z.log",
		".kube/config", "home/.kube/config", "home/.kube/other", "home/kube/config", "home/.config/gcloud/key", "home/.config/gcloudx",
		".claude/skills/s1/SKILL.md", ".claude/skills/s2", ".claude/settings.json", "sub/.claude/skills/s3", "CLAUDE.md", "sub/CLAUDE.md",
		".env", ".env.local", ".env.example", "svc/.env", "svc/.env.example", "svc/.envrc", "conf/.env/secret", "conf/.env/.env.example",
		"ac", "bc", "!c", "^c", "]c", "-c", "aXc", "a*b", "axb", "a\\b", "a?b", "[ab]c", "#hash", "!bang", "hash", "bang", "star*",
		" lead", "lead", "trail ", "trail", "trail  ", "sp ace", "tab\t", "new\nline", "\nstart", "cr\r", "cr", "\xff\xfe", "b\xffd", "caf\xc3\xa9", "caf\xe9",
		"\xf0\x9f\x98\x80", "empty/", "emptytop/empty/", ".a", "..b", "...", "d/.a", "-dash", "a/-dash", "UP", "up/UP", "cd/UP/UP",
	}
	for b := 1; b < 256; b++ {
		if b != '/' {
			names = append(names, "bytes/x"+string([]byte{byte(b)}))
		}
	}
	return names
}

func TestAgreesWithGit(t *testing.T) {
	o := newGitOracle(t, oracleTree())
	for _, patterns := range [][]string{
		// Names, anchors, directories.
		{"foo"}, {"foo/"}, {"/foo"}, {"/foo/"}, {"a/foo"}, {"/a/foo"}, {"a/b/"}, {"b/foo"}, {"empty/"}, {"emptytop/empty"}, {"foo/bar"}, {"up"}, {"UP"},
		{"*"}, {"*/"}, {"/*"}, {"/*/"}, {"/*/*"}, {"*/*"}, {"*/foo"}, {"*/foo/"}, {"a/*/foo"}, {"a/*/*/foo"}, {"emptytop/*"}, {"empty/*"},
		// Several components must not take their first ones with them.
		{".cache/foo/*/node_modules"}, {".cache/foo/**/node_modules"}, {"**/node_modules"}, {"node_modules/"}, {"node_modules/**"}, {"**/node_modules/**"},
		{"dist/**"}, {"/dist/**"}, {"**/dist/**"}, {"dist/**/"}, {"dist/*"}, {"dist/**/b.js"}, {"**/.kube/config"}, {".kube/config"}, {"**/.config/gcloud/"},
		{"/.claude/skills/*"}, {".claude/skills/"}, {"skills/*"}, {"**/skills/*"},
		// Two stars.
		{"**"}, {"**/"}, {"/**"}, {"/**/"}, {"**/**"}, {"**/*"}, {"**/foo"}, {"/**/foo"}, {"**/**/foo"}, {"***/foo"}, {"a/**/b"}, {"a/***/b"}, {"a/**/**/b"},
		{"a/**/foo"}, {"a/**"}, {"a/**/**"}, {"a/**/*"}, {"a/**/*/b"}, {"**/a/b"}, {"**/a/**/b"}, {"**/foo/bar"}, {"**/foo/**/bar"}, {"a/**/a/**/b"}, {"**/a/a/b"},
		{"foo**"}, {"**foo"}, {"f**o"}, {"a/**foo"}, {"a/f**o"}, {"a/fo**"}, {"/foo**"}, {"foo**/bar"}, {"/foo**/bar"}, {"f?o**/bar"}, {"foo***/bar"}, {"foo**/**/bar"},
		{"foo**/**"}, {"foo**/"}, {"/foo**/"}, {"fo**/o/bar"}, {"f**/oo/bar"}, {"f**/oo**/bar"}, {"a/f**/oo"}, {"foo*/**/bar"}, {"foo.**/bar"}, {"foo**bar"}, {"foo.d/**bar"}, {`\foo**/bar`}, {"fo[o]**/bar"},
		{"foo*/bar"}, {"foo**/x/b*"}, {"f**/**/**/bar"}, {"a/**b/foo"}, {"a/b**/foo"}, {"a/b**/c/foo"}, {"a/b**"}, {"a/b**", "!a/b**/foo"},
		// Order and "!".
		{"*.log", "!keep.log"}, {"!keep.log", "*.log"}, {"*.log", "!keep.log", "logs/*.log"}, {"logs/", "!logs/keep.log"}, {"logs/*", "!logs/keep.log"},
		{"logs/**", "!logs/**/", "!keep.log"}, {"*", "!*/", "!*.log"}, {"/*", "!/logs", "/logs/*", "!/logs/sub"}, {"foo", "!foo", "foo/"}, {"a/*", "!a/b", "!foo"},
		{".env", ".env.*", "!.env.example"}, {"!foo"}, {"foo*", "!foox/"}, {"a", "!a/b"}, {"a/**", "!a/b/**"}, {"a/**", "!a/*"}, {"a/*/*", "!a/*"}, {"!!bang"}, {"*bang", `!\!bang`}, {"*", "!!bang"}, {"*", "!#hash"},
		// Sets.
		{"[ab]c"}, {"[!a]c"}, {"[^a]c"}, {"[]a]c"}, {"[!]a]c"}, {"[a-b]c"}, {"[a-]c"}, {"[-a]c"}, {"[!-a]c"}, {`[\]]c`}, {`[\!a]c`}, {`[a\-c]c`}, {`[\a-\c]c`}, {"[!a]"}, {"[[]ab]c"}, {`\[ab]c`}, {`\[ab\]c`}, {"[[:lower:]]c"}, {"[![:lower:]]c"},
		{"[[:alpha:]-]c"}, {"[[:x]c"}, {"[[:]c"}, {"[a[:digit:]!]c"}, {"[--0]c"}, {"[]-a]c"}, {"[a-b-c]c"}, {"[[:alpha]c"}, {"a[*]b"}, {"a[?]b"}, {`a[\\]b`}, {"a/[!b]"}, {"[!a]/foo"},
		// A slash in a set binds the pattern, and matches nothing.
		{"/[^/]*.log"}, {"[!/]c"}, {"[^/]*.log"}, {"[a/]c"}, {"[/a]c"}, {"logs/[^/]*.log"}, {"**/[!/]*.log"}, {"*[!/].log"}, {"foo[!/]bar"}, {"foo[/x]bar"}, {"foo[/x]/bar"}, {"[!/]*/"},
		{"[/-9]c"}, {"[+-a]c"}, {"[!/-a]c"}, {`[a\/]c`}, {`[!\/]c`}, {"[]/]c"}, {"[!]/]c"}, {"[^/]/foo"}, {"*/[!/]*"}, {"[[:alpha:]/]c"}, {"[/[:alpha:]]c"}, {"[[:/]c"}, {"[[:a/b]c"}, {"logs/[^/]*.log", "![k/]eep.log", "!logs/[/k]eep.log"},
		{"foo**/[!/]ar"}, {"foo**[/x]/bar"}, {"[f/]oo**/bar"}, {"[/f]oo"}, {"a/[/b]b/"},
		// Ranges that run backwards.
		{"[b-a]c"}, {"[z-a]c"}, {"[!b-a]c"}, {"[b-ab]c"}, {"[a-[:digit:]]"}, {"[c-ab-a]c"}, {"[a-!]c"}, {`[b-\a]c`}, {"bytes/x[z-a]"}, {"bytes/x[!z-a]"}, {"bytes/x[9-0-5]"},
		// A slash behind a backslash.
		{`a\/foo`}, {`a/**\/foo`}, {`**\/foo`}, {`**\/a/foo`}, {`a\/b/`}, {`*\/foo`}, {`foo**\/bar`}, {`foo**/**\/bar`}, {`foo**\/**/bar`}, {`f?o**\/bar`}, {`foo\/b**/x`}, {`a\/b**/foo`}, {`a\/**`}, {`a\/**\/foo`}, {`a/***\/foo`}, {`**\/**`}, {`a/x\/**/b`},
		// Of what nobody would write, what git finds in it.
		{"foo**//bar"}, {"foo**//"}, {"foo**/"}, {"foo**/."}, {"foo**/.."}, {"a/foo**//"}, {"foo**/**//bar"}, {"/foo**//bar"}, {`foo**/\/bar`},
		// Escapes, spaces, comments in a file.
		{`a\*b`}, {`a\?b`}, {`a\\b`}, {`\a\x\b`}, {`\#hash`}, {`\!bang`}, {`star\*`}, {`st\ar*`}, {`*\*`}, {"trail "}, {`trail\ `}, {`trail\ \ `}, {`trail\  `}, {" lead"}, {`\ lead`}, {"sp ace"}, {`tr\ail  `}, {"foo/ "}, {"tab\t"}, {`trail\\ `}, {"foo  "}, {"!foo ", "foo"},
		// Bytes.
		{"\xff\xfe"}, {"\xff*"}, {"?\xfe"}, {"caf?"}, {"caf??"}, {"caf\xc3\xa9"}, {"caf[\xc3\xa9]"}, {"b[\x80-\xff]d"}, {"????"}, {"new?line"}, {"*line"}, {"?start"}, {"new*"}, {"cr?"}, {"cr\r"},
		{".*"}, {"..?"}, {".?"}, {"*.*"}, {"..."}, {"..*"}, {"-*"}, {"*b*"}, {"*a*b*"}, {"a*b"}, {"*/*/*/foo"}, {"?"}, {"??"}, {"*o"}, {"f*"},
	} {
		t.Run(fmt.Sprintf("%q", patterns), func(t *testing.T) { o.compare(t, patterns) })
	}
	for _, class := range []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"} {
		t.Run(class, func(t *testing.T) {
			o.compare(t, []string{"x[[:" + class + ":]]"})
			o.compare(t, []string{"x[^[:" + class + ":]]"})
		})
	}
	t.Run("defaults", func(t *testing.T) {
		var patterns []string
		for _, r := range Defaults() {
			patterns = append(patterns, r.Pattern)
		}
		o.compare(t, patterns)
	})
}

// What we refuse, git accepts in silence; it must not be that it also matches.
func TestGitIgnoresWhatWeRefuse(t *testing.T) {
	o := newGitOracle(t, oracleTree())
	for _, tt := range badPatterns() {
		if !strings.ContainsAny(tt.pattern, "\x00\n") {
			o.matchesNothing(t, []string{tt.pattern})
		}
	}
}

func (o *gitOracle) matchesNothing(t require.TestingT, patterns []string) {
	for p, rule := range o.decide(t, patterns) {
		require.Equal(t, -1, rule, "git decides about %q with %q", p, patterns)
	}
}

// patternGen makes patterns of few, colliding parts, so that many match.
func patternGen() *rapid.Generator[string] {
	part := rapid.SampledFrom([]string{
		"[", "]", "[a/b]", "[!/a]", "[^/]*", "[/]", "[/a]", "[!/]", "[b-a]", "[c-ab]", "[!b-a]", "[/-c]", "[b-/]", "[[:alpha:]/]", "[^[:alpha:]/]", "[[:/", ":]", `\/`, `**\/`, "//", `[\/a]`, `\`, "a**", "a**/",
		"a", "b", "ab", "a", "b", "*", "*", "**", "?", "/", "/", "/", "/**/", "**/", "/*", "[ab]", "[!a]", "[^b]", "[a-b]", "[]a]", "***",
		`\a`, `\*`, `\\`, " ", "\xff", ".", "#", "!", "-", "[[:alpha:]]", "[*]", "c",
	})
	return rapid.Custom(func(t *rapid.T) string {
		p := strings.Join(rapid.SliceOfN(part, 1, 7).Draw(t, "parts"), "")
		return rapid.SampledFrom([]string{"", "", "!", "/"}).Draw(t, "front") + p + rapid.SampledFrom([]string{"", "", "/", " "}).Draw(t, "end")
	})
}

func TestRandomPatternsAgreeWithGit(t *testing.T) {
	names := []string{"a", "b", "ab", "c", "abc", "*", "a*", " a", "b ", "\xff", "a\\", "...", "-", "!", "#a"}
	var paths []string
	for _, x := range names {
		paths = append(paths, x+"/")
		for _, y := range names {
			paths = append(paths, x+"/"+y)
		}
	}
	for _, p := range []string{"d/", "ad/", "d/a/", "d/a/b/", "d/b/a/", "ad/b/", "ab d/a/"} {
		for _, y := range []string{"a/", "bb", "ab", "c/a", "c/ab/b", "c/c/a/", "a/a/bb", "a/c/bb"} {
			paths = append(paths, p+y)
		}
	}
	o := newGitOracle(t, paths)
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(patternGen(), 1, 6).Draw(t, "patterns")
		var patterns, refused []string
		for _, p := range drawn {
			if _, err := parse(Rule{Pattern: p}); err == nil {
				patterns = append(patterns, p)
			} else {
				refused = append(refused, p)
			}
		}
		o.compare(t, patterns)
		if len(refused) > 0 {
			o.matchesNothing(t, refused)
		}
	})
}
