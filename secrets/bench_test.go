package secrets_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/snapfs/snapfs/secrets"
)

func BenchmarkFind(b *testing.B) {
	text := sourceText(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 10, 100, 1000} {
		var list []secrets.Value
		for range n {
			v := make([]byte, 24)
			for i := range v {
				v[i] = "abcdefghijklmnopqrstuvwxyz0123456789-_"[rnd.IntN(38)]
			}
			list = append(list, secrets.Value{Bytes: v})
		}
		set, err := secrets.NewSet(list)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if len(set.Find(text)) > 0 {
					b.Fatal("found")
				}
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	text := sourceText(b)
	set, err := secrets.NewSet([]secrets.Value{{Bytes: []byte("no-value-of-this-text")}})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r := secrets.Screen{Set: set, Detect: true}.Reader(bytes.NewReader(text), nil)
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, buf); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkScreen(b *testing.B) {
	text := sourceText(b)[:5000]
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (secrets.Screen{Detect: true}).Screen(text, nil); err != nil {
			b.Fatal(err)
		}
	}
}
