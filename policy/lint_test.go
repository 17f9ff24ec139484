package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLint(t *testing.T) {
	for _, tt := range []struct {
		exclude, include []string
		want             []string // pattern: part of the problem
		noDefaults       bool
	}{
		{exclude: []string{"*.log", "tmp/", "*.log"}, want: []string{"*.log: is there again: *.log (e:3) decides"}},
		{exclude: []string{"/a/b", "a/b"}, want: []string{"/a/b: is there again"}},
		{exclude: []string{"**/foo", "foo"}, want: []string{"**/foo: is there again"}},
		{exclude: []string{"a/**", "a/**/**"}, want: []string{"a/**: is there again"}},
		{exclude: []string{"foo/", "foo"}},    // the second takes more
		{exclude: []string{"x.log", "*.log"}}, // redundant, and no mistake
		{exclude: []string{"!keep.log", "*.log"}, want: []string{"!keep.log: lifts nothing: *.log (e:2) after it excludes the same again"}},
		{exclude: []string{"*.log", "!keep.log"}},
		{exclude: []string{"*.log", "!keep.log", "*.log"}, want: []string{"*.log: is there again", "!keep.log: lifts nothing"}},
		{exclude: []string{"keep.log", "!*.log"}, want: []string{"keep.log: excludes nothing: !*.log (e:2) after it lifts all of it"}},
		{exclude: []string{"logs/", "!logs/keep"}, want: []string{"!logs/keep: lifts nothing: it is below logs, which logs/ (e:1) excludes"}},
		{exclude: []string{"logs/*", "!logs/keep"}},
		{exclude: []string{"!logs/*/keep", "logs"}, want: []string{"!logs/*/keep: lifts nothing: it is below logs"}},
		{exclude: []string{"logs/", "logs/sub/x"}, want: []string{"logs/sub/x: matches nothing: it is below logs"}},
		{exclude: []string{"logs/**", "!logs/a/b"}, want: []string{"!logs/a/b: lifts nothing: it is below logs/a, which logs/** (e:1) excludes"}},
		{exclude: []string{"logs/**", "!logs/**/", "!keep.log"}},
		{exclude: []string{"logs/", "!logs/", "!logs/keep"}, want: []string{"logs/: excludes nothing: !logs/ (e:2) after it lifts all of it", "!logs/keep: lifts nothing: no rule before it"}},
		{exclude: []string{"!keep"}, noDefaults: true, want: []string{"!keep: lifts nothing: no rule before it excludes what it matches"}},
		{exclude: []string{"*.log", "!keep.txt"}, noDefaults: true, want: []string{"!keep.txt: lifts nothing: no rule before it"}},
		{exclude: []string{"a*", "!*z"}}, // az
		{exclude: []string{"!.npmrc"}},
		{exclude: []string{"!keep"}}, // .claude/skills/keep
		{exclude: []string{"!.npmrc"}, noDefaults: true, want: []string{"!.npmrc: lifts nothing: no rule before it"}},
		{exclude: []string{"!node_modules/x"}, want: []string{"!node_modules/x: lifts nothing: it is below node_modules, which node_modules/ (default) excludes"}},
		{exclude: []string{"!**/node_modules/x"}, want: []string{"!**/node_modules/x: lifts nothing: no rule before it"}},
		{exclude: []string{"!**/node_modules/"}},
		{exclude: []string{"*"}, want: []string{"*: excludes everything"}},
		{exclude: []string{"/**"}, want: []string{"/**: excludes everything"}},
		{exclude: []string{"**/*"}, want: []string{"**/*: excludes everything"}},
		{exclude: []string{"?*"}, want: []string{"?*: excludes everything"}},
		{exclude: []string{"*?"}, want: []string{"*?: excludes everything"}},
		{exclude: []string{"/[!/]*"}, want: []string{"/[!/]*: excludes everything"}},
		{exclude: []string{"??*"}}, // but for names of one byte
		{exclude: []string{"**", "!src/"}, want: []string{"**: leaves no file: the rules after it lift directories alone"}},
		{exclude: []string{"*", "!*/"}, want: []string{"*: leaves no file"}},
		{exclude: []string{"/**", "!*/", "!src/*/"}, want: []string{"/**: leaves no file"}},
		{exclude: []string{"*", "!*/", "!a", "a*"}, want: []string{"*: leaves no file", "!a: lifts nothing: a* (e:4) after it"}},
		{exclude: []string{"*", "!src/a"}, want: []string{"*: excludes everything", "!src/a: lifts nothing: it is below src"}},
		{exclude: []string{"*", "!src/", "!src/a"}},
		{exclude: []string{"/*", "!src/"}},
		{exclude: []string{"!/nothing"}, want: []string{"!/nothing: lifts nothing: no rule before it"}},
		{exclude: []string{"!src/nothing"}, want: []string{"!src/nothing: lifts nothing: no rule before it"}},
		{exclude: []string{"/a/*.o", "!/b/*.o"}, noDefaults: true, want: []string{"!/b/*.o: lifts nothing: no rule before it"}},
		{exclude: []string{"/a/*", "!/a/b/c"}, noDefaults: true, want: []string{"!/a/b/c: lifts nothing: it is below a/b"}},
		{exclude: []string{"a/**/b", "!a/b"}, noDefaults: true},
		{exclude: []string{"a/**/b", "!/b"}, noDefaults: true, want: []string{"!/b: lifts nothing: no rule before it"}},
		{exclude: []string{"foo*", "!bar*"}, noDefaults: true, want: []string{"!bar*: lifts nothing: no rule before it"}},
		{exclude: []string{"/*", "!/src"}},
		{exclude: []string{"*", "!*/", "!*.go"}},
		{exclude: []string{"*/", "*.*", "/*/*"}},
		{exclude: []string{"!/src", "/*"}, want: []string{"!/src: lifts nothing: /* (e:2) after it", "/*: excludes everything"}},

		{include: []string{"src/", "/docs", "*.md"}},
		{include: []string{"src", "src"}, want: []string{"src: adds nothing: src (i:2) takes the same"}},
		{include: []string{"*.md", "README.md"}, want: []string{"README.md: adds nothing: *.md (i:1) takes the same"}},
		{include: []string{"/src", "src"}, want: []string{"/src: adds nothing: src (i:2)"}},
		{include: []string{"/src"}, exclude: []string{"src/"}}, // a file of that name
		{include: []string{"/src/"}, exclude: []string{"src/"}, want: []string{"/src/: includes nothing: src/ (e:1) excludes it"}},
		{include: []string{"/src"}, exclude: []string{"src"}, want: []string{"/src: includes nothing: src (e:1) excludes it"}},
		{include: []string{"/src/"}, exclude: []string{"src/**"}, want: []string{"/src/: takes no file: src/** (e:1) excludes all that is in it"}},
		{include: []string{"/src/", "doc"}, exclude: []string{"src/*"}, want: []string{"/src/: takes no file: src/* (e:1)"}},
		{include: []string{"src/"}, exclude: []string{"**/src/**"}, want: []string{"src/: takes no file: **/src/** (e:1)"}},
		{include: []string{"src/"}, exclude: []string{"**/src/*"}, want: []string{"src/: takes no file: **/src/* (e:1)"}},
		{include: []string{"/a/src/"}, exclude: []string{"**/a/**"}, want: []string{"/a/src/: includes nothing: **/a/** (e:1) excludes it"}},
		{include: []string{"/src/"}, exclude: []string{"src/**", "!src/**/"}, want: []string{"/src/: takes no file"}},
		{include: []string{"/src/"}, exclude: []string{"src/**", "!/doc/x"}, noDefaults: true, want: []string{"!/doc/x: lifts nothing", "/src/: takes no file"}},
		{include: []string{"/src/"}, exclude: []string{"src/**", "!src/*"}}, // src/x
		{include: []string{"src/"}, exclude: []string{"src/**"}},            // x/src/y
		{include: []string{"/src"}, exclude: []string{"src/**"}},            // a file of that name
		{include: []string{"/src/"}, exclude: []string{"src/**", "!keep"}},
		{include: []string{"/src/"}, exclude: []string{"src/*/"}},
		{include: []string{"out/bin"}, exclude: []string{"out"}, want: []string{"out/bin: matches nothing: it is below out"}},
		{include: []string{"*.log"}, exclude: []string{"*.log"}, want: []string{"*.log: includes nothing: *.log (e:1) excludes it"}},
		{include: []string{"*.log"}, exclude: []string{"*.log", "!keep.log"}},
		{include: []string{".env"}, want: []string{".env: includes nothing: .env (default) excludes it"}},
		{include: []string{"/.env"}, want: []string{"/.env: includes nothing: .env (default) excludes it"}},
		{include: []string{"/.env.example"}},
		{include: []string{"[ab]c"}, exclude: []string{"[ab]c"}, noDefaults: true, want: []string{"[ab]c: includes nothing"}},
	} {
		number := func(name string, patterns []string) []Rule {
			return ParseIgnore(name, []byte(strings.Join(patterns, "\n")))
		}
		found := Lint(FilesOptions{NoDefaults: tt.noDefaults, Exclude: number("e", tt.exclude), Include: number("i", tt.include)})
		var got []string
		for _, f := range found {
			got = append(got, f.Rule.Pattern+": "+f.Problem)
		}
		require.Len(t, got, len(tt.want), "excludes %q, includes %q: %q", tt.exclude, tt.include, got)
		for i := range got {
			require.Contains(t, got[i], tt.want[i], "excludes %q, includes %q", tt.exclude, tt.include)
		}
	}
}

// goodPolicies are lists of the kinds that people write, and nothing is wrong with
// them.
func goodPolicies() map[string]string {
	return map[string]string{
		"web": "# Logs\nlogs\n*.log\nnpm-debug.log*\nyarn-error.log*\n\n*.pid\n*.seed\ncoverage/\n*.lcov\n.grunt\nbuild/Release\nnode_modules/\njspm_packages/\n*.tsbuildinfo\n.npm\n.eslintcache\n" +
			".env\n.env.local\n.env.*.local\n.cache\n.next\nout\ndist\n.vuepress/dist\n.yarn/*\n!.yarn/patches\n!.yarn/plugins\n!.yarn/releases\n.pnp.*\nreport.[0-9]*.json\n",
		"python":  "__pycache__/\n*.py[cod]\n*$py.class\n*.so\nbuild/\ndist/\neggs/\nlib/\nlib64/\n*.egg-info/\n*.egg\nhtmlcov/\n.tox/\n.coverage\n.coverage.*\n*.mo\ndocs/_build/\n.ipynb_checkpoints\n.venv\nvenv/\n",
		"sharp":   "*.user\n[Dd]ebug/\n[Rr]elease/\n[Bb]in/\n[Oo]bj/\n[Tt]est[Rr]esult*/\n*.rsp\n!Directory.Build.rsp\n.axoCover/*\n!.axoCover/settings.json\n**/[Pp]ackages/*\n!**/[Pp]ackages/build/\n*.[Cc]ache\n!?*.[Cc]ache/\n~$*\n*~\n*- [Bb]ackup ([0-9]).rdl\n",
		"editors": ".idea/**/workspace.xml\n.idea/**/dataSources/\n.idea/**/dataSources.ids\ncmake-build-*/\n.vscode/*\n!.vscode/settings.json\n!.vscode/*.code-snippets\n",
		"c":       "*.o\n*.a\n*.so\n*.so.*\n*.mod.c\n!.gitignore\n.*\n!.mailmap\n!.clang-format\n/vmlinux\n/tags\n*.orig\n\\#*#\n/debian/\n/include/generated/\n/arch/*/include/generated/\n",
		"allow":   "/*\n!/src/\n!/go.mod\n/src/*\n!/src/app/\n",
		"java":    "target/\n!.mvn/wrapper/maven-wrapper.jar\n*.jar\n!gradle/wrapper/gradle-wrapper.jar\n!**/src/main/**/build/\n",
	}
}

func TestGoodPoliciesAreClean(t *testing.T) {
	wrong := map[string]string{
		"c":    "!.gitignore",                     // nothing before it excludes it
		"java": "!.mvn/wrapper/maven-wrapper.jar", // excluded again after it
	}
	for name, text := range goodPolicies() {
		found := Lint(FilesOptions{NoDefaults: true, Exclude: ParseIgnore(name, []byte(text))})
		var got []string
		for _, f := range found {
			got = append(got, f.Rule.Pattern)
		}
		if rule := wrong[name]; rule != "" {
			require.Contains(t, got, rule, name)
			continue
		}
		require.Empty(t, found, name)
	}
}

// TestFindingsHaveNoEffect: a rule that Lint reports can be left out, and every
// decision stays what it was.
func TestFindingsHaveNoEffect(t *testing.T) {
	paths := smallTree
	reported := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		files, err := CompileFiles(opts)
		require.NoError(t, err)
		without := func(rules []Rule, r Rule) []Rule {
			var rest []Rule
			for _, x := range rules {
				if x != r {
					rest = append(rest, x)
				}
			}
			return rest
		}
		for _, f := range Lint(opts) {
			fewer := FilesOptions{NoDefaults: true, Exclude: without(opts.Exclude, f.Rule), Include: without(opts.Include, f.Rule)}
			everything, noFile, takesNone := strings.HasPrefix(f.Problem, "excludes everything"), strings.HasPrefix(f.Problem, "leaves no file"), strings.HasPrefix(f.Problem, "takes no file")
			if len(fewer.Include) == 0 && len(opts.Include) > 0 {
				// Without any include all is let in: it is this one that leaves nothing.
				for _, p := range paths {
					path, isDir := strings.CutSuffix(p, "/")
					require.False(t, !isDir && files.Decide(path, isDir).Keep, "%q of %+v: %s", p, opts, f.Problem)
				}
				continue
			}
			kind, _, _ := strings.Cut(f.Problem, ":")
			reported[kind]++
			rest, err := CompileFiles(fewer)
			require.NoError(t, err)
			for _, p := range paths {
				path, isDir := strings.CutSuffix(p, "/")
				if everything {
					require.False(t, files.Decide(path, isDir).Keep, "%q of %+v", p, opts)
					continue
				}
				if noFile {
					require.False(t, !isDir && files.Decide(path, isDir).Keep, "%q of %+v", p, opts)
					continue
				}
				if takesNone && isDir {
					continue // the directory itself
				}
				require.Equal(t, rest.Decide(path, isDir).Keep, files.Decide(path, isDir).Keep, "%q with and without %q (%s) of %+v", p, f.Rule, f.Problem, opts)
			}
		}
	})
	t.Logf("findings that were tried: %v", reported)
}

func TestExplain(t *testing.T) {
	files := compile(t, FilesOptions{Exclude: rules("--exclude", "!.npmrc", "*.log", "!keep.log"), Include: rules("--include", "src", ".npmrc", ".env*")})
	for _, tt := range []struct {
		path    string // a directory ends in a slash
		outcome string
		pattern string
		at      string
	}{
		{"src/", "kd", "src", "src"},
		{"src/a/b", "k", "src", "src"},
		{"x/src/b", "k", "src", "x/src"},
		{"src/node_modules/x/y", "", "node_modules/", "src/node_modules"},
		{"src/a.log", "", "*.log", "src/a.log"},
		{"src/a.log/keep.log", "", "*.log", "src/a.log"},
		{"src/keep.log", "k", "!keep.log", "src/keep.log"},
		{"src/keep.log/keep.log", "k", "!keep.log", "src/keep.log/keep.log"},
		{"src/.npmrc", "k", "!.npmrc", "src/.npmrc"},
		{"x/y", "", "", ""},
		{"x/", "d", "", ""},
		{".env", "", ".env", ".env"},
		{"", "kd", "", ""},
	} {
		path, isDir := strings.CutSuffix(tt.path, "/")
		got := files.Explain(path, isDir || path == "")
		require.Equal(t, tt.outcome, outcome(got.Decision), tt.path)
		require.Equal(t, tt.pattern, got.Decision.Rule.Pattern, tt.path)
		require.Equal(t, tt.at, got.At, tt.path)
		require.Equal(t, files.Decide(path, isDir || path == ""), got.Decision, tt.path)
	}
}

func TestDefaultsHaveReasons(t *testing.T) {
	list := DefaultList()
	require.Len(t, list, len(Defaults()))
	for i, d := range list {
		require.NotEmpty(t, d.Reason, d.Pattern)
		require.Equal(t, Rule{Pattern: d.Pattern, Source: DefaultSource}, Defaults()[i])
	}
}
