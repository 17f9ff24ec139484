package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sizes measures what is stored beside the unique bytes of what was saved.
func (b *bench) sizes() error {
	trees, err := b.trees()
	if err != nil {
		return err
	}
	for _, t := range trees {
		reach := map[string]string{"node_modules": "0.40"}[t.name]
		unique, err := t.unique()
		if err != nil {
			return err
		}
		if err := b.stored(t, unique, reach); err != nil {
			return err
		}
		tools, err := b.tools(t)
		if err != nil {
			return err
		}
		for _, o := range tools {
			if err := o.has(1); err != nil {
				return err
			}
			n, err := du(o.repo)
			if err != nil {
				return err
			}
			b.weigh(t.name, o.name+": repository beside the unique bytes", "", unique, n)
		}
	}
	path, n, err := b.largeFile("incompressible")
	if err != nil {
		return err
	}
	return b.stored(&tree{name: largeName("incompressible", n), dir: filepath.Dir(path)}, n, "1.03")
}

// stored measures the packs of a store with a tree in it, and without.
func (b *bench) stored(t *tree, unique int64, reach string) error {
	s, err := b.store(b.dir)
	if err != nil {
		return err
	}
	if _, err := s.save("base", t.dir); err != nil {
		return err
	}
	n, err := s.packs()
	if err != nil {
		return err
	}
	b.weigh(t.name, "packs beside the unique bytes", reach, unique, n)
	if _, err := s.run("delete", "--thread", "base"); err != nil {
		return err
	}
	if _, err := s.run("gc"); err != nil {
		return err
	}
	if n, err = s.packs(); err != nil {
		return err
	}
	b.add(row{tree: t.name, what: "packs after all is deleted, and gc", reach: "1 MB", seen: size(n)})
	return s.remove()
}

// weigh adds a row for so many bytes beside others.
func (b *bench) weigh(tree, what, reach string, native, seen int64) {
	b.add(row{tree: tree, what: what, reach: reach, native: size(native), seen: size(seen), ratio: fmt.Sprintf("%.3f", float64(seen)/float64(native))})
}

// unique is the size of all contents, each counted once.
func (t *tree) unique() (sum int64, err error) {
	seen := map[[sha256.Size]byte]bool{}
	err = t.walk(func(path string, size int64) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		if key := [sha256.Size]byte(h.Sum(nil)); !seen[key] {
			seen[key] = true
			sum += size
		}
		return nil
	})
	return sum, err
}
