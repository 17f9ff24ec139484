package secrets

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// spellings returns a value and the forms in which text formats write it: without the
// white space around it; in a quoted path; escaped in a JSON string, once or in a
// document within a document; escaped in a URL; in base64, wherever it begins in what was
// encoded; with the other line ends; and of a key in several lines each line, which may
// stand indented.
func spellings(value []byte) [][]byte {
	all, known := [][]byte{value}, map[string]bool{string(value): true}
	add := func(forms ...[]byte) {
		for _, f := range forms {
			if len(f) >= MinLength && !known[string(f)] {
				known[string(f)] = true
				all = append(all, f)
			}
		}
	}
	if bare := bytes.TrimSpace(value); len(bare) < len(value) && len(bare) >= MinLength {
		add(spellings(bare)...)
	}
	unix := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
	add(unix, bytes.ReplaceAll(unix, []byte("\n"), []byte("\r\n")))
	if !isPlain(value) { // what is, no format writes otherwise
		for _, once := range jsonForms(value) {
			add(once)
			add(jsonForms(once)...)
		}
		add(octal(value))
		add(urlForms(value)...)
	}
	for shift := range 3 {
		add(base64Core(base64.RawStdEncoding, value, shift), base64Core(base64.RawURLEncoding, value, shift))
	}
	if lines := bytes.Split(unix, []byte("\n")); len(lines) > 1 {
		for _, line := range lines {
			if len(line) >= keyLine && isBase64(line) {
				add(line)
			}
		}
	}
	return all
}

// base64Core encodes a value that stands behind shift other bytes, and leaves out the
// characters that depend on what is around it.
func base64Core(enc *base64.Encoding, value []byte, shift int) []byte {
	text := enc.AppendEncode(nil, append(make([]byte, shift), value...))
	from := (8*shift + 5) / 6
	return text[from : 8*(shift+len(value))/6]
}

// keyLine is how many characters a line of a key has that is looked for by itself. Text
// that others have, too, has no such lines.
const keyLine = 32

func isBase64(line []byte) bool {
	for _, c := range bytes.TrimRight(line, "=") {
		if !isWord(c) && c != '+' && c != '/' {
			return false
		}
	}
	return true
}

// isPlain reports whether all of a value is kept by every encoder.
func isPlain(value []byte) bool {
	for _, c := range value {
		if !isWord(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// octal escapes as C and git do.
func octal(b []byte) []byte {
	var out []byte
	for _, c := range b {
		if i := bytes.IndexByte([]byte("\"\\\a\b\f\n\r\t\v"), c); i >= 0 {
			out = append(out, '\\', "\"\\abfnrtv"[i])
		} else if c < ' ' || c >= 0x7f {
			out = fmt.Appendf(out, "\\%03o", c)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// jsonForms returns how programs write a value in a JSON string: what JSON does not allow
// is escaped, and besides what means something in HTML (Go), slashes (PHP), what is not
// ASCII (Python, PHP), with small or capital hex digits.
func jsonForms(b []byte) [][]byte {
	var forms [][]byte
	for _, html := range []bool{false, true} {
		for _, slashes := range []bool{false, true} {
			for _, format := range []string{"", `\u%04x`, `\u%04X`} {
				forms = append(forms, escaped(b, html, slashes, format))
			}
		}
	}
	return forms
}

// escaped writes the inside of a JSON string. Bytes that are not UTF-8 stay. What is not
// ASCII is written in a format, if there is one.
func escaped(b []byte, html, slashes bool, format string) []byte {
	out := make([]byte, 0, len(b))
	control := format
	if control == "" {
		control = `\u%04x`
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch short := bytes.IndexByte([]byte("\"\\\b\f\n\r\t"), b[0]); {
		case short >= 0:
			out = append(out, '\\', "\"\\bfnrt"[short])
		case r < ' ', r == 0x7f && format != "", html && (r == '<' || r == '>' || r == '&'):
			out = fmt.Appendf(out, control, r)
		case slashes && r == '/':
			out = append(out, `\/`...)
		case format != "" && r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(fmt.Appendf(out, format, high), format, low)
		case format != "" && r >= utf8.RuneSelf && n > 1:
			out = fmt.Appendf(out, format, r)
		default:
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

// Bytes that encoders of URLs keep, beside letters and digits.
var urlKept = []string{
	"-_.~",                 // RFC 3986; Go's queries
	"-_.~/",                // Python's quote
	"-_.!~*'()",            // encodeURIComponent
	"-_.*",                 // forms
	"-_.",                  // PHP
	"-_.~$&+:=@",           // a part of a path in Go
	"-_.~$&+,/:;=@",        // Go's paths
	"-_.!~*'();/?:@&=+$,#", // encodeURI
}

// urlForms returns how programs escape a value in a URL.
func urlForms(b []byte) [][]byte {
	var forms [][]byte
	for _, kept := range urlKept {
		for _, format := range []string{"%%%02X", "%%%02x"} {
			for _, space := range []string{"%20", "+"} {
				var out []byte
				for _, c := range b {
					switch {
					case c == ' ':
						out = append(out, space...)
					case isWord(c) || bytes.IndexByte([]byte(kept), c) >= 0:
						out = append(out, c)
					default:
						out = fmt.Appendf(out, format, c)
					}
				}
				forms = append(forms, out)
			}
		}
	}
	return forms
}
