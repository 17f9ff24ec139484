package policy

import (
	"errors"
	"fmt"
	"strings"
)

// A SecretsMode says what becomes of a file that has what looks like a secret. The empty
// one is what holds unless something is asked for.
type SecretsMode string

// The modes.
const (
	SecretsOff     SecretsMode = "off"     // nothing is looked for
	SecretsWarn    SecretsMode = "warn"    // it is saved, and told
	SecretsExclude SecretsMode = "exclude" // it is left out, and told
)

// ParseSecretsMode reads the name of a mode.
func ParseSecretsMode(name string) (SecretsMode, error) {
	switch m := SecretsMode(name); m {
	case SecretsOff, SecretsWarn, SecretsExclude:
		return m, nil
	}
	return "", fmt.Errorf("%q: want off, warn or exclude", name)
}

// An AllowRule names what looks like a secret and is none.
type AllowRule struct {
	// Pattern is in gitignore syntax, without a leading "!": what looks like a secret
	// in a file that it matches, or below a directory that it matches, is allowed.
	Pattern string
	Kind    string // only what looks like this; empty: whatever it looks like
	Source  string // for people, as of a [Rule]
}

// Allowed decides which findings are none. The nil Allowed allows nothing. It is
// immutable and safe for concurrent use.
type Allowed struct{ rules []allowRule }

type allowRule struct {
	files *Files
	kind  string
}

// Empty reports whether there are no rules.
func (a *Allowed) Empty() bool { return a == nil || len(a.rules) == 0 }

// CompileAllowed checks and compiles rules. The error names every rule that it refuses.
func CompileAllowed(rules []AllowRule) (*Allowed, error) {
	a := &Allowed{}
	var errs []error
	for _, r := range rules {
		rule := Rule{Pattern: r.Pattern, Source: r.Source}
		problem := ""
		switch {
		case strings.HasPrefix(r.Pattern, "!"):
			problem = `what is allowed cannot begin with "!"`
		case strings.TrimSpace(r.Pattern) == "":
			problem = "it is empty"
		}
		if problem != "" {
			errs = append(errs, &PatternError{Rule: rule, Problem: problem, Hint: "name what is allowed, and nothing else is"})
			continue
		}
		files, err := CompileFiles(FilesOptions{NoDefaults: true, Exclude: []Rule{rule}})
		errs = append(errs, err)
		a.rules = append(a.rules, allowRule{files, r.Kind})
	}
	return a, errors.Join(errs...)
}

// Class tells apart the paths for which something else is allowed: those of one class
// are treated alike.
func (a *Allowed) Class(path string) string {
	if a == nil {
		return ""
	}
	class := make([]byte, len(a.rules))
	for i, r := range a.rules {
		if !r.files.Decide(path, false).Keep {
			class[i] = 1
		}
	}
	return string(class)
}

// Allows reports whether a finding of that kind in the file at path is none.
func (a *Allowed) Allows(path, kind string) bool {
	if a == nil {
		return false
	}
	for _, r := range a.rules {
		if (r.kind == "" || r.kind == kind) && !r.files.Decide(path, false).Keep {
			return true
		}
	}
	return false
}
