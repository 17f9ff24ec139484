package policy

import (
	"errors"
	"strings"
)

// Rule is one pattern in gitignore syntax and where it was written.
type Rule struct {
	// Pattern as the user wrote it; a leading "!" lifts earlier rules.
	Pattern string
	// Source names the place for people: "default", "--exclude",
	// "policy.yaml:12", ".snapfsignore:3".
	Source string
}

// Several reports whether the pattern has several parts: a slash that is not its first
// or last byte, and not in a set.
func (r Rule) Several() bool {
	text := strings.TrimPrefix(trimSpaces(r.Pattern), "!")
	if check(text) != nil {
		return false
	}
	_, rest, slash := cutSlash(strings.TrimPrefix(strings.TrimSuffix(text, "/"), "/"))
	return slash != "" && rest != ""
}

// FilesOptions is what [CompileFiles] compiles. The zero value stands for the
// defaults alone.
type FilesOptions struct {
	// NoDefaults leaves out the rules of Defaults.
	NoDefaults bool
	// Exclude holds the excludes that follow the defaults, weakest first: the
	// policy file's, then those of flags.
	Exclude []Rule
	// Include, when not empty, restricts the content to what matches. An
	// include has no "!": exclude beats include.
	Include []Rule
}

// Files decides which entries of a workspace are content. It is immutable and
// safe for concurrent use.
type Files struct {
	exclude *ruleSet
	include *ruleSet
}

// CompileFiles checks and compiles rules. The error names every rule that it
// refuses: it joins one [PatternError] for each.
func CompileFiles(opts FilesOptions) (*Files, error) {
	var exclude []Rule
	if !opts.NoDefaults {
		exclude = Defaults()
	}
	exclude = append(exclude, opts.Exclude...)

	excludes, errExclude := compileRules(exclude)
	includes, errInclude := compileRules(opts.Include)
	for _, r := range includes.rules {
		if r.negated {
			errInclude = errors.Join(errInclude, &PatternError{
				Rule:    r.Rule,
				Problem: `an include cannot begin with "!"`,
				Hint:    "put the pattern without its ! among the excludes; exclude beats include",
			})
		}
	}
	if err := errors.Join(errExclude, errInclude); err != nil {
		return nil, err
	}
	return &Files{exclude: excludes, include: includes}, nil
}

// Decision says what becomes of one entry.
type Decision struct {
	// Keep: the entry is content. A kept directory is stored even when
	// nothing below it is kept.
	Keep bool
	// Descend: the entry is a directory, and something below it may be kept.
	// A directory can be descended into without being kept itself: it is then
	// stored only if something below it is.
	Descend bool
	// Rule is the one that decided: the exclude that matched the entry or a
	// directory above it, or for a kept entry the "!" that lifted it, else the
	// include that chose it. It is zero if no rule spoke: then a kept entry is
	// kept because nothing excludes it, and another one is left out because
	// there are includes and none of them matches it.
	Rule Rule
	// Ignored: the rule is one of an ignore file in the workspace.
	Ignored bool
}

// Watched returns the same rules, and a function that tells which of them have
// matched no entry that the result's decisions were about since, excludes first.
func (f *Files) Watched() (files *Files, unmatched func() []Rule) {
	files = &Files{exclude: f.exclude.watched(), include: f.include.watched()}
	return files, func() []Rule { return append(files.exclude.unmatched(), files.include.unmatched()...) }
}

// WatchedIncludes is [Files.Watched] for includes alone, which costs nothing once each
// has matched something. What is below an include's match counts for the others, what
// an exclude leaves out for none.
func (f *Files) WatchedIncludes() (files *Files, unmatched func() []Rule) {
	files = f
	if f.include.watch == nil {
		files = &Files{exclude: f.exclude, include: f.include.watched()}
	}
	return files, files.include.unmatched
}

// Decide decides about the entry at path: relative to the workspace's root,
// its names separated by slashes, any bytes. It equals a walk from [Files.Root]
// and costs as much as that, which suits a single question; a walk carries a
// [Scope] along instead. What is below an excluded directory gets that
// directory's decision. The root itself (an empty path) is always kept.
func (f *Files) Decide(path string, isDir bool) Decision {
	d, scope := Decision{Keep: true, Descend: true}, f.Root()
	for more := true; more; {
		var name string
		name, path, more = strings.Cut(path, "/")
		if name == "" {
			continue
		}
		d, scope = scope.Decide(name, isDir || more)
	}
	return d
}

// All reports that nothing is excluded or restricted: every decision is to
// keep. Ignore files inside the workspace are not its business.
func (f *Files) All() bool {
	for _, r := range f.exclude.rules {
		if !r.negated {
			return false
		}
	}
	return len(f.include.rules) == 0
}

// Restricted reports whether there are includes: then a directory that is only on the
// way to what they match is not itself asked for.
func (f *Files) Restricted() bool { return len(f.include.rules) > 0 }

// Encode returns the rules in force as text: see [Recorded.Encode].
func (f *Files) Encode() []byte { return f.Record(Settings{}).Encode() }
