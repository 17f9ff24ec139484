// Package journal is the append-only, numbered log of every change of a mutable
// thing. Its fsync is the commit point: what [Journal.Append] returned is
// durable, and every index can be rebuilt from it together with the packs.
//
// The log is a row of files 00000001.log, 00000002.log and so on, each a header
// and then frames (magic, length, CRC32C, payload). Only the last one is ever
// written, and only at its end. The payload is deterministic CBOR: the entry's
// number, time, type, and the type's own fields. No entry is ever removed; only
// [Journal.Forget] changes some, so that they do not tell any more what was deleted.
//
// A crash can leave part of a frame at the end of the last file. [Open] cuts
// that off: the entry was never acknowledged. Damage that a valid frame follows,
// or that took an entry which an index has applied, cannot come from a crash; it
// is [index.ErrCorrupt], and nothing is changed.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

// Options are for [Open]; the zero value works.
type Options struct {
	Logger *slog.Logger // nil discards
	// FileSize is the length in bytes from which on the next entry goes to a new
	// file; 0: 4 MiB. Opening reads the last file only.
	FileSize int64
	// Committed tells the number of an entry that was committed for certain, since
	// an index has applied it. A log that ends before it has lost something, and
	// what may look like an unfinished entry at its end is damage: it is
	// [index.ErrCorrupt] and nothing is changed. It is called with the journal's
	// lock held. Nil: nothing is known.
	Committed func() (uint64, error)
	// Existing refuses to make a log where there is none: then one was lost.
	Existing bool
	// FS changes the log's files; nil: the operating system's.
	FS disk.FS
}

// A segment is one file of the log.
type segment struct {
	path  string
	first uint64 // number of its first entry, or of the one to come
}

// A Journal is an open log. Its methods may be called concurrently.
type Journal struct {
	dir  string
	lock *os.File // the directory, with a flock on it
	opt  Options

	mu       sync.Mutex
	segments []segment
	f        disk.File // the last segment
	size     int64     // its length in whole frames, in bytes
	last     uint64    // number of the last entry
	// committed is an entry that there must be.
	committed uint64
	cut       int64
	broken    error // why nothing can be appended any more
	closed    bool
}

// Append commits one event: when it returns an entry, the entry is durable. When
// it fails, nothing was appended; on a full disk the error wraps
// [cas.ErrNoSpace].
func (j *Journal) Append(ev Event) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return Entry{}, fmt.Errorf("append to journal: %w", index.ErrClosed)
	case j.broken != nil:
		return Entry{}, fmt.Errorf("append to journal: an earlier failure could not be undone, open it again: %w", j.broken)
	}
	e := Entry{Seq: j.last + 1, Time: time.Now().UTC().Round(0), Event: ev}
	data, err := encodePayload(e)
	if err != nil {
		return Entry{}, fmt.Errorf("append to journal: encode event: %w", err)
	}
	if len(data) > maxPayload {
		return Entry{}, fmt.Errorf("append to journal: event of %d bytes: %w", len(data), cas.ErrTooLarge)
	}
	if j.size >= j.opt.FileSize {
		if err := j.rotate(); err != nil {
			return Entry{}, fmt.Errorf("append to journal: %w", cas.NoSpace(err))
		}
	}
	frame := appendFrame(nil, data)
	if err := write(j.f, frame); err != nil {
		j.undo()
		return Entry{}, fmt.Errorf("append to journal: %w", cas.NoSpace(err))
	}
	_, e.Sum, _, _ = readFrame(frame)
	j.size += int64(len(frame))
	j.last = e.Seq
	return e, nil
}

// write is the commit: one write(2), then one fsync.
func write(f disk.File, frame []byte) error {
	if _, err := f.Write(frame); err != nil {
		return err
	}
	return f.Sync()
}

// undo takes back a failed append. If that fails too, the file's end is unknown
// and the journal takes nothing more.
func (j *Journal) undo() {
	err := j.f.Truncate(j.size)
	if err == nil {
		err = j.f.Sync()
	}
	j.broken = err
}

// rotate begins a new file. The old one stays the last until the new one is
// durable under its name.
func (j *Journal) rotate() error {
	n := len(j.segments) + 1
	f, seg, err := j.createSegment(n, j.last+1)
	if err != nil {
		return err
	}
	old := j.f
	j.f, j.size = f, fileHeaderSize
	j.segments = append(j.segments, seg)
	_ = old.Close() // all of it is durable
	return nil
}

func (j *Journal) createSegment(n int, first uint64) (disk.File, segment, error) {
	seg := segment{path: filepath.Join(j.dir, segmentName(n)), first: first}
	f, err := j.opt.FS.OpenFile(seg.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, seg, err
	}
	err = func() error {
		if err := disk.Own(seg.path, j.dir); err != nil {
			return err
		}
		if err := write(f, fileHeader(first)); err != nil {
			return err
		}
		return j.opt.FS.SyncDir(j.dir)
	}()
	if err != nil {
		_ = f.Close()
		_ = j.opt.FS.Remove(seg.path)
		return nil, seg, err
	}
	return f, seg, nil
}

// Last returns the number of the last entry; 0: there is none.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Cut returns how many bytes of an unfinished entry [Open] removed.
func (j *Journal) Cut() int64 { return j.cut }

// Close frees the journal. There is nothing left to write. A second call does
// nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	// Given back by name: a child that is being forked at this moment has the
	// directory open too, for an instant.
	unlock := unix.Flock(int(j.lock.Fd()), unix.LOCK_UN)
	return errors.Join(j.f.Close(), unlock, j.lock.Close())
}

func segmentName(n int) string { return fmt.Sprintf("%08d.log", n) }
