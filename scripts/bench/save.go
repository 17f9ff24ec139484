package main

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// saves measures saves beside tar, find and the other tools.
func (b *bench) saves() error {
	trees, err := b.trees()
	if err != nil {
		return err
	}
	for _, t := range trees {
		first, err := b.firsts(t, b.dir)
		if err != nil {
			return err
		}
		again, err := b.again(t)
		if err != nil {
			return err
		}
		tools, err := b.tools(t)
		if err != nil {
			return err
		}
		for _, o := range tools {
			took, err := o.backup()
			if err != nil {
				return err
			}
			b.compare(t.name, o.name+", first, beside snapfs", o.reach, first, took)
			if took, err = o.backup(); err != nil {
				return err
			}
			b.compare(t.name, o.name+", nothing changed, beside snapfs", "", again, took)
		}
	}
	if b.shm == "" {
		return nil
	}
	t := &tree{name: "node_modules on tmpfs", dir: filepath.Join(b.shm, "tree")}
	if _, err := timed(0, b.command("cp", "-a", trees[1].dir, t.dir)); err != nil {
		return err
	}
	if _, err := b.firsts(t, b.shm); err != nil {
		return err
	}
	return os.RemoveAll(t.dir)
}

// firsts measures first saves, each into a store of its own in parent, beside tar to a
// file there. It returns the time with compression.
func (b *bench) firsts(t *tree, parent string) (time.Duration, error) {
	archive := filepath.Join(parent, "archive.tar")
	first := func(flags ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return b.first(parent, t.dir, flags...) }
	}
	declared := filepath.Join(b.dir, "declared")
	var values strings.Builder
	for range 100 {
		values.WriteString(rand.Text() + "\n")
	}
	if err := os.WriteFile(declared, []byte(values.String()), 0o600); err != nil {
		return 0, err
	}
	took, err := race(
		func() (time.Duration, error) { return b.tar(t.dir, archive) },
		first(),
		first("--compression", "off"),
		first("--secrets", "off"),
		first("--redact-file", declared),
	)
	if err != nil {
		return 0, err
	}
	b.compare(t.name, "save, first, beside tar + fsync", "1.3 x", took[0], took[1])
	b.compare(t.name, "save --compression off, first, beside tar + fsync", "1.0 x", took[0], took[2])
	b.compare(t.name, "save, first, beside --secrets off", "", took[3], took[1])
	b.compare(t.name, "save --redact-file with 100 secrets, first, beside --secrets off", "", took[3], took[4])
	return took[1], os.Remove(archive)
}

// first is the time of a save into a new store.
func (b *bench) first(parent, dir string, flags ...string) (time.Duration, error) {
	s, err := b.store(parent)
	if err != nil {
		return 0, err
	}
	took, err := s.time(append([]string{"save", "--no-default-excludes", dir}, flags...)...)
	if err != nil {
		return 0, err
	}
	return took, s.remove()
}

// again measures later saves beside a look at every entry. It returns the time of one
// without any change.
func (b *bench) again(t *tree) (time.Duration, error) {
	s, err := b.store(b.dir)
	if err != nil {
		return 0, err
	}
	if _, err := s.save("base", t.dir); err != nil {
		return 0, err
	}
	look := find(t.dir)
	walk := func() (time.Duration, error) { return timed(0, b.command(look[0], look[1:]...)) }
	save := func() (time.Duration, error) {
		return s.time("save", "--thread", "base", "--no-default-excludes", t.dir)
	}
	unchanged, err := race(walk, save)
	if err != nil {
		return 0, err
	}
	changed, err := race(walk, func() (time.Duration, error) {
		if err := t.change(); err != nil {
			return 0, err
		}
		return save()
	})
	if err != nil {
		return 0, err
	}
	if err := s.mount(); err != nil {
		return 0, err
	}
	daemon, err := race(walk, save)
	if err != nil {
		return 0, err
	}
	b.compare(t.name, "save, nothing changed, beside find", "2 x", unchanged[0], unchanged[1])
	b.compare(t.name, "save, one small file changed, beside find", "2.5 x", changed[0], changed[1])
	b.compare(t.name, "save, nothing changed, by a daemon, beside find", "", daemon[0], daemon[1])
	return unchanged[1], s.remove()
}
