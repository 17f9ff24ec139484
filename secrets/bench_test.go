package secrets

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sourceText is text as workspaces have it.
func sourceText(b *testing.B) []byte {
	var all []byte
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("no Go sources here")
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src", "net", "http", "*.go"))
	if err != nil || len(files) == 0 {
		b.Fatal("no Go sources here")
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}

func BenchmarkFind(b *testing.B) {
	text := sourceText(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 10, 100, 1000} {
		var list []Value
		for range n {
			v := make([]byte, 24)
			for i := range v {
				v[i] = "abcdefghijklmnopqrstuvwxyz0123456789-_"[rnd.IntN(38)]
			}
			list = append(list, Value{Bytes: v})
		}
		set, err := NewSet(list)
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
	set, err := NewSet([]Value{{Bytes: []byte("no-value-of-this-text")}})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r := Screen{Set: set, Detect: true}.Reader(&pieces{data: text, next: func(most int) int { return most }, hole: func() bool { return false }}, nil)
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
		if _, err := (Screen{Detect: true}).Screen(text, nil); err != nil {
			b.Fatal(err)
		}
	}
}
