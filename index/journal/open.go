package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

// Open opens the log in dir, and makes both if they are missing. It fails with
// [index.ErrInUse] while another handle has it open, with [index.ErrCorrupt] on
// damage, and with [index.ErrNewer] on a newer format.
func Open(dir string, opt Options) (*Journal, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.FileSize <= 0 {
		opt.FileSize = 4 << 20
	}
	opt.FS = disk.Or(opt.FS)
	j := &Journal{dir: dir, opt: opt}
	if err := j.open(); err != nil {
		if j.f != nil {
			_ = j.f.Close()
		}
		if j.lock != nil {
			_ = j.lock.Close()
		}
		return nil, fmt.Errorf("open journal %s: %w", dir, cas.NoSpace(err))
	}
	return j, nil
}

func (j *Journal) open() error {
	if err := j.lockDir(); err != nil {
		return err
	}
	if err := finishForget(j.opt.FS, j.dir); err != nil {
		return err
	}
	if j.opt.Committed != nil {
		var err error
		if j.committed, err = j.opt.Committed(); err != nil {
			return err
		}
	}
	names, err := logNames(j.dir)
	if err != nil {
		return err
	}
	if len(names) == 0 && (j.opt.Existing || j.committed > 0) {
		return fmt.Errorf("%w: it has no files", index.ErrCorrupt)
	}
	for n, name := range names {
		if name != segmentName(n+1) {
			return fmt.Errorf("%w: %s is missing", index.ErrCorrupt, segmentName(n+1))
		}
		j.segments = append(j.segments, segment{path: filepath.Join(j.dir, name)})
	}
	for n := range max(len(names)-1, 0) {
		if err := j.readHeader(n); err != nil {
			return fmt.Errorf("%s: %w", j.segments[n].path, err)
		}
	}
	if len(names) > 0 {
		if err := j.openLast(); err != nil {
			return fmt.Errorf("%s: %w", j.segments[len(names)-1].path, err)
		}
	}
	if j.f == nil { // none, or one that a crash left without its header
		n := max(len(names), 1)
		f, seg, err := j.createSegment(n, j.last+1)
		if err != nil {
			return err
		}
		j.f, j.size = f, fileHeaderSize
		j.segments = append(j.segments[:n-1], seg)
	}
	return nil
}

// logNames lists the directory's log files in order.
func logNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".log" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// lockDir opens the directory and takes its flock, which ends with the process.
func (j *Journal) lockDir() error {
	if j.opt.Existing {
		if _, err := os.Stat(j.dir); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: it is missing", index.ErrCorrupt)
		}
	}
	err := j.opt.FS.Mkdir(j.dir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if j.lock, err = os.Open(j.dir); err != nil {
		return err
	}
	if made {
		if err := disk.Own(j.dir, filepath.Dir(j.dir)); err != nil {
			return err
		}
		if err := j.opt.FS.SyncDir(filepath.Dir(j.dir)); err != nil {
			return err
		}
	}
	err = unix.Flock(int(j.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return index.ErrInUse
	}
	return err
}

// readHeader reads the header of the n-th segment, which is not the last.
func (j *Journal) readHeader(n int) error {
	f, err := os.Open(j.segments[n].path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var b [fileHeaderSize]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return fmt.Errorf("%w: no whole file header: %w", index.ErrCorrupt, err)
	}
	first, err := readFileHeader(b[:])
	if err != nil {
		return err
	}
	return j.place(n, first)
}

// place checks that a segment's first number can follow the segment before.
func (j *Journal) place(n int, first uint64) error {
	if n == 0 && first != 1 || n > 0 && first <= j.segments[n-1].first {
		return fmt.Errorf("%w: it begins with entry %d", index.ErrCorrupt, first)
	}
	j.segments[n].first = first
	return nil
}

// openLast checks the whole last segment, cuts off what a crash left at its end
// and opens it for appending. Without a file header (the crash came while the
// file was made) it leaves j.f nil and j.last at the entry before.
func (j *Journal) openLast() error {
	n := len(j.segments) - 1
	seg := &j.segments[n]
	data, err := os.ReadFile(seg.path)
	if err != nil {
		return err
	}
	first, err := readFileHeader(data)
	if errors.Is(err, index.ErrCorrupt) && len(data) <= fileHeaderSize && (n > 0 || !j.opt.Existing) {
		// The header is durable before the first frame is written, so there was none. That
		// of a log's first file is durable before the log is one that exists.
		if n > 0 {
			if j.last, err = j.lastOf(n - 1); err != nil {
				return err
			}
		}
		if err := j.complete(); err != nil {
			return err
		}
		j.report(seg.path, 0, int64(len(data)))
		return nil
	}
	if err != nil {
		return err
	}
	if err := j.place(n, first); err != nil {
		return err
	}
	count, last, end := scan(data[fileHeaderSize:])
	j.last = first - 1 + count
	if count > 0 {
		payload, _, _, _ := readFrame(data[fileHeaderSize+last:])
		if err := checkSeq(payload, j.last); err != nil {
			return err
		}
	}
	end += fileHeaderSize
	if i := findFrame(data[end:]); i >= 0 {
		return fmt.Errorf("%w: entry %d at byte %d, and a valid entry follows at byte %d",
			index.ErrCorrupt, j.last+1, end, end+i)
	}
	if err := j.complete(); err != nil {
		return err
	}
	if rest := data[end:]; len(rest) > 0 && !unfinished(rest, int64(end)) {
		return fmt.Errorf("%w: the last entry, %d at byte %d, which may have been acknowledged", index.ErrCorrupt, j.last+1, end)
	}
	f, err := j.opt.FS.OpenFile(seg.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	j.f, j.size = f, int64(end)
	rest := int64(len(data) - end)
	if rest > 0 {
		if err := f.Truncate(j.size); err != nil {
			return fmt.Errorf("cut off an unfinished entry: %w", err)
		}
	}
	// A process that was killed between its write and its fsync has left an entry that
	// is seen from now on. What follows from it must not outlive it.
	if rest > 0 || j.last > j.committed {
		if err := errors.Join(f.Sync(), j.opt.FS.SyncDir(j.dir)); err != nil {
			return fmt.Errorf("make the last entries durable: %w", err)
		}
	}
	if rest > 0 {
		j.report(seg.path, j.size, rest)
	}
	return nil
}

// complete fails if an entry is missing that was committed for certain.
func (j *Journal) complete() error {
	if j.last >= j.committed {
		return nil
	}
	return fmt.Errorf("%w: it ends with entry %d, and entry %d was applied to the index", index.ErrCorrupt, j.last, j.committed)
}

// lastOf counts a segment that is not the last, for the rare case that the last
// one is without a header.
func (j *Journal) lastOf(n int) (uint64, error) {
	data, err := os.ReadFile(j.segments[n].path)
	if err != nil {
		return 0, err
	}
	count, _, end := scan(data[fileHeaderSize:])
	if fileHeaderSize+end != len(data) {
		return 0, fmt.Errorf("%w: %s at byte %d", index.ErrCorrupt, j.segments[n].path, fileHeaderSize+end)
	}
	return j.segments[n].first - 1 + count, nil
}

func (j *Journal) report(path string, at, size int64) {
	j.cut += size
	j.opt.Logger.Warn("cut an unfinished entry off the journal", "file", path, "offset", at, "bytes", size)
}

// checkSeq compares only the number: the type may be one of a newer version.
func checkSeq(data []byte, want uint64) error {
	var p payload
	if err := decMode.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%w: entry %d: %w", index.ErrCorrupt, want, err)
	}
	if p.Seq != want {
		return fmt.Errorf("%w: entry %d stands where %d is due", index.ErrCorrupt, p.Seq, want)
	}
	return nil
}
