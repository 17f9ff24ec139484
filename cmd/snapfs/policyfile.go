package main

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/snapfs/snapfs/policy"
)

// policyFile is the form of a policy file: rules for which entries of a
// workspace are saved.
type policyFile struct {
	Version           int           `yaml:"version"`
	Exclude           []linePattern `yaml:"exclude"`
	Include           []linePattern `yaml:"include"`
	NoDefaultExcludes bool          `yaml:"noDefaultExcludes"`
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

// readPolicy reads a policy file. Its rules come before those of flags.
func readPolicy(ctx context.Context, path string) (policy.FilesOptions, error) {
	file := policyFile{Version: 1}
	if err := readYAML(ctx, "policy file", path, &file); err != nil {
		return policy.FilesOptions{}, absent(err)
	}
	name := "policy file " + quote(path)
	if file.Version != 1 {
		return policy.FilesOptions{}, usage(fmt.Errorf("%s: version %d, this snapfs knows version 1", name, file.Version))
	}
	rules := func(patterns []linePattern) []policy.Rule {
		var rules []policy.Rule
		for _, p := range patterns {
			rules = append(rules, policy.Rule{Pattern: p.pattern, Source: fmt.Sprintf("%s:%d", name, p.line)})
		}
		return rules
	}
	return policy.FilesOptions{NoDefaults: file.NoDefaultExcludes, Exclude: rules(file.Exclude), Include: rules(file.Include)}, nil
}
