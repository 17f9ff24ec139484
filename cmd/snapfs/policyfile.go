package main

import (
	"context"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/snapshot"
)

// policyFile is the form of a policy file: what decides which entries of a
// workspace are saved.
type policyFile struct {
	Version           int           `yaml:"version"`
	Exclude           []linePattern `yaml:"exclude"`
	Include           []linePattern `yaml:"include"`
	NoDefaultExcludes bool          `yaml:"noDefaultExcludes"`
	Gitignore         bool          `yaml:"gitignore"`
	ExcludeCaches     bool          `yaml:"excludeCaches"`
	MaxFileSize       *string       `yaml:"maxFileSize"`
	MaxSize           *string       `yaml:"maxSize"`
	OverLimit         *string       `yaml:"overLimit"`
	Secrets           *string       `yaml:"secrets"`
	AllowSecrets      []allowSecret `yaml:"allowSecrets"`
	RedactEnv         []string      `yaml:"redactEnv"`
	RedactFile        []string      `yaml:"redactFile"`
}

// allowSecret names what looks like a secret and is none. One of the two may be missing.
type allowSecret struct {
	Path *linePattern `yaml:"path"`
	Kind *linePattern `yaml:"kind"`
}

// filePolicy is what a policy file says.
type filePolicy struct {
	files    policy.FilesOptions
	settings policy.Settings
	// Whether it says something about the limits.
	maxFileSize, maxSize bool

	allowed []policy.AllowRule
	// The names of variables and files that have secrets.
	redactEnv, redactFile []string
}

// A linePattern is a pattern that knows where it stands.
type linePattern struct {
	pattern string
	line    int
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (p *linePattern) UnmarshalYAML(node *yaml.Node) error {
	p.line = node.Line
	return node.Decode(&p.pattern)
}

// readPolicy reads a policy file. The patterns are not checked. Their sources are the
// line numbers behind source.
func readPolicy(ctx context.Context, path, source string) (filePolicy, error) {
	file := policyFile{Version: 1}
	if err := readYAML(ctx, "policy file", path, &file); err != nil {
		return filePolicy{}, absent(err)
	}
	name := "policy file " + quote(path)
	if file.Version != 1 {
		return filePolicy{}, usage(fmt.Errorf("%s: version %d, this snapfs knows version 1", name, file.Version))
	}
	rules := func(patterns []linePattern) []policy.Rule {
		var rules []policy.Rule
		for _, p := range patterns {
			rules = append(rules, policy.Rule{Pattern: p.pattern, Source: fmt.Sprintf("%s:%d", source, p.line)})
		}
		return rules
	}
	said := filePolicy{
		files:       policy.FilesOptions{NoDefaults: file.NoDefaultExcludes, Exclude: rules(file.Exclude), Include: rules(file.Include)},
		settings:    policy.Settings{GitIgnore: file.Gitignore, ExcludeCaches: file.ExcludeCaches},
		maxFileSize: file.MaxFileSize != nil,
		maxSize:     file.MaxSize != nil,
	}
	for _, limit := range []struct {
		key  string
		text *string
		to   *int64
	}{
		{"maxFileSize", file.MaxFileSize, &said.settings.MaxFileSize},
		{"maxSize", file.MaxSize, &said.settings.MaxSize},
	} {
		if limit.text == nil {
			continue
		}
		var err error
		if *limit.to, err = parseBytes(*limit.text); err != nil {
			return filePolicy{}, usage(fmt.Errorf("%s: %s: %w", name, limit.key, err))
		}
	}
	if what := file.OverLimit; what != nil {
		switch *what {
		case "skip":
			said.settings.SkipOver = true
		case "fail":
		default:
			return filePolicy{}, usage(fmt.Errorf("%s: overLimit: %s: want fail or skip", name, quote(*what)))
		}
	}
	if file.Secrets != nil {
		var err error
		if said.settings.Secrets, err = policy.ParseSecretsMode(*file.Secrets); err != nil {
			return filePolicy{}, usage(fmt.Errorf("%s: secrets: %w", name, err))
		}
	}
	for _, a := range file.AllowSecrets {
		if a.Path == nil && a.Kind == nil {
			return filePolicy{}, usage(fmt.Errorf("%s: allowSecrets: an entry has neither a path nor a kind", name))
		}
		rule := policy.AllowRule{Pattern: "*"}
		if p := a.Path; p != nil {
			rule.Pattern, rule.Source = p.pattern, fmt.Sprintf("%s:%d", source, p.line)
		}
		if k := a.Kind; k != nil {
			rule.Kind, rule.Source = k.pattern, fmt.Sprintf("%s:%d", source, k.line)
			if !slices.ContainsFunc(secrets.Kinds(), func(known secrets.Kind) bool { return known.Name == k.pattern }) {
				err := fmt.Errorf("%s:%d: allowSecrets: nothing of kind %s is looked for", name, k.line, quote(k.pattern))
				return filePolicy{}, snapshot.WithHint(usage(err), "a warning about a secret names its kind; docs/SECRETS.md lists all")
			}
		}
		said.allowed = append(said.allowed, rule)
	}
	if _, err := policy.CompileAllowed(said.allowed); err != nil {
		return filePolicy{}, err
	}
	said.redactEnv = file.RedactEnv
	for _, f := range file.RedactFile {
		said.redactFile = append(said.redactFile, beside(path, f))
	}
	return said, nil
}
