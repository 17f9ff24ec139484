package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// restores measures restores beside cp and the other tools.
func (b *bench) restores() error {
	trees, err := b.trees()
	if err != nil {
		return err
	}
	// the room is needed, and no group comes after this one
	if err := os.RemoveAll(b.largeDir()); err != nil {
		return err
	}
	for _, t := range trees {
		s, err := b.store(b.dir)
		if err != nil {
			return err
		}
		id, err := s.save("base", t.dir)
		if err != nil {
			return err
		}
		if b.shm != "" {
			if _, err := b.restored(s, id, t, b.shm, "restore to tmpfs, beside cp -a", "0.6 x"); err != nil {
				return err
			}
			if err := b.mirrored(s, id, t); err != nil {
				return err
			}
		}
		took, err := b.restored(s, id, t, b.dir, "restore to the disk, beside cp -a + sync", "0.5 x")
		if err != nil {
			return err
		}
		if err := s.remove(); err != nil {
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
			target, err := os.MkdirTemp(b.dir, "restored-")
			if err != nil {
				return err
			}
			other, err := o.restore(target)
			if err != nil {
				return err
			}
			if err := t.same(target); err != nil {
				return err
			}
			b.compare(t.name, o.name+", restore to the disk, beside snapfs", "", took, other)
		}
	}
	return nil
}

// restored measures restores to new directories in parent beside cp -a to such, and
// returns the time. On a disk they stay until the end of the run: ext4 becomes several
// times slower when it has to avoid inode numbers that were freed a moment ago.
func (b *bench) restored(s *store, id string, t *tree, parent, what, reach string) (time.Duration, error) {
	into := func(command func(target string) *exec.Cmd) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			dir, err := os.MkdirTemp(parent, "restored-")
			if err != nil {
				return 0, err
			}
			target := filepath.Join(dir, "tree")
			took, err := synced(dir, command(target))
			if err != nil {
				return 0, err
			}
			if err := t.same(target); err != nil {
				return 0, err
			}
			if parent == b.shm {
				return took, os.RemoveAll(dir)
			}
			return took, nil
		}
	}
	took, err := race(
		into(func(target string) *exec.Cmd { return b.command("cp", "-a", t.dir, target) }),
		into(func(target string) *exec.Cmd { return s.command("restore", id, target) }),
	)
	if err != nil {
		return 0, err
	}
	b.compare(t.name, what, reach, took[0], took[1])
	return took[1], nil
}

// mirrored measures a restore into a directory that is equal already beside rsync, which
// compares contents, too.
func (b *bench) mirrored(s *store, id string, t *tree) error {
	dir, err := os.MkdirTemp(b.shm, "mirrored-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	target := filepath.Join(dir, "tree")
	if _, err := timed(0, s.command("restore", id, target)); err != nil {
		return err
	}
	took, err := race(
		func() (time.Duration, error) {
			return timed(0, b.command("rsync", "-aHc", "--delete", t.dir+"/", target+"/"))
		},
		func() (time.Duration, error) { return timed(0, s.command("restore", "--mirror", id, target)) },
	)
	if err != nil {
		return err
	}
	b.compare(t.name, "restore --mirror of what is there, beside rsync -aHc", "", took[0], took[1])
	return t.same(target)
}

// same makes sure that a copy has as many files as the tree: what restores nothing is
// fast.
func (t *tree) same(target string) error {
	want, err := t.count()
	if err != nil {
		return err
	}
	got, err := (&tree{dir: target}).count()
	if err == nil && got != want {
		err = fmt.Errorf("%s has %d files instead of %d", target, got, want)
	}
	return err
}
