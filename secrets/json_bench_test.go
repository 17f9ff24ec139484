package secrets_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/snapfs/snapfs/secrets"
)

// messages is a conversation about source code.
func messages(b *testing.B) []byte {
	b.Helper()
	var list []map[string]string
	for text := sourceText(b); len(text) > 0; {
		n := min(len(text), 4000)
		list = append(list, map[string]string{"role": "user", "content": string(text[:n])})
		text = text[n:]
	}
	data, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkJSONCheck(b *testing.B) {
	data := messages(b)
	b.Run("check", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			c := secrets.JSONCheck{Array: true}
			if _, err := c.Write(data); err != nil || c.End() != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json.Valid", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if !json.Valid(data) {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("json.Decoder", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			dec := json.NewDecoder(bytes.NewReader(data))
			for {
				if _, err := dec.Token(); err == io.EOF {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkJSONReader(b *testing.B) {
	data := messages(b)
	set, err := secrets.NewSet([]secrets.Value{{Bytes: []byte("no-value-of-this-text")}})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := secrets.Screen{Set: set, Detect: true}.JSON(bytes.NewReader(data), nil)
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, buf); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}
