package secrets

import (
	"cmp"
	"fmt"
	"io"
)

// MaxJSONDepth is how many arrays and objects may lie in one another, as encoding/json
// has it.
const MaxJSONDepth = 10_000

// A JSONError tells where text stops being the JSON that is wanted.
type JSONError struct {
	Off int64 // of the first byte that cannot be
	Why string
	// Document: a value stands there where one array is wanted, or behind that.
	Document bool
}

// Error tells what is wrong, and where.
func (e *JSONError) Error() string { return fmt.Sprintf("%s at byte %d", e.Why, e.Off) }

// A JSONCheck checks the syntax (RFC 8259) of JSON that comes in pieces: documents that
// stand one after the other, or one array. It takes what encoding/json takes, bytes in
// strings that are not UTF-8 and keys that are there twice included, and keeps nothing
// but what it is in. The zero value is ready for documents.
type JSONCheck struct {
	Array bool // all of it is to be one array

	off     int64 // bytes before the next piece
	state   jsonState
	inKey   bool // the string is an object's key
	depth   int
	objects [MaxJSONDepth/64 + 1]uint64 // by depth: it is an object, not an array
	rest    string                      // of true, false or null
	err     error
}

// jsonState is what comes next.
type jsonState uint8

const (
	jsonDocument jsonState = iota
	jsonNothing            // the array is over
	jsonValue
	jsonFirst    // a value, or the array's end
	jsonFirstKey // a key, or the object's end
	jsonKey
	jsonColon
	jsonNext // a comma, or the end of what the value is in
	jsonString
	jsonEscape
	jsonHex1 // four hex digits
	jsonHex2
	jsonHex3
	jsonHex4
	jsonLiteral
	jsonMinus // a digit
	jsonZero  // no digit, but a fraction or an exponent
	jsonInt
	jsonPoint // a digit
	jsonFraction
	jsonE // a sign or a digit
	jsonSign
	jsonExponent
)

// wants says what a state waits for.
var wants = [...]string{
	jsonDocument: "a value", jsonNothing: "nothing more", jsonValue: "a value", jsonFirst: "a value or ]",
	jsonFirstKey: "a key or }", jsonKey: "a key", jsonColon: "a colon", jsonNext: "a comma or the end of the array or object",
	jsonString: "the rest of a string", jsonEscape: "the rest of an escape", jsonHex1: "a hex digit", jsonHex2: "a hex digit",
	jsonHex3: "a hex digit", jsonHex4: "a hex digit", jsonLiteral: "the rest of true, false or null", jsonMinus: "a digit",
	jsonZero: "the end of a number", jsonInt: "the end of a number", jsonPoint: "a digit", jsonFraction: "a digit", jsonE: "an exponent",
	jsonSign: "a digit", jsonExponent: "a digit",
}

// plainInString are the bytes that stand for themselves in a string.
var plainInString = func() (in [256]bool) {
	for c := range in {
		in[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return in
}()

// Write takes the next piece. It fails with a [*JSONError], and then always.
func (c *JSONCheck) Write(p []byte) (int, error) {
	for i := 0; i < len(p) && c.err == nil; i++ {
		if c.state == jsonString {
			for i < len(p) && plainInString[p[i]] {
				i++
			}
			if i == len(p) {
				break
			}
		}
		if why := c.step(p[i]); why != "" {
			top := c.depth == 0 && (c.state == jsonDocument || c.state == jsonNothing)
			c.err = &JSONError{Off: c.off + int64(i), Why: why, Document: top && kindOfJSON(p[i]) != ""}
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	c.off += int64(len(p))
	return len(p), nil
}

// End ends the text. It fails with a [*JSONError] when something is missing.
func (c *JSONCheck) End() error {
	switch {
	case c.err != nil || c.state == jsonNothing, !c.Array && c.ended():
	case c.state == jsonDocument:
		c.err = &JSONError{Off: c.off, Why: "the end where an array is wanted"}
	default:
		c.err = &JSONError{Off: c.off, Why: "the end where " + wants[c.state] + " is wanted"}
	}
	return c.err
}

// ended reports whether documents can end here.
func (c *JSONCheck) ended() bool {
	switch c.state {
	case jsonZero, jsonInt, jsonFraction, jsonExponent:
		return c.depth == 0
	}
	return c.state == jsonDocument
}

// step takes one byte, and says why it cannot be.
func (c *JSONCheck) step(b byte) (why string) {
	switch c.state {
	case jsonString:
		switch {
		case b == '"' && c.inKey:
			c.inKey, c.state = false, jsonColon
		case b == '"':
			c.valueEnds()
		case b == '\\':
			c.state = jsonEscape
		case b < ' ':
			return fmt.Sprintf("control character %#02x in a string", b)
		}
		return ""
	case jsonEscape:
		switch b {
		case 'u':
			c.state = jsonHex1
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			c.state = jsonString
		default:
			return c.unexpected(b)
		}
		return ""
	case jsonHex1, jsonHex2, jsonHex3, jsonHex4:
		if !anyHex.in[b] {
			return c.unexpected(b)
		}
		if c.state++; c.state > jsonHex4 {
			c.state = jsonString
		}
		return ""
	case jsonLiteral:
		if b != c.rest[0] {
			return c.unexpected(b)
		}
		if c.rest = c.rest[1:]; c.rest == "" {
			c.valueEnds()
		}
		return ""
	case jsonMinus, jsonZero, jsonInt, jsonPoint, jsonFraction, jsonE, jsonSign, jsonExponent:
		return c.number(b)
	}
	switch b {
	case ' ', '\t', '\r', '\n':
		return ""
	}
	return c.structure(b)
}

// structure takes a byte between strings, numbers and literals that is no white space.
func (c *JSONCheck) structure(b byte) (why string) {
	switch c.state {
	case jsonDocument, jsonValue, jsonFirst:
		if b == ']' && c.state == jsonFirst {
			c.close()
			return ""
		}
		return c.value(b)
	case jsonFirstKey, jsonKey:
		if b == '}' && c.state == jsonFirstKey {
			c.close()
			return ""
		}
		if b == '"' {
			c.inKey, c.state = true, jsonString
			return ""
		}
	case jsonColon:
		if b == ':' {
			c.state = jsonValue
			return ""
		}
	case jsonNext:
		object := c.inObject()
		switch {
		case b == ',' && object:
			c.state = jsonKey
			return ""
		case b == ',':
			c.state = jsonValue
			return ""
		case b == '}' && object, b == ']' && !object:
			c.close()
			return ""
		}
	}
	return c.unexpected(b)
}

// value begins a value.
func (c *JSONCheck) value(b byte) (why string) {
	if c.Array && c.depth == 0 && b != '[' {
		return cmp.Or(kindOfJSON(b), byteName(b)) + " where an array is wanted"
	}
	switch {
	case b == '{' || b == '[':
		if c.depth == MaxJSONDepth {
			return fmt.Sprintf("more than %d arrays and objects in one another", MaxJSONDepth)
		}
		bit := uint64(1) << (c.depth % 64)
		if c.objects[c.depth/64] &^= bit; b == '{' {
			c.objects[c.depth/64] |= bit
		}
		c.depth++
		if c.state = jsonFirst; b == '{' {
			c.state = jsonFirstKey
		}
	case b == '"':
		c.state = jsonString
	case b == '-':
		c.state = jsonMinus
	case b == '0':
		c.state = jsonZero
	case digits.in[b]:
		c.state = jsonInt
	case b == 't':
		c.state, c.rest = jsonLiteral, "rue"
	case b == 'f':
		c.state, c.rest = jsonLiteral, "alse"
	case b == 'n':
		c.state, c.rest = jsonLiteral, "ull"
	default:
		return c.unexpected(b)
	}
	return ""
}

// number takes a byte of a number, or the one behind it.
func (c *JSONCheck) number(b byte) (why string) {
	digit := digits.in[b]
	switch c.state {
	case jsonMinus:
		if digit {
			if c.state = jsonInt; b == '0' {
				c.state = jsonZero
			}
			return ""
		}
		return c.unexpected(b)
	case jsonPoint, jsonSign:
		if digit {
			c.state++
			return ""
		}
		return c.unexpected(b)
	case jsonE:
		switch {
		case b == '+' || b == '-':
			c.state = jsonSign
		case digit:
			c.state = jsonExponent
		default:
			return c.unexpected(b)
		}
		return ""
	}
	switch {
	case digit && c.state != jsonZero:
		return ""
	case b == '.' && (c.state == jsonZero || c.state == jsonInt):
		c.state = jsonPoint
		return ""
	case (b == 'e' || b == 'E') && c.state != jsonExponent:
		c.state = jsonE
		return ""
	}
	c.valueEnds()
	return c.step(b)
}

func (c *JSONCheck) inObject() bool { return c.objects[(c.depth-1)/64]>>((c.depth-1)%64)&1 == 1 }

// close ends an array or an object.
func (c *JSONCheck) close() {
	c.depth--
	c.valueEnds()
}

func (c *JSONCheck) valueEnds() {
	switch {
	case c.depth > 0:
		c.state = jsonNext
	case c.Array:
		c.state = jsonNothing
	default:
		c.state = jsonDocument
	}
}

// unexpected says what stands where something else is wanted. No more than a byte of the
// text is in it.
func (c *JSONCheck) unexpected(b byte) string {
	if c.state == jsonNothing {
		return cmp.Or(kindOfJSON(b), byteName(b)) + " behind the end of the array"
	}
	return byteName(b) + " where " + wants[c.state] + " is wanted"
}

// kindOfJSON is the value that begins with a byte; "": none does.
func kindOfJSON(b byte) string {
	switch {
	case b == '{':
		return "an object"
	case b == '[':
		return "an array"
	case b == '"':
		return "a string"
	case b == '-' || digits.in[b]:
		return "a number"
	case b == 't', b == 'f', b == 'n':
		return "true, false or null"
	}
	return ""
}

func byteName(b byte) string {
	if ' ' < b && b <= '~' {
		return string([]byte{'\'', b, '\''})
	}
	return fmt.Sprintf("byte %#02x", b)
}

var _ io.Writer = (*JSONCheck)(nil)
