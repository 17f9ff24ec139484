package policy

import "strings"

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

// apart reports whether no entry is matched by both, as far as that is certain:
// the last names that they want exclude each other.
func (a *parsed) apart(b *parsed) bool {
	for i := range a.alternatives {
		for j := range b.alternatives {
			x, y := a.alternatives[i].last(), b.alternatives[j].last()
			if !x.apart(y) {
				return false
			}
		}
	}
	return true
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
