package secrets_test

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/secrets"
)

// BenchmarkScanner looks through 16 MiB of several kinds, in pieces as a save reads
// them.
func BenchmarkScanner(b *testing.B) {
	random := make([]byte, benchSize)
	r := rand.NewChaCha8([32]byte{1})
	_, err := r.Read(random)
	require.NoError(b, err)
	for _, bm := range []struct {
		name string
		data []byte
	}{
		{"source", sourceText(b)},
		{"minified", minifiedText(b)},
		{"hex", []byte(strings.Repeat("0123456789abcdeffedcba9876543210", benchSize/32))},
		{"random", random},
		{"hostile", []byte(strings.Repeat("glpat-sk-ops_eyJ-", benchSize/17))},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(int64(len(bm.data)))
			b.ReportAllocs()
			for b.Loop() {
				scanPieces(bm.data, 256<<10, func(int64, secrets.Finding) bool { return true })
			}
		})
	}
}

const benchSize = 16 << 20

// scanPieces scans content in pieces of one size, as it is read from a file.
func scanPieces(content []byte, piece int, found func(off int64, f secrets.Finding) bool) {
	var s secrets.Scanner
	for at := 0; at < len(content); at += piece {
		upto := min(piece, len(content)-at)
		buf := content[at:min(len(content), at+upto+secrets.ScanAhead)]
		if !s.Scan(buf, upto, func(off int, f secrets.Finding) bool { return found(int64(at+off), f) }) {
			return
		}
	}
}

// sourceText is what the Go distribution has of its own source code.
func sourceText(tb testing.TB) []byte {
	var text []byte
	err := filepath.WalkDir(filepath.Join(goRoot(tb), "src"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		data, err := os.ReadFile(path)
		text = append(text, data...)
		if len(text) >= benchSize {
			return filepath.SkipAll
		}
		return err
	})
	require.NoError(tb, err)
	require.NotEmpty(tb, text)
	return text
}

// minifiedText is a minified script of the Go distribution, again and again.
func minifiedText(tb testing.TB) []byte {
	data, err := os.ReadFile(filepath.Join(goRoot(tb), "src/internal/trace/traceviewer/static/webcomponents.min.js"))
	require.NoError(tb, err)
	return bytes.Repeat(data, benchSize/len(data))
}

func goRoot(tb testing.TB) string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(tb, err)
	return strings.TrimSpace(string(out))
}
