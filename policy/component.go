package policy

import "strings"

// kind tells how a component is matched.
type kind uint8

const (
	literal  kind = iota // the name is text
	prefix               // the name begins with text: x*
	suffix               // the name ends with text: *x
	anyName              // any one name: *
	anyDepth             // any names, in a row: **
	glob                 // tokens
)

// component is what a pattern has between two slashes. Except for anyDepth it
// matches one name. It matches bytes, like git's wildmatch.c.
type component struct {
	kind   kind
	text   string
	tokens []token
	least  int // tokens that take a byte
}

// token matches one byte, or with star any number of them.
type token struct {
	star bool
	set  byteSet
}

// flaw refuses components that no entry's name can match.
func (c component) flaw() *flaw {
	if c.kind == literal && (c.text == "." || c.text == "..") {
		return flawDots
	}
	return nil
}

// loops reports whether the component may take more than one name.
func (c component) loops() bool { return c.kind == anyDepth }

// match adds to work how many comparisons it took.
func (c *component) match(name string, work *int) bool {
	*work++
	switch c.kind {
	case literal:
		return name == c.text
	case prefix:
		return strings.HasPrefix(name, c.text)
	case suffix:
		return strings.HasSuffix(name, c.text)
	case anyName, anyDepth:
		return true
	default:
		return len(name) >= c.least && matchTokens(c.tokens, name, work)
	}
}

// matchTokens goes back to the last star only: an earlier one can take nothing
// that the last one could not, so the time is at most the product of the
// lengths, whatever a hostile pattern looks like.
func matchTokens(tokens []token, name string, work *int) bool {
	t, n := 0, 0
	star, mark := -1, 0
	steps := 0
	defer func() { *work += steps }()
	for n < len(name) {
		steps++
		switch {
		case t < len(tokens) && tokens[t].star:
			star, mark = t, n
			t++
		case t < len(tokens) && tokens[t].set.has(name[n]):
			t++
			n++
		case star >= 0:
			mark++
			t, n = star+1, mark
		default:
			return false
		}
	}
	for t < len(tokens) && tokens[t].star {
		t++
	}
	return t == len(tokens)
}

// anyDepthText reports whether a component is **.
func anyDepthText(text string) bool { return len(text) > 1 && strings.Trim(text, "*") == "" }

// parseComponent compiles text, which has no slash but in sets and has passed check.
func parseComponent(text string) component {
	if anyDepthText(text) {
		return component{kind: anyDepth}
	}
	var tokens []token
	var plain []byte    // the bytes of the literal tokens
	stars, free := 0, 0 // free: tokens that take any byte
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '*':
			if n := len(tokens); n == 0 || !tokens[n-1].star {
				tokens = append(tokens, token{star: true})
				stars++
			}
		case '?':
			tokens = append(tokens, token{set: anyByte})
			free++
		case '[':
			set, end, _ := parseSet(text, i)
			tokens = append(tokens, token{set: set})
			if b, ok := set.only(); ok { // [*] is the byte itself
				plain = append(plain, b)
			} else if set == anyByte {
				free++
			}
			i = end - 1
		default:
			if text[i] == '\\' {
				i++
			}
			var set byteSet
			set.add(text[i])
			tokens = append(tokens, token{set: set})
			plain = append(plain, text[i])
		}
	}
	c := component{kind: glob, text: string(plain), tokens: tokens, least: len(tokens) - stars}
	if stars > 0 && free <= 1 && stars+free == len(tokens) {
		return component{kind: anyName} // ?* is *, since a name has a byte
	}
	switch last := len(tokens) - 1; {
	case len(plain)+stars < len(tokens) || stars > 1:
		return c // with ?, a set, or stars in several places
	case stars == 0:
		c.kind = literal
	case tokens[last].star:
		c.kind = prefix
	case tokens[0].star:
		c.kind = suffix
	default:
		return c
	}
	c.tokens = nil
	return c
}
