package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// makeModules makes a workspace like a node_modules folder: files small files in
// packages of about twenty, a third of them duplicates, 200 bytes to 40 kB long,
// which compress to about a third. The same number makes the same tree.
func makeModules(dir string, files int) error {
	r := rand.New(rand.NewPCG(7, uint64(files)))
	text := prose(r, 4<<20)
	const longest = 40_000
	var earlier []string
	var pool [][]byte
	for i := range files {
		pkg := filepath.Join(dir, "node_modules", fmt.Sprintf("package-%04d", i/40))
		if i%40 > 24 {
			pkg = filepath.Join(pkg, []string{"lib", "dist", "src"}[i/40%3])
		}
		if i%40 == 0 || i%40 == 25 {
			if err := os.MkdirAll(pkg, 0o755); err != nil {
				return err
			}
		}
		var data []byte
		if len(pool) > 0 && r.Float64() < 0.33 {
			data = pool[r.IntN(len(pool))]
		} else {
			at := r.IntN(len(text) - longest - 200)
			data = append(fmt.Appendf(nil, "// module %d\n", i), text[at:at+min(longest, 200+int(r.ExpFloat64()*4800))]...)
			if len(pool) < 2000 {
				pool = append(pool, data)
			}
		}
		path := filepath.Join(pkg, fmt.Sprintf("file-%05d.js", i))
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		earlier = append(earlier, path)
	}
	return os.Symlink(filepath.Base(earlier[0]), earlier[0]+".link")
}

// prose is text of n bytes in which some words are much more frequent than others.
func prose(r *rand.Rand, n int) []byte {
	words := make([]string, 1500)
	for i := range words {
		var w strings.Builder
		for range 2 + r.IntN(10) {
			w.WriteByte("etaoinshrdlucmfwypvbgk_"[r.IntN(23)])
		}
		words[i] = w.String()
	}
	zipf := rand.NewZipf(r, 1.2, 2, uint64(len(words)-1))
	text := make([]byte, 0, n+16)
	for len(text) < n {
		text = append(append(text, words[zipf.Uint64()]...), " \n;({=."[r.IntN(7)])
	}
	return text[:n]
}

// makeLarge writes a file of size bytes, which compress or do not.
func makeLarge(path string, size int64, compressible bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var key [32]byte
	noise := rand.NewChaCha8(key)
	w := bufio.NewWriterSize(f, 1<<20)
	block := make([]byte, 1<<20)
	text := prose(rand.New(rand.NewPCG(1, 2)), 16<<20)
	for i := int64(0); i < size; i += int64(len(block)) {
		if compressible {
			copy(block, text[int(i)%(len(text)-len(block)):])
			copy(block, fmt.Sprint(i))
		} else {
			_, _ = noise.Read(block)
		}
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Flush()
}
