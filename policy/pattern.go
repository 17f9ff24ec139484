package policy

import (
	"fmt"
	"strings"
)

// PatternError says why a rule was refused. Its text has a second line with a
// hint.
type PatternError struct {
	// Rule is the rule as it was given.
	Rule Rule
	// Problem says what is wrong, as the rest of a sentence after the pattern.
	Problem string
	// Hint says what to write instead.
	Hint string
}

// Error returns the pattern, its source, the problem and the hint.
func (e *PatternError) Error() string {
	return fmt.Sprintf("compile pattern %q from %s: %s\nhint: %s", e.Rule.Pattern, e.Rule.Source, e.Problem, e.Hint)
}

// flaw is the part of a PatternError that the checks below find.
type flaw struct{ problem, hint string }

func (f *flaw) Error() string { return f.problem }

var (
	flawEmpty     = &flaw{"an empty pattern matches nothing", "leave the rule out, or write a name"}
	flawBang      = &flaw{`"!" alone matches nothing`, `write the pattern to lift behind the "!", or \! for a name that begins with it`}
	flawRoot      = &flaw{"the root itself cannot be matched", "write /* for all that is in the root"}
	flawComment   = &flaw{`"#" begins a comment`, `write \# for a name that begins with it`}
	flawNUL       = &flaw{"no name has a NUL byte", "take it out"}
	flawNewline   = &flaw{"a pattern ends at the end of its line", "write each pattern as a rule of its own, and ? for a newline in a name"}
	flawSlashes   = &flaw{"there is nothing between two slashes", "write one slash, or /**/ for any number of folders"}
	flawDots      = &flaw{`no entry is called "." or ".."`, "write the path from the workspace's root, such as /build/out"}
	flawBackslash = &flaw{"the backslash at the end escapes nothing", `write \\ for a backslash in a name, and / between folders`}
	flawEscRoot   = &flaw{"no name begins with a slash", `write / without the backslash for the folder of the rules`}
	flawUnclosed  = &flaw{`"[" is not closed`, `close the set with ], or write \[ for a bracket in a name`}
	flawSetEmpty  = &flaw{"the set matches nothing that a name can have", "write / outside of the brackets: a set never matches it"}
	flawClass     = &flaw{"unknown class of characters", "write one of alnum, alpha, blank, cntrl, digit, graph, lower, print, punct, space, upper, xdigit, as in [[:digit:]]"}
)

// parsed is a rule taken apart.
type parsed struct {
	rule
	alternatives []alternative
}

// alternative is one list of components and where it may begin.
type alternative struct {
	floating   bool // at any depth, not only where the rules stand
	components []component
}

// parse takes a rule apart, or returns a *PatternError.
func parse(r Rule) (parsed, error) {
	p := parsed{rule: rule{Rule: r}}
	if err := p.parse(); err != nil {
		return p, &PatternError{Rule: r, Problem: err.problem, Hint: err.hint}
	}
	return p, nil
}

func (p *parsed) parse() *flaw {
	text := trimSpaces(p.Pattern)
	switch {
	case text == "":
		return flawEmpty
	case strings.IndexByte(text, 0) >= 0:
		return flawNUL
	case strings.Contains(text, "\n"):
		return flawNewline
	case text[0] == '#':
		return flawComment
	}
	text, p.negated = strings.CutPrefix(text, "!")
	if text == "" {
		return flawBang
	}
	text, p.dirOnly = strings.CutSuffix(text, "/")
	if text == "" {
		return flawRoot
	}
	if err := check(text); err != nil {
		return err
	}

	// As in git, a slash anywhere binds the pattern to where the rules stand, even
	// one in a set, which matches no slash.
	if !strings.Contains(text, "/") {
		c := parseComponent(text)
		if c.kind == anyDepth {
			c = component{kind: anyName} // ** without a slash is any name
		}
		p.alternatives = []alternative{{floating: true, components: []component{c}}}
		return c.flaw()
	}
	var first *flaw
	for _, text := range spellings(strings.TrimPrefix(text, "/")) {
		alt, err := parsePath(text)
		if err == nil {
			p.alternatives = append(p.alternatives, alt)
		} else if first == nil {
			first = err
		}
	}
	if len(p.alternatives) > 0 {
		return nil // foo**//bar is foo/bar still
	}
	return first
}

// trimSpaces drops trailing spaces but for one behind a backslash.
func trimSpaces(s string) string {
	end := 0 // end of what stays
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			end = i + 1
		} else if s[i] != ' ' {
			end = i + 1
		}
	}
	return s[:end]
}

// check refuses escapes and sets that cannot match anything.
func check(text string) *flaw {
	if strings.HasPrefix(strings.TrimPrefix(text, "/"), `\/`) {
		return flawEscRoot
	}
	for i := 0; i < len(text); {
		end, err := skip(text, i)
		if err != nil {
			return err
		}
		i = end
	}
	return nil
}

// skip returns the index behind what stands at text[i]: a set, a byte with its escape,
// or a byte.
func skip(text string, i int) (end int, err *flaw) {
	switch text[i] {
	case '\\':
		if i+1 == len(text) {
			return i, flawBackslash
		}
		return i + 2, nil
	case '[':
		_, end, err = parseSet(text, i)
		return end, err
	}
	return i + 1, nil
}

// cutSlash cuts text, which has passed check, at its first slash that is in no set.
func cutSlash(text string) (part, rest string, slash string) {
	for i := 0; i < len(text); {
		switch {
		case text[i] == '/':
			return text[:i], text[i+1:], "/"
		case strings.HasPrefix(text[i:], `\/`):
			return text[:i], text[i+2:], `\/`
		}
		i, _ = skip(text, i)
	}
	return text, "", ""
}

// spellings returns the patterns that one with slashes stands for: itself,
// but for a peculiarity of git. It strips the pattern's literal beginning
// before it looks for **, so that in foo**/bar the stars stand first and count
// as **/ (measured: foo**/bar matches foobar, foox/bar and foo/a/b/bar, while
// the manual says "regular asterisks"). Stars further on, as in f?o**/bar, are
// regular ones.
func spellings(text string) []string {
	start := strings.IndexAny(text, `*?[\`)
	if start < 0 {
		return []string{text}
	}
	head, rest, ok := text[:start], plainSlashes(text[start:]), false
	text = head + rest
	if head == "" || strings.HasSuffix(head, "/") {
		return []string{text}
	}
	for more := true; more; { // foo**/**/bar says no more than foo**/bar
		if rest, ok = cutStars(rest); !ok {
			return []string{text}
		}
		_, more = cutStars(strings.TrimPrefix(rest, "/"))
		if more {
			rest = rest[1:]
		}
	}
	if rest == "" {
		return []string{head + "*", head + "*/**"}
	}
	return []string{head + rest[1:], head + "*/**" + rest}
}

// plainSlashes takes the backslashes from slashes. To git they mean the same, but for
// **\/ at the beginning or behind a slash: it stands for one name or more, not for none.
func plainSlashes(text string) string {
	if !strings.Contains(text, `\/`) {
		return text
	}
	var b strings.Builder
	for slash := "/"; slash != ""; {
		var part string
		part, text, slash = cutSlash(text)
		if slash == `\/` && anyDepthText(part) {
			part = "*/**"
		}
		b.WriteString(part)
		if slash != "" {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// cutStars cuts a component that is ** off the beginning of text and returns
// what follows: nothing, or a slash and more.
func cutStars(text string) (rest string, ok bool) {
	rest = strings.TrimLeft(text, "*")
	ok = len(text)-len(rest) >= 2 && (rest == "" || rest[0] == '/')
	return rest, ok
}

// parsePath cuts a pattern with slashes into components.
func parsePath(text string) (alternative, *flaw) {
	var alt alternative
	for slash := "/"; slash != ""; {
		var part string
		if part, text, slash = cutSlash(text); part == "" {
			return alt, flawSlashes
		}
		c := parseComponent(part)
		if err := c.flaw(); err != nil {
			return alt, err
		}
		n := len(alt.components)
		if c.kind == anyDepth && n > 0 && alt.components[n-1].kind == anyDepth {
			continue // **/** says no more than **
		}
		alt.components = append(alt.components, c)
	}
	// A first **/ is a pattern that may begin anywhere.
	if alt.components[0].kind == anyDepth && len(alt.components) > 1 {
		alt.floating = true
		alt.components = alt.components[1:]
	}
	return alt, nil
}
