package secrets

import (
	"bytes"
	"fmt"
)

// Lines returns the values that a file declares, one a line. A line's end, with a
// carriage return or not, is not part of its value; empty lines declare nothing.
func Lines(data []byte, source string) []Value {
	var values []Value
	for number := 1; len(data) > 0; number++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 {
			values = append(values, Value{Bytes: bytes.Clone(line), Source: fmt.Sprintf("%s:%d", source, number)})
		}
	}
	return values
}
