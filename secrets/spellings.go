package secrets

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"unicode/utf8"
)

// spellings returns a value and the forms in which text formats write it: without the
// white space around it; in a quoted path; escaped in a JSON string, once or in a
// document within a document; escaped in a URL; in base64, wherever it begins in what was
// encoded; with the other line ends; and of a key in several lines each line, which may
// stand indented.
func spellings(value []byte) [][]byte {
	all := [][]byte{value}
	if bare := bytes.TrimSpace(value); len(bare) < len(value) && len(bare) >= MinLength {
		all = append(all, spellings(bare)...)
	}
	add := func(forms ...[]byte) {
		for _, f := range forms {
			if len(f) >= MinLength && !bytes.Equal(f, value) {
				all = append(all, f)
			}
		}
	}
	unix := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
	add(unix, bytes.ReplaceAll(unix, []byte("\n"), []byte("\r\n")))
	for _, escape := range []func([]byte) []byte{jsonPlain, jsonASCII, jsonHTML, jsonSlashes} {
		once := escape(value)
		add(once, escape(once))
	}
	add(octal(value))
	add([]byte(url.QueryEscape(string(value))), []byte(url.PathEscape(string(value))))
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

// jsonPlain escapes what a JSON string cannot have.
func jsonPlain(b []byte) []byte { return escaped(b, "", false) }

// jsonASCII escapes all that is not ASCII, too, as Python does.
func jsonASCII(b []byte) []byte { return escaped(b, "", true) }

// jsonHTML escapes what means something in HTML, too, as Go does.
func jsonHTML(b []byte) []byte { return escaped(b, "<>&", false) }

// jsonSlashes escapes slashes, too, as PHP does.
func jsonSlashes(b []byte) []byte {
	return bytes.ReplaceAll(jsonPlain(b), []byte("/"), []byte(`\/`))
}

// escaped writes the inside of a JSON string. Bytes that are not UTF-8 stay.
func escaped(b []byte, more string, ascii bool) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch short := bytes.IndexByte([]byte("\"\\\b\f\n\r\t"), b[0]); {
		case short >= 0:
			out = append(out, '\\', "\"\\bfnrt"[short])
		case r < ' ', r == 0x7f && ascii, r < utf8.RuneSelf && bytes.IndexByte([]byte(more), b[0]) >= 0:
			out = fmt.Appendf(out, `\u%04x`, r)
		case ascii && r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case ascii && r >= utf8.RuneSelf && n > 1:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}
