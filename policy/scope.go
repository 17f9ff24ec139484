package policy

import "slices"

// Scope decides about the entries of one directory. It is a small value that
// holds what its directory's path already settled, so that an entry costs the
// same at any depth. Scopes are immutable and safe for concurrent use: a
// parallel walk hands each directory its own. The zero Scope keeps nothing.
type Scope struct {
	files   *Files
	exclude []position
	include []position
	// chosen is the include that took this directory with its whole subtree.
	chosen *rule
	// verdict is the decision for all entries of a directory that is not
	// descended into (files is nil then).
	verdict Decision
	// narrowed holds the ignore files met on the way, deepest last.
	narrowed []ignoreFile
	budget   *Budget // of these; nil: none
}

// ignoreFile is one call of Narrow and its open positions in a directory.
type ignoreFile struct {
	name string
	set  *ruleSet
	open []position
}

// Root returns the scope of the workspace's root directory.
func (f *Files) Root() Scope {
	return Scope{files: f, exclude: f.exclude.anchored, include: f.include.anchored}
}

// Decide decides about the entry called name, any bytes without slashes. isDir
// is false for a symlink, whatever it points to. The returned scope is the one
// of the entry as a directory; below one that is not descended into, it repeats
// the decision that the directory itself is out.
func (s Scope) Decide(name string, isDir bool) (Decision, Scope) {
	if s.files == nil {
		return s.verdict, s
	}
	sub := Scope{files: s.files, chosen: s.chosen, budget: s.budget}

	work := 0 // of the caller's own rules nobody counts
	hit, open := s.files.exclude.step(s.exclude, name, isDir, &work)
	sub.exclude = open
	if hit != nil && !hit.negated {
		return dropped(hit.Rule, false)
	}
	if out := s.stepNarrowed(&sub, name, isDir); out != nil {
		return dropped(out.Rule, true)
	}

	if s.chosen != nil {
		if s.files.include.watching() { // other includes may match here, too
			_, sub.include = s.files.include.step(s.include, name, isDir, &work)
		}
	} else if len(s.files.include.rules) > 0 {
		chosen, open := s.files.include.step(s.include, name, isDir, &work)
		if chosen == nil {
			if !isDir || (len(open) == 0 && !s.files.include.floats) {
				return dropped(Rule{}, false)
			}
			sub.include = open
			return Decision{Descend: true}, sub
		}
		sub.chosen = chosen
		if s.files.include.watching() {
			sub.include = open
		}
	}

	d := Decision{Keep: true, Descend: isDir}
	switch {
	case hit != nil:
		d.Rule = hit.Rule
	case sub.chosen != nil:
		d.Rule = sub.chosen.Rule
	}
	return d, sub
}

// dropped returns the decision that an entry is out, by the rule r, and the
// scope that says so for everything below it.
func dropped(r Rule, ignored bool) (Decision, Scope) {
	d := Decision{Rule: r, Ignored: ignored}
	return d, Scope{verdict: d}
}

// stepNarrowed asks the ignore files about an entry, writes their open
// positions to sub, and returns the rule that excludes the entry, or nil.
// Among files of one name the deepest that matches decides, as in git; files
// of different names do not lift each other's rules.
func (s Scope) stepNarrowed(sub *Scope, name string, isDir bool) *rule {
	if len(s.narrowed) == 0 {
		return nil
	}
	// Most directories open and close no position: they share the slice.
	sub.narrowed = s.narrowed
	shared := true
	var out *rule
	var settled []string
	work := 0
	for i := len(s.narrowed) - 1; i >= 0; i-- {
		file := s.narrowed[i]
		hit, open := file.set.step(file.open, name, isDir, &work)
		if len(open) > 0 || len(file.open) > 0 {
			if shared {
				sub.narrowed, shared = slices.Clone(s.narrowed), false
			}
			sub.narrowed[i].open = open
		}
		if hit == nil || slices.Contains(settled, file.name) {
			continue
		}
		settled = append(settled, file.name)
		if out == nil && !hit.negated {
			out = hit
		}
	}
	if s.budget != nil {
		s.budget.work.Add(int64(work))
	}
	return out
}

// Narrow returns the scope with the rules of an ignore file that lies in this
// scope's directory, on which its anchored patterns then stand. The rules can
// only exclude more: a "!" lifts rules of files with the same name, here or in
// the directories above, and nothing else. name is the file's own name, such as
// ".snapfsignore".
//
// The error joins one [PatternError] for each rule that was refused; the scope
// is valid all the same and has the other rules in force, since a bad line in
// a workspace must not stop the work on it.
func (s Scope) Narrow(name string, rules []Rule) (Scope, error) {
	if s.files == nil || len(rules) == 0 {
		return s, nil
	}
	if s.budget != nil && s.budget.rules.Add(int64(len(rules))) > maxIgnoreRules {
		return s, nil
	}
	set, err := compileRules(rules)
	s.narrowed = append(slices.Clip(s.narrowed), ignoreFile{name: name, set: set, open: set.anchored})
	return s, err
}
