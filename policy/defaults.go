package policy

// DefaultSource is the source of the rules of [Defaults].
const DefaultSource = "default"

// Defaults returns the rules that hold unless FilesOptions.NoDefaults is set:
// what can be made again, what is git's, and files that hold credentials by
// their very name. The list is the caller's to change.
func Defaults() []Rule {
	patterns := []string{
		// Made again by one command.
		"node_modules/",

		// A repository's own data: a directory, or a file in a worktree.
		".git",

		// Environment files hold secrets; their templates do not.
		".env",
		".env.*",
		"!.env.example",
		"!.env.sample",
		"!.env.template",
		"!.env.defaults",

		// Credentials of well-known programs.
		".ssh/",
		".aws/",
		".azure/",
		"**/.config/gcloud/",
		"**/.kube/config",
		"**/.docker/config.json",
		".gnupg/",
		".netrc",
		".pgpass",
		".git-credentials",
		".npmrc",
		".pypirc",
		"id_rsa",
		"id_dsa",
		"id_ecdsa",
		"id_ed25519",

		// What a sandbox's host puts into a workspace for its agent.
		"/CLAUDE.md",
		"/GEMINI.md",
		"/.claude/skills/*",
		"/.codex/skills/*",
		"/.grok/skills/*",
	}
	rules := make([]Rule, len(patterns))
	for i, p := range patterns {
		rules[i] = Rule{Pattern: p, Source: DefaultSource}
	}
	return rules
}
