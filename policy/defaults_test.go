package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func compile(t testing.TB, opts FilesOptions) *Files {
	t.Helper()
	files, err := CompileFiles(opts)
	require.NoError(t, err)
	return files
}

func rules(source string, patterns ...string) []Rule {
	var list []Rule
	for _, p := range patterns {
		list = append(list, Rule{Pattern: p, Source: source})
	}
	return list
}

func TestDefaults(t *testing.T) {
	files := compile(t, FilesOptions{})
	spoken := make(map[string]bool)
	for _, tt := range []struct {
		path string // a directory ends in a slash
		rule string // the default that decides, "" for none
	}{
		{"node_modules/", "node_modules/"},
		{"a/b/node_modules/", "node_modules/"},
		{"a/node_modules/x/index.js", "node_modules/"},
		{"node_modules", ""}, // a file, or a symlink to a directory
		{"node_modules.js", ""},
		{"my_node_modules/", ""},

		{".git/", ".git"},
		{".git", ".git"},
		{"sub/module/.git", ".git"},
		{".git/config", ".git"},
		{".gitignore", ""},
		{".github/workflows/ci.yaml", ""},
		{"repo.git/", ""},

		{".env", ".env"},
		{"svc/.env", ".env"},
		{".env/", ".env"},
		{".env/.env.example", ".env"},
		{".env.local", ".env.*"},
		{".env.production.local", ".env.*"},
		{".env.example.local", ".env.*"},
		{".env.d/", ".env.*"},
		{".env.example", "!.env.example"},
		{"svc/.env.example", "!.env.example"},
		{".env.sample", "!.env.sample"},
		{".env.template", "!.env.template"},
		{".env.defaults", "!.env.defaults"},
		{".envrc", ""},
		{"a.env", ""},
		{"env/", ""},

		{".ssh/", ".ssh/"},
		{"home/.ssh/known_hosts", ".ssh/"},
		{".ssh", ""},
		{".aws/credentials", ".aws/"},
		{".azure/", ".azure/"},
		{".config/gcloud/", "**/.config/gcloud/"},
		{"home/.config/gcloud/", "**/.config/gcloud/"},
		{"home/.config/gcloud/a/b", "**/.config/gcloud/"},
		{"home/.config/", ""},
		{"home/.config/other/", ""},
		{"home/config/gcloud/", ""},
		{"home/.config/x/gcloud/", ""},
		{".kube/config", "**/.kube/config"},
		{"home/.kube/config", "**/.kube/config"},
		{".kube/.kube/config", "**/.kube/config"},
		{".kube/", ""},
		{".kube/cache/", ""},
		{".docker/config.json", "**/.docker/config.json"},
		{"home/.docker/config.json", "**/.docker/config.json"},
		{".docker/daemon.json", ""},
		{"config.json", ""},
		{".gnupg/", ".gnupg/"},
		{".netrc", ".netrc"},
		{"home/.pgpass", ".pgpass"},
		{".git-credentials", ".git-credentials"},
		{"pkg/.npmrc", ".npmrc"},
		{".pypirc", ".pypirc"},
		{"keys/id_rsa", "id_rsa"},
		{"keys/id_rsa.pub", ""},
		{"id_dsa", "id_dsa"},
		{"id_ecdsa", "id_ecdsa"},
		{"id_ed25519", "id_ed25519"},
		{"server.pem", ""},

		{"CLAUDE.md", "/CLAUDE.md"},
		{"sub/CLAUDE.md", ""},
		{"claude.md", ""},
		{"GEMINI.md", "/GEMINI.md"},
		{"sub/GEMINI.md", ""},
		{".claude/", ""},
		{".claude/settings.json", ""},
		{".claude/skills/", ""},
		{".claude/skills/x", "/.claude/skills/*"},
		{".claude/skills/x/", "/.claude/skills/*"},
		{".claude/skills/x/SKILL.md", "/.claude/skills/*"},
		{"sub/.claude/skills/x", ""},
		{".codex/skills/x", "/.codex/skills/*"},
		{".codex/skills/", ""},
		{".grok/skills/x", "/.grok/skills/*"},
		{".grok/skills/", ""},

		{"", ""},
		{"src/main.go", ""},
		{"caf\xe9/\xff", ""},
		{"new\nline", ""},
	} {
		path, isDir := strings.CutSuffix(tt.path, "/")
		isDir = isDir || path == ""
		keep := tt.rule == "" || tt.rule[0] == '!'
		want := Decision{Keep: keep, Descend: keep && isDir}
		if tt.rule != "" {
			want.Rule = Rule{Pattern: tt.rule, Source: "default"}
		}
		require.Equal(t, want, files.Decide(path, isDir), "%q", tt.path)
		spoken[tt.rule] = true
	}
	for _, r := range Defaults() {
		require.True(t, spoken[r.Pattern], "no case for %s", r.Pattern)
	}
	require.False(t, files.All())
}

func TestDefaultsAreTheCallers(t *testing.T) {
	Defaults()[0].Pattern = "src"
	require.Equal(t, "node_modules/", Defaults()[0].Pattern)
}

func TestFlagsLiftDefaults(t *testing.T) {
	files := compile(t, FilesOptions{Exclude: rules("--exclude", "!.npmrc", "*.log")})
	require.Equal(t, Decision{Keep: true, Rule: Rule{"!.npmrc", "--exclude"}}, files.Decide("a/.npmrc", false))
	require.Equal(t, Decision{Rule: Rule{"*.log", "--exclude"}}, files.Decide("a/x.log", false))
	require.Equal(t, Decision{Rule: Rule{".env", "default"}}, files.Decide("a/.env", false))
	require.False(t, files.Decide(".ssh/.npmrc", false).Keep, "below an excluded directory")
}

func TestNoDefaults(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true})
	require.True(t, files.All())
	require.Equal(t, Decision{Keep: true, Descend: true}, files.Decide("node_modules", true))
	require.Equal(t, Decision{Keep: true}, files.Decide(".git/config", false))

	files = compile(t, FilesOptions{NoDefaults: true, Exclude: rules("--exclude", "!lifted")})
	require.True(t, files.All(), `nothing is there to be lifted`)
	files = compile(t, FilesOptions{NoDefaults: true, Include: rules("--include", "src")})
	require.False(t, files.All())
}
