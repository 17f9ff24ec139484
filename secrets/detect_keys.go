package secrets

import (
	"bytes"
	"encoding/base64"
)

// Private keys and some other secrets have no run for sure. They are found by a few
// bytes that are rare elsewhere.

var (
	keyMark   = []byte("VATE KEY")
	keyBegin  = []byte("-----BEGIN ")
	valueMark = []byte("Key=")
	entraMark = []byte("~")
)

// keyHeaderMax is how long the line is at most that a private key begins with.
const keyHeaderMax = 48

// A mark is bytes to search for. token returns where the secret begins that has the
// mark at an offset, and its length; 0 when there is none.
type mark struct {
	bytes []byte
	kind  string
	token func(s *Scanner, buf []byte, at int) (begin, n int)
}

var marks = [...]mark{
	{keyMark, "private-key", privateKey},
	{valueMark, "azure-shared-key", azureSharedKey},
	{entraMark, "azure-client-secret", entraSecret},
}

// next finds the first secret with the mark that begins in buf[from:upto].
func (m *mark) next(s *Scanner, buf []byte, from, upto int) (at, n int) {
	end := min(len(buf), upto+maxLead)
	for i := from; i < end; {
		j := bytes.Index(buf[i:end], m.bytes)
		if j < 0 {
			return 0, 0
		}
		if at, n = m.token(s, buf, i+j); n > 0 && at >= from {
			if at >= upto {
				return 0, 0
			}
			return at, n
		}
		i += j + 1
	}
	return 0, 0
}

// privateKeyHeader finds the line that a private key begins with: where it is and
// where its last dash is behind.
func privateKeyHeader(text []byte) (begin, end int) {
	at := bytes.Index(text, keyMark)
	if at < 0 {
		return -1, 0
	}
	return headerAround(text, at)
}

// headerAround is [privateKeyHeader] for [keyMark] at an offset.
func headerAround(text []byte, at int) (begin, end int) {
	from := max(0, at-keyHeaderMax)
	begin = bytes.LastIndex(text[from:at], keyBegin)
	if begin < 0 || !bytes.HasSuffix(text[from:at], []byte("PRI")) {
		return -1, 0
	}
	begin += from
	for _, c := range text[begin+len(keyBegin) : at] {
		if !upper.in[c] && c != ' ' {
			return -1, 0
		}
	}
	end = at + len(keyMark)
	end += len(text[end:]) - len(bytes.TrimPrefix(text[end:], []byte(" BLOCK")))
	if !bytes.HasPrefix(text[end:], []byte("-----")) {
		return -1, 0
	}
	return begin, end + 5
}

// privateKey finds the private key that has [keyMark] at an offset. The header alone is
// none: there must be base64 behind it.
func privateKey(_ *Scanner, buf []byte, at int) (begin, n int) {
	begin, end := headerAround(buf, at)
	if begin < 0 {
		return 0, 0
	}
	if n = keyMaterial(buf[end:min(len(buf), begin+ScanAhead)]); n == 0 {
		return 0, 0
	}
	return begin, end + n - begin
}

// keyMaterial returns how much of b a key's first lines of base64 take, behind headers
// such as "Proc-Type: 4,ENCRYPTED"; 0 when too few are there before anything else.
func keyMaterial(b []byte) int {
	const shortLine = 32
	for at := 0; at < len(b); {
		line := at + gapLength(b[at:])
		n := base64Length(b[line:])
		if n >= shortLine {
			return keyLines(b, line)
		}
		if n == 0 {
			return 0
		}
		// A header: a word, a colon, and what it says to the line's end.
		rest := b[line:min(len(b), line+200)]
		colon := bytes.IndexByte(rest, ':')
		if colon <= 0 || colon > 20 {
			return 0
		}
		for _, c := range rest[:colon] {
			if !alnum.in[c] && c != '-' {
				return 0
			}
		}
		stop := bytes.IndexAny(rest, "\n\\")
		if stop < 0 {
			return 0
		}
		at = line + stop
	}
	return 0
}

// keyLines returns where the lines of base64 that begin at an offset have as much as a
// key has at least, or as b can hold; 0 when they end before.
func keyLines(b []byte, line int) int {
	n := base64Length(b[line:])
	first := b[line : line+min(n, 64)]
	if !isKeyLine(first) {
		return 0
	}
	const most = 700 // fits into ScanAhead with indentation
	for have, want := 0, min(most, keySize(first)); ; {
		have += n
		line += n
		if have >= want {
			return line
		}
		if line += gapLength(b[line:]); line == len(b) && have >= otherKeySize {
			return line // b ends within a key
		}
		if n = base64Length(b[line:]); n == 0 {
			return 0
		}
	}
}

// otherKeySize is how many bytes of base64 the shortest key has that is not DER: an
// encrypted EC key.
const otherKeySize = 160

// keySize is how many bytes of base64 a key has at least that begins so: DER says it.
func keySize(first []byte) int {
	var der [3]byte
	if _, err := base64.StdEncoding.Decode(der[:], first[:4]); err != nil || der[0] != 0x30 {
		return otherKeySize
	}
	switch size := int(der[1]); size {
	case 0x81:
		return (3 + int(der[2])) * 4 / 3
	case 0x82:
		return (4 + int(der[2])<<8) * 4 / 3
	default:
		return (2 + size) * 4 / 3
	}
}

// base64Length is how many bytes at b's beginning are of base64.
func base64Length(b []byte) int {
	n := 0
	for n < len(b) && base64s.in[b[n]] {
		n++
	}
	return n
}

// isKeyLine tells base64 from words. A key has many zero bytes, so that much of it may
// be alike.
func isKeyLine(b []byte) bool {
	return distinct(b) >= 12 && changes(b) >= len(b)/8 && !containsFold(b, []byte("xxxxx")) && !containsFold(b, []byte("example"))
}

// gapLength is how much of b can stand between two lines of a key: its line's end, also
// as an escape, indentation, quotes, and how source code goes on with a string or a
// comment.
func gapLength(b []byte) int {
	const most = 64
	n := 0
	for n < len(b) && n < most {
		switch c := b[n]; {
		case c == '\\' && n+1 < len(b) && bytes.IndexByte([]byte("nrt"), b[n+1]) >= 0:
			n += 2
		case bytes.IndexByte([]byte(" \t\r\n\\\"'`+,#*>|;()"), c) >= 0:
			n++
		case c == '/' && n+1 < len(b) && b[n+1] == '/':
			n += 2
		default:
			return n
		}
	}
	return n
}

// emulatorKey begins the key of every storage emulator: no secret.
var emulatorKey = []byte("Eby8vdM02xNOcqFl")

// azureSharedKey: the name of the value decides how many bytes it has in base64.
func azureSharedKey(_ *Scanner, buf []byte, at int) (begin, n int) {
	for _, k := range []struct {
		name   string
		length int
		tail   string
	}{{"AccountKey=", 86, "=="}, {"SharedAccessKey=", 43, "="}} {
		begin = at + len(valueMark) - len(k.name)
		if begin < 0 || !bytes.HasPrefix(buf[begin:], []byte(k.name)) {
			continue
		}
		value := buf[at+len(valueMark):]
		m, body, of := match(value, shape(exactly(&base64s, k.length), lit(k.tail)), false)
		if m == 0 || isPlaceholder(value[:m], body, of) || bytes.HasPrefix(value, emulatorKey) {
			return 0, 0
		}
		return begin, len(k.name) + m
	}
	return 0, 0
}

// entraSecret: three bytes and a digit before the mark, 31 to 34 behind it.
func entraSecret(s *Scanner, buf []byte, at int) (begin, n int) {
	if begin = at - 5; begin < 0 || buf[at-1] != 'Q' || !digits.in[buf[at-2]] {
		return 0, 0
	}
	if entra.in[s.before(buf, begin, 1)] && !s.canBegin(buf, begin) {
		return 0, 0
	}
	m, body, of := match(buf[begin:min(len(buf), begin+ScanAhead)], shape(exactly(&entra, 4), lit("Q~"), some(&entra, 31, 34)), false)
	if m == 0 || isPlaceholder(buf[begin:begin+m], body, of) {
		return 0, 0
	}
	return begin, m
}

var entra = newClass("azAZ09", "_.~-").asMixed()
