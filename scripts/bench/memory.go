package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// memory measures the most that a save and a restore have in memory.
func (b *bench) memory() error {
	trees, err := b.trees()
	if err != nil {
		return err
	}
	if err := b.resident(trees[1].name, trees[1].dir, "300 MB", nil); err != nil {
		return err
	}
	n := pick[int64](b.quick, 1<<30, 20<<30)
	err = b.residentFile(largeName("sparse", n), n, func(path string) error {
		// the data stands in the middle, with holes on both sides
		data := make([]byte, mega)
		if _, err := io.ReadFull(noise(1), data); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		return errors.Join(os.Truncate(path, n), overwrite(path, n/2, data))
	})
	if err != nil {
		return err
	}
	n = pick[int64](b.quick, 64<<20, 3<<30)
	return b.residentFile(largeName("incompressible", n), n, func(path string) error {
		return write(path, io.LimitReader(noise(2), n))
	})
}

// residentFile measures a save and a restore of one file of n bytes.
func (b *bench) residentFile(name string, n int64, fill func(path string) error) error {
	dir := filepath.Join(b.dir, "resident")
	path := filepath.Join(dir, "file")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := fill(path); err != nil {
		return err
	}
	had, err := allocated(path, n)
	if err != nil {
		return err
	}
	err = b.resident(name, dir, "", func(s *store, target string) error {
		packs, err := s.packs()
		if err != nil {
			return err
		}
		got, err := allocated(filepath.Join(target, "file"), n)
		if err != nil {
			return err
		}
		b.weigh(name, "packs beside what is allocated", "", had, packs)
		b.weigh(name, "restore: what is allocated", "", had, got)
		return os.RemoveAll(target)
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// resident measures a save of a directory and a restore, and calls then, if it is
// there, with the store and what was restored.
func (b *bench) resident(name, dir, reach string, then func(s *store, target string) error) error {
	s, err := b.store(b.dir)
	if err != nil {
		return err
	}
	saved, err := rss(s.command("save", "--thread", "base", "--no-default-excludes", dir))
	if err != nil {
		return err
	}
	b.add(row{tree: name, what: "save, first: memory", reach: reach, seen: size(saved)})
	parent, err := os.MkdirTemp(b.dir, "restored-")
	if err != nil {
		return err
	}
	target := filepath.Join(parent, "tree")
	restored, err := rss(s.command("restore", "base@latest", target))
	if err != nil {
		return err
	}
	b.add(row{tree: name, what: "restore: memory", reach: reach, seen: size(restored)})
	if err := (&tree{dir: dir}).same(target); err != nil {
		return err
	}
	if then != nil {
		if err := then(s, target); err != nil {
			return err
		}
	}
	return s.remove()
}

// rss runs a command and returns the most bytes that it had in memory.
func rss(cmd *exec.Cmd) (int64, error) {
	// Linux counts what the process had before it became another program, and until
	// then it shares the memory of this one: the peak of this one is forgotten first.
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return 0, err
	}
	if _, err := timed(0, cmd); err != nil {
		return 0, err
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10, nil
}

// allocated is how much of a disk a file of n bytes has.
func allocated(path string, n int64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	if st.Size != n {
		return 0, fmt.Errorf("%s has %d bytes instead of %d", path, st.Size, n)
	}
	return st.Blocks * 512, nil
}
