package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// nextDir is a folder in the log's with files that are to take the places of others. It
// is worth nothing without its file completeName.
const (
	nextDir      = "next"
	completeName = "complete"
)

// Forget takes the texts and hashes of all that was deleted by entry number upTo out of
// the log: ids, names and media types. Others stand in for ids; which entries there are,
// their numbers, times and what comes of them all stays. A name that a checkpoint had
// before the one that it has goes, too. Of leases only the entries of those stay that
// live names by their fences: of the others nothing is left. It returns how many entries
// have changed.
//
// All of them change, or none: the files are made in a folder of their own, a last name
// in it decides, and [Open] and [Repair] end what was interrupted. Checksums of entries
// change: an index that has applied them must be made anew, and has to know before.
func (j *Journal) Forget(upTo uint64, live map[uint64]bool) (changed int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.broken != nil {
		return 0, fmt.Errorf("forget what was deleted: the journal is closed, or an earlier failure could not be undone: %w", errors.Join(j.broken))
	}
	changed, err = j.forget(upTo, live)
	if err != nil {
		return 0, fmt.Errorf("forget what was deleted: %w", cas.NoSpace(err))
	}
	return changed, nil
}

func (j *Journal) forget(upTo uint64, live map[uint64]bool) (changed int, err error) {
	l := newLedger(upTo)
	l.leases = live
	if err := j.each(func(_ int, e Entry, _ []byte) error { l.follow(e); return nil }); err != nil {
		return 0, err
	}
	l.again()
	staged := filepath.Join(j.dir, nextDir)
	if err := clearDir(j.opt.FS, staged); err != nil {
		return 0, err
	}
	if err := j.opt.FS.Mkdir(staged, 0o700); err != nil {
		return 0, err
	}
	decided := false
	defer func() {
		if err != nil && !decided {
			err = errors.Join(err, clearDir(j.opt.FS, staged))
		}
	}()
	if err := disk.Own(staged, j.dir); err != nil {
		return 0, err
	}
	var file []byte
	at, differs, last := 0, 0, int64(0)
	flush := func() error {
		if last = int64(len(file)); differs == 0 {
			return nil
		}
		changed += differs
		return putNew(j.opt.FS, filepath.Join(staged, filepath.Base(j.segments[at].path)), file)
	}
	file = fileHeader(j.segments[0].first)
	err = j.each(func(n int, e Entry, frame []byte) error {
		for at < n {
			if err := flush(); err != nil {
				return err
			}
			at++
			file, differs = fileHeader(j.segments[at].first), 0
		}
		if event := l.without(e); !reflect.DeepEqual(event, e.Event) {
			e.Event = event
			data, err := encodePayload(e)
			if err != nil {
				return err
			}
			if len(data) > maxPayload {
				return fmt.Errorf("entry %d of %d bytes: %w", e.Seq, len(data), cas.ErrTooLarge)
			}
			frame = appendFrame(nil, data)
			differs++
		}
		file = append(file, frame...)
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = j.opt.FS.SyncDir(staged)
	}
	if err != nil {
		return 0, err
	}
	if changed == 0 {
		return 0, clearDir(j.opt.FS, staged)
	}
	// From here on it may be decided, and what fails is done by the next Open.
	decided = true
	if err = putNew(j.opt.FS, filepath.Join(staged, completeName), nil); err == nil {
		err = j.opt.FS.SyncDir(staged)
	}
	if err == nil {
		err = finishForget(j.opt.FS, j.dir)
	}
	if err == nil && differs > 0 && at == len(j.segments)-1 {
		err = j.reopen(last)
	}
	j.broken = err
	return changed, err
}

// reopen opens the last file, which is another one now.
func (j *Journal) reopen(size int64) error {
	f, err := j.opt.FS.OpenFile(j.segments[len(j.segments)-1].path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	old := j.f
	j.f, j.size = f, size
	_ = old.Close() // nobody has it by name any more
	return nil
}

// each calls fn for every entry, with the number of its file and its frame. mu is held.
func (j *Journal) each(fn func(file int, e Entry, frame []byte) error) error {
	for n, seg := range j.segments {
		end, limit := j.last+1, j.size
		if n+1 < len(j.segments) {
			end, limit = j.segments[n+1].first, -1
		}
		var failed error
		_, err := seg.frames(0, end, limit, func(e Entry, frame []byte) bool {
			failed = fn(n, e, frame)
			return failed == nil
		})
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("%s: %w", seg.path, err)
		}
	}
	return nil
}

// finishForget ends what was decided, and removes what was not.
func finishForget(fsys disk.FS, dir string) error {
	next := filepath.Join(dir, nextDir)
	files, err := os.ReadDir(next)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	complete := filepath.Join(next, completeName)
	if _, err := os.Lstat(complete); errors.Is(err, os.ErrNotExist) {
		return clearDir(fsys, next)
	} else if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() == completeName {
			continue
		}
		if err := fsys.Rename(filepath.Join(next, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	// Their names, before the one goes that says that something is left to do.
	if err := errors.Join(fsys.SyncDir(dir), fsys.SyncDir(next)); err != nil {
		return err
	}
	if err := fsys.Remove(complete); err != nil {
		return err
	}
	if err := clearDir(fsys, next); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// clearDir removes a folder of files, if it is there.
func clearDir(fsys disk.FS, dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := fsys.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// putNew makes a file durable, but for its name.
func putNew(fsys disk.FS, path string, data []byte) error {
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, disk.Own(path, filepath.Dir(filepath.Dir(path))), f.Sync(), f.Close())
}
