// Package local keeps objects in pack files of one directory.
//
// Many objects share a pack: a file for each would cost a create and an fsync
// each. A writer makes packs of its own in tmp/, holds a lock on each so that
// no sweep takes it, and hands them over closed; a pack in packs/ is whole and
// never changes. Where an object lies is not this package's knowledge: it asks
// an [Index].
package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	iofs "io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

const (
	packsDir   = "packs"
	tmpDir     = "tmp"
	packSuffix = ".pack"
	// keptPrefix begins the names in tmp/ of packs that are kept when their writer ends
	// before its work is done: see [Options.Keep].
	keptPrefix = "kept-"
)

// keptFor is how long a kept pack waits for somebody to go on with it.
const keptFor = 7 * 24 * time.Hour

// packPath is where a pack lies for good.
func packPath(dir string, id cas.PackID) string {
	name := id.String()
	return filepath.Join(dir, packsDir, name[:2], name+packSuffix)
}

// tmpPath is where a pack is written.
func tmpPath(dir string, id cas.PackID) string {
	return filepath.Join(dir, tmpDir, id.String()+packSuffix)
}

// keptPath is where a pack is written that is kept.
func keptPath(dir string, id cas.PackID) string {
	return filepath.Join(dir, tmpDir, keptPrefix+id.String()+packSuffix)
}

// Create makes the directories of an empty store in dir.
func Create(fsys disk.FS, dir string) error {
	for _, d := range []string{packsDir, tmpDir} {
		if err := fsys.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, iofs.ErrExist) {
			return fmt.Errorf("create store: %w", cas.NoSpace(err))
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("create store: %w", cas.NoSpace(err))
	}
	return nil
}

// UnfinishedSize is how long a pack in tmp/ is, in bytes.
func UnfinishedSize(dir string, id cas.PackID) (int64, error) {
	f, err := openUnfinished(dir, id)
	if err != nil {
		return 0, fmt.Errorf("look at pack: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at pack: %w", err)
	}
	return info.Size(), nil
}

// openUnfinished opens a pack in tmp/, be it a kept one.
func openUnfinished(dir string, id cas.PackID) (*os.File, error) {
	f, err := os.Open(tmpPath(dir, id))
	if errors.Is(err, iofs.ErrNotExist) {
		f, err = os.Open(keptPath(dir, id))
	}
	return f, err
}

// Adopt moves a closed pack from tmp/ into packs/ for good and returns what it
// holds. Its bytes must be durable already; its name is when Adopt returns.
func (s *Store) Adopt(id cas.PackID) ([]cas.Located, error) {
	f, err := openUnfinished(s.dir, id)
	if err != nil {
		return nil, fmt.Errorf("adopt pack: %w", err)
	}
	defer f.Close()
	objects, err := readFooter(f, id)
	if err != nil {
		return nil, err
	}
	to := packPath(s.dir, id)
	if err := s.makeShard(filepath.Dir(to)); err != nil {
		return nil, fmt.Errorf("adopt pack: %w", cas.NoSpace(err))
	}
	if err := s.fsys.Rename(f.Name(), to); err != nil {
		return nil, fmt.Errorf("adopt pack: %w", cas.NoSpace(err))
	}
	if err := s.fsys.SyncDir(filepath.Dir(to)); err != nil {
		return nil, fmt.Errorf("adopt pack: %w", cas.NoSpace(err))
	}
	return objects, nil
}

// makeShard makes one of the directories of packs/. That it is there does not say that
// its name is durable: whoever made it may have been killed before.
func (s *Store) makeShard(path string) error {
	s.sharding.Lock()
	defer s.sharding.Unlock()
	if s.shards[path] {
		return nil
	}
	err := s.fsys.Mkdir(path, 0o700)
	switch {
	case err == nil:
		err = disk.Own(path, s.dir)
	case errors.Is(err, iofs.ErrExist):
		err = nil
	case errors.Is(err, iofs.ErrNotExist): // a store is made with it
		err = fmt.Errorf("the store's directory %s is gone: %w", packsDir, cas.ErrCorrupt)
	}
	if err == nil {
		err = s.fsys.SyncDir(filepath.Dir(path))
	}
	s.shards[path] = err == nil
	return err
}

// SyncNames makes the names of all packs durable. A process that was killed may have
// left one that is not.
func SyncNames(fsys disk.FS, dir string) error {
	top := filepath.Join(dir, packsDir)
	shards, err := os.ReadDir(top)
	if err != nil {
		return fmt.Errorf("sync packs: %w", err)
	}
	for _, shard := range shards {
		if shard.IsDir() {
			if err := fsys.SyncDir(filepath.Join(top, shard.Name())); err != nil {
				return fmt.Errorf("sync packs: %w", err)
			}
		}
	}
	if err := fsys.SyncDir(top); err != nil {
		return fmt.Errorf("sync packs: %w", err)
	}
	return nil
}

// Packs yields the ids of all packs of the store in dir.
func Packs(dir string) iter.Seq2[cas.PackID, error] {
	return func(yield func(cas.PackID, error) bool) {
		shards, err := os.ReadDir(filepath.Join(dir, packsDir))
		if errors.Is(err, iofs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", err, cas.ErrCorrupt) // a store is made with it
		}
		if err != nil {
			yield(cas.PackID{}, err)
			return
		}
		for _, shard := range shards {
			if !shard.IsDir() {
				continue // not ours
			}
			files, err := os.ReadDir(filepath.Join(dir, packsDir, shard.Name()))
			if err != nil {
				yield(cas.PackID{}, err)
				return
			}
			for _, f := range files {
				id, err := cas.ParsePackID(strings.TrimSuffix(f.Name(), packSuffix))
				if err != nil || packPath(dir, id) != filepath.Join(dir, packsDir, shard.Name(), f.Name()) {
					continue // not ours: a stray file is no reason to fail
				}
				if !yield(id, nil) {
					return
				}
			}
		}
	}
}

// Footer returns what a pack holds; in a pack without a readable footer it looks
// for the records. See [ReadFooter].
func Footer(dir string, id cas.PackID) ([]cas.Located, error) {
	f, err := os.Open(packPath(dir, id))
	if err != nil {
		return nil, fmt.Errorf("open pack: %w", err)
	}
	defer f.Close()
	return footer(f, id)
}

// footer is Footer for an open pack.
func footer(f *os.File, id cas.PackID) ([]cas.Located, error) {
	objects, err := readFooter(f, id)
	if errors.Is(err, cas.ErrCorrupt) {
		return scanFile(f, id)
	}
	return objects, err
}

// ReadFooter returns what a pack's footer lists. Without a readable one it fails
// with [cas.ErrCorrupt].
func ReadFooter(dir string, id cas.PackID) ([]cas.Located, error) {
	f, err := os.Open(packPath(dir, id))
	if err != nil {
		return nil, fmt.Errorf("open pack: %w", err)
	}
	defer f.Close()
	return readFooter(f, id)
}

// readFooter reads the footer of an open pack.
func readFooter(f *os.File, id cas.PackID) ([]cas.Located, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	size := info.Size()
	head := make([]byte, packHeader)
	tail := make([]byte, trailer)
	if size < packHeader+trailer || size > maxPack {
		return nil, fmt.Errorf("pack %s: %d bytes long: %w", id, size, cas.ErrCorrupt)
	}
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	if err := checkPackHeader(head); err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	if _, err := f.ReadAt(tail, size-trailer); err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	entries, err := parseTrailer(tail)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	end := size - trailer - entries
	if end < packHeader {
		return nil, fmt.Errorf("pack %s: footer is damaged: %w", id, cas.ErrCorrupt)
	}
	b := make([]byte, size-end)
	if _, err := f.ReadAt(b, end); err != nil {
		return nil, fmt.Errorf("pack %s: %w", id, err)
	}
	return parseFooter(b, id, end)
}

// CreateTemp makes a file in tmp/ of the store in dir. It is locked: no sweep takes
// it until it is closed.
func CreateTemp(fsys disk.FS, dir string) (disk.File, error) {
	return createTemp(fsys, dir, func() string { return filepath.Join(dir, tmpDir, "file-"+rand.Text()) })
}

// createTemp is CreateTemp for a file whose path is made up each time that it is tried.
func createTemp(fsys disk.FS, dir string, path func() string) (disk.File, error) {
	for {
		f, err := fsys.OpenFile(path(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, cas.NoSpace(err)
		}
		swept, err := lockTemp(f)
		if err == nil && !swept {
			err = disk.Own(f.Name(), dir)
		}
		if err == nil && !swept {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, errors.Join(err, fsys.Remove(f.Name()))
		}
	}
}

// lockTemp takes the lock that keeps a sweep away. A sweep may have been faster
// and removed the file between its creation and the lock.
func lockTemp(f disk.File) (swept bool, err error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Nlink == 0, nil
}

// Sweep removes the unfinished files in tmp/ that no living writer holds, but for packs
// that are kept and were written to in the last days.
func Sweep(fsys disk.FS, dir string) error {
	return sweep(fsys, dir, time.Now().Add(-keptFor))
}

// SweepAll removes kept packs, too.
func SweepAll(fsys disk.FS, dir string) error { return sweep(fsys, dir, time.Time{}) }

// sweep leaves packs alone that are kept and were written to after a time; zero: none.
func sweep(fsys disk.FS, dir string, kept time.Time) error {
	tmp := filepath.Join(dir, tmpDir)
	files, err := os.ReadDir(tmp)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, entry := range files {
		if strings.HasPrefix(entry.Name(), keptPrefix) && !kept.IsZero() {
			if info, err := entry.Info(); err != nil || info.ModTime().After(kept) {
				continue
			}
		}
		f, err := os.Open(filepath.Join(tmp, entry.Name()))
		if err != nil {
			continue // taken over or swept meanwhile
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = fsys.Remove(f.Name())
		}
		f.Close()
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	return nil
}

// reserve is what is left free of the file system that holds the store, in
// bytes: the index writes through a memory map, and a full disk would kill the
// process that does.
const reserve = 64 << 20

// reserveFiles is how many files must be left to be made, where a file system
// counts them: the index makes some when it is opened and closed, and waits without
// end for the room.
const reserveFiles = 64

// FreeSpace is what is free of the file system that holds dir, in bytes.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// CheckSpace fails with [cas.ErrNoSpace] when the file system that holds dir
// has less than the reserve left: the smaller of 64 MiB and a tenth of it; or
// fewer than 64 files, or a quarter of them all, can be made.
func CheckSpace(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	free, all := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	if need := min(uint64(reserve), all/10); free < need {
		return fmt.Errorf("%s: %d bytes free, %d are kept in reserve: %w", dir, free, need, cas.ErrNoSpace)
	}
	if need := min(reserveFiles, st.Files/4); st.Ffree < need {
		return fmt.Errorf("%s: room for %d files, for %d is kept in reserve: %w", dir, st.Ffree, need, cas.ErrNoSpace)
	}
	return nil
}
