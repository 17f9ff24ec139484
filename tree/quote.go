package tree

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote returns a path as messages and tables show it: as it is, or, when it
// holds control characters, quotes, backslashes or bytes that are not UTF-8, in
// double quotes with C's escapes, the way git does with core.quotePath off.
func Quote(path string) string {
	if !odd(path) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case (r == utf8.RuneError && n == 1) || !unicode.IsPrint(r):
			for _, c := range []byte(path[i : i+n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// odd reports whether a path needs quotes. An empty one does: it would vanish.
func odd(path string) bool {
	if path == "" || !utf8.ValidString(path) {
		return true
	}
	return strings.ContainsFunc(path, func(r rune) bool { return r == '"' || r == '\\' || !unicode.IsPrint(r) })
}
