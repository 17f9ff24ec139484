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
	return `"` + escape(path, '"') + `"`
}

// QuoteShell returns a path as a word of a shell's command that a message
// suggests.
func QuoteShell(path string) string {
	const special = " !#$&'()*;<>?[]^`{|}~"
	switch {
	case odd(path) && path != "":
		return "$'" + escape(path, '\'') + "'"
	case path == "" || strings.ContainsAny(path, special):
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// escape writes C's escapes for what cannot be printed, for backslashes, and for
// the quote that goes around it.
func escape(path string, quote byte) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch c := path[i]; {
		case c == quote || c == '\\':
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
	return b.String()
}

// odd reports whether a path needs quotes. An empty one does: it would vanish.
func odd(path string) bool {
	if path == "" || !utf8.ValidString(path) {
		return true
	}
	return strings.ContainsFunc(path, func(r rune) bool { return r == '"' || r == '\\' || !unicode.IsPrint(r) })
}
