package policy

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
)

// ruleSet is a compiled list of rules of which the last match wins.
//
// It is an automaton over names. Each pattern is a list of components; a
// position is a place in such a list, and a directory's open positions are
// those that its path has led to. A pattern that is not anchored ("floating":
// a bare name, or one that begins with **/) may begin anywhere, so its first
// position is open everywhere and is not listed: plain first components stand
// in a map, the others in a short list.
type ruleSet struct {
	rules    []rule
	patterns []pattern
	anchored []position       // open in the directory where the rules stand
	byName   map[string][]int // floating patterns by their first, plain component
	byGlob   []int            // floating patterns with any other first component
	floats   bool             // any floating pattern: a match is possible everywhere
	loops    bool             // any **, so that positions need pruning
	watch    *watch           // nil: nobody asks which rules match something
}

// watch notes which of a list of rules have matched an entry.
type watch struct {
	matched []atomic.Bool
	left    atomic.Int64 // rules that have not
}

// saw notes that a rule has matched.
func (w *watch) saw(rule int) {
	if !w.matched[rule].Load() && w.matched[rule].CompareAndSwap(false, true) {
		w.left.Add(-1)
	}
}

// watched returns the same rules with a watch of their own.
func (s *ruleSet) watched() *ruleSet {
	watched := *s
	watched.watch = &watch{matched: make([]atomic.Bool, len(s.rules))}
	watched.watch.left.Store(int64(len(s.rules)))
	return &watched
}

// watching reports whether there are rules that somebody waits for.
func (s *ruleSet) watching() bool { return s.watch != nil && s.watch.left.Load() > 0 }

// unmatched returns the rules of a watched set that have matched nothing.
func (s *ruleSet) unmatched() (rules []Rule) {
	for i := range s.rules {
		if !s.watch.matched[i].Load() {
			rules = append(rules, s.rules[i].Rule)
		}
	}
	return rules
}

// rule is a Rule taken apart; its patterns refer to it by number.
type rule struct {
	Rule
	negated bool
	dirOnly bool
}

// pattern is one list of components of a rule. Most rules have just one.
type pattern struct {
	rule       int
	components []component
}

// position says that the components before next have matched.
type position struct {
	pattern int
	next    int
}

// compileRules compiles those of the rules that are good and returns the joined
// errors of the others.
func compileRules(rules []Rule) (*ruleSet, error) {
	s := &ruleSet{byName: make(map[string][]int)}
	var errs []error
	for _, r := range rules {
		p, err := parse(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.rules = append(s.rules, p.rule)
		for _, alt := range p.alternatives {
			n := len(s.patterns)
			s.patterns = append(s.patterns, pattern{rule: len(s.rules) - 1, components: alt.components})
			first := alt.components[0]
			switch {
			case !alt.floating:
				s.anchored = append(s.anchored, position{pattern: n})
			case first.kind == literal:
				s.byName[first.text] = append(s.byName[first.text], n)
			default:
				s.byGlob = append(s.byGlob, n)
			}
			s.floats = s.floats || alt.floating
			s.loops = s.loops || slices.ContainsFunc(alt.components, component.loops)
		}
	}
	return s, errors.Join(errs...)
}

// step returns the last rule that matches an entry, or nil, and for a directory
// the positions that are open in it. It adds to work how much it did.
func (s *ruleSet) step(open []position, name string, isDir bool, work *int) (*rule, []position) {
	w := stepper{set: s, name: name, isDir: isDir, best: -1}
	for _, at := range open {
		w.try(at)
	}
	for _, p := range s.byName[name] {
		w.advance(position{pattern: p})
	}
	for _, p := range s.byGlob {
		w.try(position{pattern: p})
	}
	*work += 1 + w.work + len(w.open)
	if s.loops && len(w.open) > 1 {
		*work += 8 * len(w.open)
		w.open = s.prune(w.open)
	}
	if w.best < 0 {
		return nil, w.open
	}
	return &s.rules[w.best], w.open
}

// stepper gathers the result of one step.
type stepper struct {
	set   *ruleSet
	name  string
	isDir bool
	best  int        // number of the last rule that matches, or -1
	open  []position // what is open below the entry
	work  int        // comparisons
}

// try advances over the entry if the component at the position matches it.
func (w *stepper) try(at position) {
	if w.set.patterns[at.pattern].components[at.next].match(w.name, &w.work) {
		w.advance(at)
	}
}

// advance notes that the component at the position matched the entry.
func (w *stepper) advance(at position) {
	p := &w.set.patterns[at.pattern]
	last := at.next == len(p.components)-1
	deep := p.components[at.next].loops()
	if last && (w.isDir || !w.set.rules[p.rule].dirOnly) {
		w.best = max(w.best, p.rule)
		if w.set.watch != nil {
			w.set.watch.saw(p.rule)
		}
	}
	if !w.isDir {
		return
	}
	if deep {
		w.open = append(w.open, at) // ** takes the next name as well
	}
	// Where ** follows, the component after it is open too: ** may stand for
	// nothing, unless it is the last, which stands for one name or more.
	for next := at.next + 1; next < len(p.components); next++ {
		w.open = append(w.open, position{at.pattern, next})
		if !p.components[next].loops() || next == len(p.components)-1 {
			break
		}
	}
}

// prune drops positions that are listed twice, and those of the same pattern
// that lie before an open **: whatever they would match, the ** matches by
// taking the names between. So a directory has fewer open positions than the
// patterns have components, however deep it lies.
func (s *ruleSet) prune(open []position) []position {
	slices.SortFunc(open, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.pattern, b.pattern), cmp.Compare(b.next, a.next))
	})
	kept := open[:0]
	for _, at := range open {
		if n := len(kept); n > 0 && kept[n-1].pattern == at.pattern {
			last := kept[n-1]
			if last == at || s.patterns[at.pattern].components[last.next].loops() {
				continue
			}
		}
		kept = append(kept, at)
	}
	return kept
}
