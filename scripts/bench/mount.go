package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// needle is in no file, so grep ends with 1.
const needle = "zzqqxxzz"

// mounts measures the mount beside the disk.
func (b *bench) mounts() error {
	trees, err := b.trees()
	if err != nil {
		return err
	}
	for _, t := range trees {
		native, err := b.walks(t)
		if err != nil {
			return err
		}
		if t.name != "node_modules" {
			continue
		}
		tools, err := b.tools(t)
		if err != nil {
			return err
		}
		for _, o := range tools {
			if err := o.mounted(t.name, native); err != nil {
				return err
			}
		}
	}
	return b.reads()
}

// step is a command on the mount beside the same one on the disk.
type step struct {
	what, reach string
	code        int
	native      time.Duration
	command     []string
	repeat      bool  // the best of three; else the first time counts
	bytes       int64 // that are read, if the speed is of interest
}

// measure runs a step and notes what the kernel asked for.
func (s *store) measure(tree string, st step) error {
	before, err := s.requests()
	if err != nil {
		return err
	}
	run := func() (time.Duration, error) {
		return timed(st.code, s.b.command(st.command[0], st.command[1:]...))
	}
	var took time.Duration
	if st.repeat {
		took, err = best(run)
	} else {
		took, err = run()
	}
	if err != nil {
		return err
	}
	after, err := s.requests()
	if err != nil {
		return err
	}
	var asked []string
	for _, op := range []string{"LOOKUP", "READDIRPLUS", "READ", "STORE"} {
		if n := after[op] - before[op]; n > 0 {
			asked = append(asked, fmt.Sprintf("%d %s", n, op))
		}
	}
	r := row{tree: tree, what: st.what, reach: st.reach, seen: seconds(took), requests: strings.Join(asked, ", ")}
	if st.native > 0 {
		r.native, r.ratio = seconds(st.native), ratio(took, st.native)
	}
	if st.bytes > 0 {
		r.seen = speed(st.bytes, took)
	}
	s.b.add(r)
	return nil
}

// find is a look at every entry.
func find(dir string) []string { return []string{"find", dir, "-type", "f", "-size", "+1000000k"} }

// walks measures walks, searches and comparisons, and returns how long a search takes
// on the disk.
func (b *bench) walks(t *tree) (search time.Duration, err error) {
	s, err := b.store(b.dir)
	if err != nil {
		return 0, err
	}
	walk, err := b.bestOf(0, "find", find(t.dir)[1:]...)
	if err != nil {
		return 0, err
	}
	search, err = b.bestOf(1, "grep", "-rI", needle, t.dir)
	if err != nil {
		return 0, err
	}
	a, err := s.save("base", t.dir)
	if err != nil {
		return 0, err
	}
	fork, err := s.run("fork", a, "fork")
	if err != nil {
		return 0, err
	}
	A, F := s.files("base", a), s.files("fork", fork)
	if err := s.mount(); err != nil {
		return 0, err
	}
	grep := func(dir string) []string { return []string{"grep", "-rI", needle, dir} }
	steps := []step{
		{what: "find, first pass", reach: "5 x", native: walk, command: find(A)},
		{what: "find, second pass", reach: "1.15 x", native: walk, command: find(A), repeat: true},
		{what: "grep -r, first pass", reach: "4 x", code: 1, native: search, command: grep(A)},
		{what: "grep -r, second pass", reach: "1.15 x", code: 1, native: search, command: grep(A), repeat: true},
		{what: "grep -r of a fork", reach: "2 x", code: 1, native: search, command: grep(F)},
	}
	for _, st := range steps {
		if err := s.measure(t.name, st); err != nil {
			return 0, err
		}
	}
	changed, err := b.changed(s, t)
	if err != nil {
		return 0, err
	}
	if err := s.mount(); err != nil {
		return 0, err
	}
	C := s.files("changed", changed)
	if err := s.measure(t.name, step{what: "diff -rq, one file changed, nothing read before", reach: "50 ms, < 20 READ", code: 1, command: []string{"diff", "-rq", A, C}}); err != nil {
		return 0, err
	}
	took, err := best(func() (time.Duration, error) { return timed(1, s.command("diff", a, changed)) })
	if err != nil {
		return 0, err
	}
	b.add(row{tree: t.name, what: "snapfs diff of the same", reach: "20 ms", seen: seconds(took)})
	return search, s.remove()
}

// changed saves a copy of the tree with one file changed and returns the checkpoint.
// The copy stays until the end, as the restored trees do.
func (b *bench) changed(s *store, t *tree) (string, error) {
	work := &tree{dir: filepath.Join(b.dir, "changed-"+t.name)}
	if _, err := timed(0, b.command("cp", "-a", t.dir, work.dir)); err != nil {
		return "", err
	}
	if err := work.change(); err != nil {
		return "", err
	}
	return s.save("changed", work.dir)
}

// reads measures the first and the second read of long files.
func (b *bench) reads() error {
	for _, kind := range kinds {
		path, n, err := b.largeFile(kind)
		if err != nil {
			return err
		}
		native, err := b.bestOf(0, "dd", "if="+path, "of=/dev/null", "bs=1M")
		if err != nil {
			return err
		}
		s, err := b.store(b.dir)
		if err != nil {
			return err
		}
		cp, err := s.save("large", filepath.Dir(path))
		if err != nil {
			return err
		}
		if err := s.mount(); err != nil {
			return err
		}
		on := filepath.Join(s.files("large", cp), filepath.Base(path))
		info, err := os.Stat(on)
		if err != nil {
			return err
		}
		if info.Size() != n {
			return fmt.Errorf("%s has %d bytes instead of %d", on, info.Size(), n)
		}
		reach := map[string]string{"incompressible": "2 GB/s", "compressible": "1 GB/s"}[kind]
		for _, st := range []step{{what: "first read", reach: reach}, {what: "second read", reach: "0.5 x the speed", native: native, repeat: true}} {
			st.command = []string{"dd", "if=" + on, "of=/dev/null", "bs=1M"}
			st.bytes = n
			if err := s.measure(largeName(kind, n), st); err != nil {
				return err
			}
		}
		if err := s.remove(); err != nil {
			return err
		}
	}
	return nil
}
