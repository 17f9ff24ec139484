package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// checkpoints measures what many checkpoints of one large folder cost, each with one
// small file changed.
func (b *bench) checkpoints() error {
	const each = 400
	files, n := pick(b.quick, 3000, 43_009), pick(b.quick, 20, 2000)
	name := fmt.Sprintf("one folder of %d files, %d checkpoints", files, n)
	dir := filepath.Join(b.dir, "flat")
	paths, err := makeFlat(dir, files, each)
	if err != nil {
		return err
	}
	s, err := b.store(b.dir)
	if err != nil {
		return err
	}
	if _, err := s.save("base", dir); err != nil {
		return err
	}
	before, err := s.packs()
	if err != nil {
		return err
	}
	added, took := int64(0), time.Duration(0)
	for i := range n {
		if err := overwrite(paths[i*7919%files], 0, fmt.Appendf(nil, "// version %8d\n", i+1)); err != nil {
			return err
		}
		start := time.Now()
		bytes, err := s.saveNew("base", dir)
		if err != nil {
			return err
		}
		took += time.Since(start)
		added += bytes
	}
	after, err := s.packs()
	if err != nil {
		return err
	}
	b.weigh(name, "new in the store per checkpoint, beside the changed file", "16 kB", each, added/int64(n))
	b.add(row{tree: name, what: "growth of the packs per checkpoint", seen: size((after - before) / int64(n))})
	b.add(row{tree: name, what: "save, mean", seen: seconds(took / time.Duration(n))})
	for _, list := range [][]string{{"list", "base"}, {"list", "--limit", "0", "base"}} {
		took, err := best(func() (time.Duration, error) { return s.time(list...) })
		if err != nil {
			return err
		}
		b.add(row{tree: name, what: "snapfs " + strings.Join(list, " "), reach: "100 ms", seen: seconds(took)})
	}
	if err := s.mount(); err != nil {
		return err
	}
	thread := filepath.Join(s.at, "threads", "base")
	if took, err = timed(0, b.command("ls", thread)); err != nil {
		return err
	}
	b.add(row{tree: name, what: "ls of the thread in a mount, first", seen: seconds(took)})
	if took, err = b.bestOf(0, "ls", thread); err != nil {
		return err
	}
	b.add(row{tree: name, what: "ls of the thread in a mount, later", seen: seconds(took)})
	shown, err := filepath.Glob(filepath.Join(thread, "*-*-*"))
	if err != nil {
		return err
	}
	if len(shown) != n+1 {
		return fmt.Errorf("%s shows %d checkpoints instead of %d", thread, len(shown), n+1)
	}
	return s.remove()
}

// makeFlat makes a directory of small files, no two of them alike.
func makeFlat(dir string, files, each int) (paths []string, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	text := prose(rand.New(rand.NewPCG(3, 4)), mega)
	for i := range files {
		data := fmt.Appendf(nil, "// version %8d\n// file %d\n", 0, i)
		at := i * 7 % (len(text) - each)
		data = append(data, text[at:at+each-len(data)]...)
		path := filepath.Join(dir, fmt.Sprintf("file-%05d.js", i))
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
