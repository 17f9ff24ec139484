package policy

// DefaultSource is the source of the rules of [Defaults].
const DefaultSource = "default"

// Default is one of the rules that hold unless FilesOptions.NoDefaults is set.
type Default struct {
	Pattern string
	Reason  string // why it is one, for people
}

// DefaultList returns the defaults with their reasons: what can be made again,
// what is git's, and files that hold credentials by their very name. The list
// is the caller's to change.
func DefaultList() []Default {
	const (
		made     = "made again by one command"
		gits     = "a repository's own data: a directory, or a file in a worktree"
		env      = "environment files hold secrets"
		template = "a template has no secrets"
		host     = "what a sandbox's host puts into a workspace for its agent"
		skill    = "skills that a sandbox's host puts into a workspace for its agent"
		key      = "a private key of SSH"
	)
	return []Default{
		{"node_modules/", made},
		{".git", gits},
		{".env", env},
		{".env.*", env},
		{"!.env.example", template},
		{"!.env.sample", template},
		{"!.env.template", template},
		{"!.env.defaults", template},
		{".ssh/", "keys of SSH"},
		{".aws/", "credentials of AWS"},
		{".azure/", "credentials of Azure"},
		{"**/.config/gcloud/", "credentials of Google Cloud"},
		{"**/.kube/config", "credentials of Kubernetes"},
		{"**/.docker/config.json", "credentials of container registries"},
		{".gnupg/", "keys of GnuPG"},
		{".netrc", "passwords of ftp, curl and git"},
		{".pgpass", "passwords of PostgreSQL"},
		{".git-credentials", "passwords of git"},
		{".npmrc", "tokens of npm"},
		{".pypirc", "tokens of PyPI"},
		{"id_rsa", key},
		{"id_dsa", key},
		{"id_ecdsa", key},
		{"id_ed25519", key},
		{"/CLAUDE.md", host},
		{"/GEMINI.md", host},
		{"/.claude/skills/*", skill},
		{"/.codex/skills/*", skill},
		{"/.grok/skills/*", skill},
	}
}

// Defaults returns the rules of [DefaultList]. The list is the caller's to
// change.
func Defaults() []Rule {
	list := DefaultList()
	rules := make([]Rule, len(list))
	for i, d := range list {
		rules[i] = Rule{Pattern: d.Pattern, Source: DefaultSource}
	}
	return rules
}
