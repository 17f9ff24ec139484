package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// tree is a workspace.
type tree struct {
	name, dir string
	tools     []*tool
	small     string // the file that changes
	version   int    // of that
}

// trees are a copy of Go's own tree and a node_modules folder.
func (b *bench) trees() ([]*tree, error) {
	if b.made != nil {
		return b.made, nil
	}
	standard, modules := &tree{name: "GOROOT", dir: filepath.Join(b.dir, "GOROOT")}, &tree{name: "node_modules", dir: filepath.Join(b.dir, "modules")}
	say("making the trees")
	if _, err := timed(0, b.command("cp", "-a", filepath.Join(b.goroot, pick(b.quick, "src/net", ".")), standard.dir)); err != nil {
		return nil, err
	}
	if err := makeModules(modules.dir, pick(b.quick, 3000, 80_000)); err != nil {
		return nil, err
	}
	b.made = []*tree{standard, modules}
	return b.made, nil
}

// change gives one small file, always the same, another content of the same length.
func (t *tree) change() error {
	if t.small == "" {
		n := 0
		err := t.walk(func(path string, size int64) error {
			if size > 100 && size < 16_000 {
				if n++; n == 1 || n == 777 {
					t.small = path
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.version++
	return overwrite(t.small, 0, fmt.Appendf(nil, "// version %8d\n", t.version))
}

// walk goes through all regular files.
func (t *tree) walk(visit func(path string, size int64) error) error {
	return filepath.WalkDir(t.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return visit(path, info.Size())
	})
}

// count is how many files there are.
func (t *tree) count() (n int, err error) {
	err = t.walk(func(string, int64) error { n++; return nil })
	return n, err
}

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
