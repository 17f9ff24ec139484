package main

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/snapfs/snapfs/policy"
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
}

// filePolicy is what a policy file says.
type filePolicy struct {
	files    policy.FilesOptions
	settings policy.Settings
	// Whether it says something about the limits.
	maxFileSize, maxSize bool
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
	return said, nil
}
