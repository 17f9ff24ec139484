package policy

import (
	"math"
	"slices"
	"strings"
)

// contains reports whether every entry that b matches is certain to be matched
// by a. False says nothing.
func (a *parsed) contains(b *parsed) bool {
	if a.dirOnly && !b.dirOnly {
		return false
	}
	for i := range b.alternatives {
		found := false
		for j := range a.alternatives {
			found = found || a.alternatives[j].contains(&b.alternatives[i])
		}
		if !found {
			return false
		}
	}
	return true
}

func (a *alternative) contains(b *alternative) bool {
	n, m := len(a.components), len(b.components)
	if a.all() {
		return true
	}
	if a.floating && a.last().loops() {
		// All below a run of names, which b may have anywhere but at its end.
		for from := 0; from+n <= m; from++ {
			if eachContains(a.components[:n-1], b.components[from:from+n-1], false) {
				return true
			}
		}
		return false
	}
	if a.floating {
		// It looks at the last names only, and those of b are known one by one.
		if n > m {
			return false
		}
		return eachContains(a.components, b.components[m-n:], false)
	}
	if b.floating {
		return false
	}
	if last := n - 1; a.components[last].loops() { // all below
		return m >= n && eachContains(a.components[:last], b.components[:last], true)
	}
	return n == m && eachContains(a.components, b.components, true)
}

// all reports whether every entry is matched, at any depth.
func (a *alternative) all() bool {
	return len(a.components) == 1 && (a.components[0].loops() || a.floating && a.components[0].kind == anyName)
}

// eachContains compares components in pairs. Where anchored, ** may stand for
// itself.
func eachContains(a, b []component, anchored bool) bool {
	for i := range a {
		if a[i].loops() || b[i].loops() {
			if !anchored || a[i].kind != b[i].kind {
				return false
			}
			continue
		}
		if !a[i].contains(&b[i]) {
			return false
		}
	}
	return true
}

// contains reports whether every name that b matches is certain to be matched.
func (c *component) contains(b *component) bool {
	work := 0
	switch {
	case c.kind == anyName:
		return true
	case b.kind == literal:
		return c.match(b.text, &work)
	case c.kind == prefix && b.kind == prefix:
		return strings.HasPrefix(b.text, c.text)
	case c.kind == suffix && b.kind == suffix:
		return strings.HasSuffix(b.text, c.text)
	case c.kind == glob && b.kind == glob:
		return sameTokens(c.tokens, b.tokens)
	}
	return false
}

func sameTokens(a, b []token) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// apart reports whether no entry is matched by both, as far as that is certain.
func (a *parsed) apart(b *parsed) bool {
	for i := range a.alternatives {
		for j := range b.alternatives {
			if !a.alternatives[i].apart(&b.alternatives[j]) {
				return false
			}
		}
	}
	return true
}

// apart compares names from the end, and from the root where both begin there, up to
// the first **. Of patterns without ** it compares the depths too.
func (a *alternative) apart(b *alternative) bool {
	n, m := len(a.components), len(b.components)
	for i := 1; i <= min(n, m); i++ {
		x, y := &a.components[n-i], &b.components[m-i]
		if x.loops() || y.loops() {
			break
		}
		if x.apart(y) {
			return true
		}
	}
	if !a.floating && !b.floating {
		for i := range min(n, m) {
			x, y := &a.components[i], &b.components[i]
			if x.loops() || y.loops() {
				break
			}
			if x.apart(y) {
				return true
			}
		}
	}
	// A ** in the middle may stand for nothing, so that one name less is the least.
	return a.deepest() < b.least() || b.deepest() < a.least()
}

// least and deepest are the depths at which there can be a match; 1 is the root's.
func (a *alternative) least() int {
	n := len(a.components)
	for i := range a.components[:n-1] {
		if a.components[i].loops() {
			n--
		}
	}
	return n
}

func (a *alternative) deepest() int {
	if a.floating || slices.ContainsFunc(a.components, component.loops) {
		return math.MaxInt
	}
	return len(a.components)
}

func (a *alternative) last() *component { return &a.components[len(a.components)-1] }

func (c *component) apart(b *component) bool {
	work := 0
	switch {
	case c.loops() || b.loops():
		return false
	case c.kind == literal:
		return !b.match(c.text, &work)
	case b.kind == literal:
		return !c.match(b.text, &work)
	case c.kind == prefix && b.kind == prefix:
		return !strings.HasPrefix(c.text, b.text) && !strings.HasPrefix(b.text, c.text)
	case c.kind == suffix && b.kind == suffix:
		return !strings.HasSuffix(c.text, b.text) && !strings.HasSuffix(b.text, c.text)
	}
	return false
}

// literalPath returns the one path that a pattern matches, or "".
func (a *parsed) literalPath() string {
	if len(a.alternatives) != 1 || a.alternatives[0].floating {
		return ""
	}
	var names []string
	for _, c := range a.alternatives[0].components {
		if c.kind != literal {
			return ""
		}
		names = append(names, c.text)
	}
	return strings.Join(names, "/")
}

// literalAncestors returns the directories that every match of the pattern is
// known to lie in, outermost first.
func (a *parsed) literalAncestors() []string {
	if len(a.alternatives) != 1 || a.alternatives[0].floating {
		return nil
	}
	var dirs, names []string
	all := a.alternatives[0].components
	for _, c := range all[:len(all)-1] {
		if c.kind != literal {
			break
		}
		names = append(names, c.text)
		dirs = append(dirs, strings.Join(names, "/"))
	}
	return dirs
}

// everything reports whether the pattern matches all that is in the root.
func (a *parsed) everything() bool {
	if a.dirOnly {
		return false
	}
	for i := range a.alternatives {
		alt := &a.alternatives[i]
		if len(alt.components) == 1 && (alt.components[0].kind == anyName || alt.components[0].loops()) {
			return true
		}
	}
	return false
}

// allFiles reports whether the pattern matches every file, at any depth.
func (a *parsed) allFiles() bool {
	for i := range a.alternatives {
		if !a.dirOnly && a.alternatives[i].all() {
			return true
		}
	}
	return false
}

// inside returns what matches all that lies in the directories that a pattern matches:
// directly, or with deep at any depth.
func (a *parsed) inside(deep bool) *parsed {
	in := parsed{rule: a.rule}
	in.dirOnly = false
	next := component{kind: anyName}
	if deep {
		next.kind = anyDepth
	}
	for _, alt := range a.alternatives {
		components := slices.Clone(alt.components)
		if !deep || !alt.last().loops() {
			components = append(components, next)
		}
		in.alternatives = append(in.alternatives, alternative{floating: alt.floating, components: components})
	}
	return &in
}
