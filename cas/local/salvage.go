package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// Salvaged counts what [Store.Salvage] took over.
type Salvaged struct {
	Packs   int
	Objects int
	Bytes   int64 // of records
}

// Salvage makes packs of the store of what writers with [Options.Keep] left in tmp/ that
// have ended. All records from the front on count that are whole and whose bytes hash to
// their names; what follows is cut off. What is in work by a living writer is passed
// over. Killed in the middle it can be done again.
func (s *Store) Salvage(ctx context.Context) (sum Salvaged, err error) {
	files, err := os.ReadDir(filepath.Join(s.dir, tmpDir))
	if err != nil {
		return sum, fmt.Errorf("salvage: %w", err)
	}
	for _, entry := range files {
		text, kept := strings.CutPrefix(strings.TrimSuffix(entry.Name(), packSuffix), keptPrefix)
		id, perr := cas.ParsePackID(text)
		if !kept || perr != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return sum, err
		}
		objects, bytes, err := s.salvage(ctx, id)
		if err != nil {
			return sum, fmt.Errorf("salvage pack %s: %w", id, cas.NoSpace(err))
		}
		if objects > 0 {
			sum.Packs++
			sum.Objects += objects
			sum.Bytes += bytes
		}
	}
	return sum, nil
}

// salvage takes over one pack, if nobody has it.
func (s *Store) salvage(ctx context.Context, id cas.PackID) (objects int, bytes int64, err error) {
	path := keptPath(s.dir, id)
	f, err := s.fsys.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() // and with it the lock, only after the hand-over
	if mine, err := lockKept(f, path); err != nil || !mine {
		return 0, 0, err
	}
	located, end, err := wholeRecords(f, id)
	if err != nil {
		return 0, 0, err
	}
	if len(located) == 0 {
		return 0, 0, s.fsys.Remove(path)
	}
	if err := f.Truncate(end); err != nil {
		return 0, 0, err
	}
	if _, err := f.WriteAt(appendFooter(nil, located), end); err != nil {
		return 0, 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, 0, err
	}
	if err := s.index.AddPack(ctx, id); err != nil {
		return 0, 0, err
	}
	return len(located), end - packHeader, nil
}

// lockKept takes the lock of a pack that was left. It is not to be had while its writer
// lives; and who had it may have handed it over meanwhile, or removed it.
func lockKept(f disk.File, path string) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var own, there unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &own); err != nil {
		return false, err
	}
	err = unix.Lstat(path, &there)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return own.Dev == there.Dev && own.Ino == there.Ino, err
}

// wholeRecords reads records from the front on, up to the first that is not whole, and
// tells where they end.
func wholeRecords(f io.ReaderAt, id cas.PackID) (objects []cas.Located, end int64, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxPack))
	if err != nil || checkPackHeader(b) != nil {
		return nil, 0, err
	}
	var plain []byte
	off, entries := packHeader, trailer
	for {
		r, err := parseRecord(b[off:], true)
		if err == nil {
			plain, err = r.decode(plain[:0])
		}
		next := off + recordHeader + len(r.payload)
		if err != nil || next+entries+footerEntry > maxPack { // the footer has to fit
			return objects, int64(off), nil
		}
		objects = append(objects, r.located(id, int64(off)))
		off, entries = next, entries+footerEntry
	}
}
