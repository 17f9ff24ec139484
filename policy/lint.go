package policy

import "fmt"

// Finding is a rule that does not do what its writer can have meant.
type Finding struct {
	Rule    Rule
	Problem string // the rest of a sentence that begins with the pattern
}

// Lint looks for rules that are certain to have no effect, whatever the
// workspace, and for those that leave nothing. The options compile. The
// defaults are not judged, but count for the others. Findings come in the order
// of the rules, excludes first, one for a rule.
func Lint(opts FilesOptions) []Finding {
	files, err := CompileFiles(opts)
	if err != nil {
		return nil
	}
	l := linter{files: files}
	for _, r := range files.exclude.rules {
		p, _ := parse(r.Rule) // it compiles
		l.exclude = append(l.exclude, p)
	}
	for _, r := range files.include.rules {
		p, _ := parse(r.Rule)
		l.include = append(l.include, p)
	}
	l.mayLift = make([]bool, len(l.exclude))
	for i := range l.exclude {
		l.mayLift[i] = l.lifts(i)
	}
	var found []Finding
	add := func(p parsed, problem string) {
		if problem != "" && p.Source != DefaultSource {
			found = append(found, Finding{Rule: p.Rule, Problem: problem})
		}
	}
	for i, p := range l.exclude {
		add(p, l.judgeExclude(i))
	}
	for i, p := range l.include {
		add(p, l.judgeInclude(i))
	}
	return found
}

type linter struct {
	files            *Files
	exclude, include []parsed
	mayLift          []bool // of each exclude: see [linter.lifts]
}

// judgeExclude returns what is wrong with an exclude, or "".
func (l *linter) judgeExclude(i int) string {
	p := &l.exclude[i]
	if !p.negated && p.everything() && !l.liftedAfter(i, nil) {
		return "excludes everything, and no rule after it lifts any of it"
	}
	if !p.negated && p.allFiles() && !l.filesLiftedAfter(i) {
		return "leaves no file: the rules after it lift directories alone"
	}
	if problem := l.below(p); problem != "" {
		return problem
	}
	for j := i + 1; j < len(l.exclude); j++ {
		later := &l.exclude[j]
		switch {
		case !later.contains(p):
		case p.negated != later.negated && p.negated:
			return fmt.Sprintf("lifts nothing: %s after it excludes the same again", named(later))
		case p.negated != later.negated:
			return fmt.Sprintf("excludes nothing: %s after it lifts all of it", named(later))
		case p.contains(later):
			return fmt.Sprintf("is there again: %s decides", named(later))
		}
	}
	if p.negated && !l.liftsSomething(i) {
		return "lifts nothing: no rule before it excludes what it matches"
	}
	return ""
}

// judgeInclude returns what is wrong with an include, or "".
func (l *linter) judgeInclude(i int) string {
	p := &l.include[i]
	if problem := l.below(p); problem != "" {
		return problem
	}
	if path := p.literalPath(); path != "" {
		dir, file := l.files.exclude.decide(path, true), l.files.exclude.decide(path, false)
		if out(dir) && (p.dirOnly || out(file)) {
			return fmt.Sprintf("includes nothing: %s (%s) excludes it", dir.Pattern, dir.Source)
		}
	}
	for j := range l.exclude {
		if e := &l.exclude[j]; !e.negated && e.contains(p) && !l.liftedAfter(j, p) {
			return fmt.Sprintf("includes nothing: %s excludes it", named(e))
		}
	}
	if e := l.emptied(p); e != nil {
		return fmt.Sprintf("takes no file: %s excludes all that is in it", named(e))
	}
	for j := range l.include {
		other := &l.include[j]
		if j != i && other.contains(p) && (j > i || !p.contains(other)) {
			return fmt.Sprintf("adds nothing: %s takes the same", named(other))
		}
	}
	return ""
}

// below tells of a pattern that can match only below an excluded directory.
func (l *linter) below(p *parsed) string {
	what := "matches"
	if p.negated {
		what = "lifts"
	}
	for _, dir := range p.literalAncestors() {
		if r := l.files.exclude.decide(dir, true); out(r) {
			return fmt.Sprintf("%s nothing: it is below %s, which %s (%s) excludes", what, dir, r.Pattern, r.Source)
		}
	}
	return ""
}

// emptied returns the exclude that leaves no file in the directories that an include
// takes, if that takes nothing else.
func (l *linter) emptied(p *parsed) *parsed {
	if !p.dirOnly {
		return nil
	}
	in, deep := p.inside(false), p.inside(true)
	for j := range l.exclude {
		e := &l.exclude[j]
		if !e.negated && (e.contains(in) && !l.liftedAfter(j, in) || e.contains(deep) && !l.filesLiftedAfter(j)) {
			return e
		}
	}
	return nil
}

// liftedAfter reports whether after an exclude stands a "!" that may lift some of
// what of matches; nil matches anything.
func (l *linter) liftedAfter(i int, of *parsed) bool {
	for j := i + 1; j < len(l.exclude); j++ {
		if l.mayLift[j] && (of == nil || !l.exclude[j].apart(of)) {
			return true
		}
	}
	return false
}

// filesLiftedAfter reports whether after an exclude stands a "!" that may lift a file.
func (l *linter) filesLiftedAfter(i int) bool {
	for j := i + 1; j < len(l.exclude); j++ {
		if l.mayLift[j] && !l.exclude[j].dirOnly {
			return true
		}
	}
	return false
}

// lifts tells of a "!" that is not certain to do nothing: what it lifts is neither
// below an excluded directory nor excluded again after it.
func (l *linter) lifts(i int) bool {
	p := &l.exclude[i]
	if !p.negated || l.below(p) != "" {
		return false
	}
	for j := i + 1; j < len(l.exclude); j++ {
		if later := &l.exclude[j]; !later.negated && later.contains(p) {
			return false
		}
	}
	return true
}

// liftsSomething reports whether a rule before a "!" may exclude what it lifts.
func (l *linter) liftsSomething(i int) bool {
	for j := range l.exclude[:i] {
		if e := &l.exclude[j]; !e.negated && !e.apart(&l.exclude[i]) {
			return true
		}
	}
	return false
}

func named(p *parsed) string { return p.Pattern + " (" + p.Source + ")" }

// out reports whether a rule excludes.
func out(r *rule) bool { return r != nil && !r.negated }

// decide returns the rule that decides about a path, or about a directory above
// it that is excluded; nil if none does.
func (s *ruleSet) decide(path string, isDir bool) *rule {
	open := s.anchored
	var hit *rule
	work := 0
	for name, more := range names(path) {
		if hit, open = s.step(open, name, isDir || more, &work); out(hit) {
			break
		}
	}
	return hit
}
