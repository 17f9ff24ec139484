package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// store is a store of the run, and the place of its mount.
type store struct {
	b       *bench
	dir, at string
	mounted bool
}

// store is a new store in parent.
func (b *bench) store(parent string) (*store, error) {
	dir, err := os.MkdirTemp(parent, "store-")
	if err != nil {
		return nil, err
	}
	s := &store{b: b, dir: dir, at: dir + "-mount"}
	b.stores = append(b.stores, s)
	return s, nil
}

func (s *store) command(args ...string) *exec.Cmd {
	return s.b.command(s.b.program, append([]string{"--store", s.dir, "--quiet"}, args...)...)
}

// run runs a verb and returns what it prints.
func (s *store) run(args ...string) (string, error) {
	cmd := s.command(args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("snapfs %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// time is how long a verb takes.
func (s *store) time(args ...string) (time.Duration, error) { return timed(0, s.command(args...)) }

// save saves all of a directory and returns the checkpoint.
func (s *store) save(thread, dir string) (string, error) {
	return s.run("save", "--thread", thread, "--no-default-excludes", dir)
}

// saveNew saves and returns how many bytes that added to the store.
func (s *store) saveNew(thread, dir string) (int64, error) {
	out, err := s.run("save", "--json", "--thread", thread, "--no-default-excludes", dir)
	if err != nil {
		return 0, err
	}
	var checkpoint struct {
		NewBytes *int64 `json:"newBytes"`
	}
	if err := json.Unmarshal([]byte(out), &checkpoint); err != nil {
		return 0, err
	}
	if checkpoint.NewBytes == nil {
		return 0, fmt.Errorf("save printed no newBytes: %s", out)
	}
	return *checkpoint.NewBytes, nil
}

// packs is the size of what is stored.
func (s *store) packs() (int64, error) { return du(filepath.Join(s.dir, "packs")) }

// mount mounts anew, so that nothing is known.
func (s *store) mount() error {
	if err := s.umount(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.at, 0o755); err != nil {
		return err
	}
	s.mounted = true
	_, err := s.run("mount", s.at)
	return err
}

// umount takes the mount away, if there is one. It does so after the run is over too.
func (s *store) umount() error {
	if !s.mounted {
		return nil
	}
	if out, err := exec.Command(s.b.program, "--store", s.dir, "umount", s.at).CombinedOutput(); err != nil {
		return fmt.Errorf("umount %s: %w: %s", s.at, err, out)
	}
	s.mounted = false
	return nil
}

// remove takes the store away. It is few files, unlike a tree.
func (s *store) remove() error {
	if err := s.umount(); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

// files is where the mount shows a checkpoint's files.
func (s *store) files(thread, checkpoint string) string {
	return filepath.Join(s.at, "threads", thread, checkpoint, "files")
}

// requests counts what the kernel asked since the mount began.
func (s *store) requests() (map[string]int, error) {
	out, err := s.run("stats", "--json")
	if err != nil {
		return nil, err
	}
	var stats struct {
		Fuse struct {
			Requests map[string]int `json:"requests"`
		} `json:"fuse"`
	}
	return stats.Fuse.Requests, json.Unmarshal([]byte(out), &stats)
}

// du is the size of all files in a directory.
func du(dir string) (sum int64, err error) {
	err = (&tree{dir: dir}).walk(func(_ string, size int64) error { sum += size; return nil })
	return sum, err
}
