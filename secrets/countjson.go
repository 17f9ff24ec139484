package secrets

import (
	"bytes"
	"encoding/json"
)

// CountJSON returns how many ranges declared values take in JSON documents that stand
// one after the other: in their strings and keys as these are meant, or in the bytes,
// whichever are more. What is no JSON counts as bytes.
func (s *Set) CountJSON(data []byte) int {
	if s == nil {
		return 0
	}
	meant := 0
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			// The end, or the rest is no JSON.
			rest := data[min(dec.InputOffset(), int64(len(data))):]
			return max(meant+s.Count(rest), s.Count(data))
		}
		switch v := token.(type) {
		case string:
			meant += s.Count([]byte(v))
		case json.Number:
			meant += s.Count([]byte(v))
		}
	}
}
