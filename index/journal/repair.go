package journal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

// A Gap is a run of entries that are lost.
type Gap struct {
	First, Last uint64 // their numbers
	// Before is the time of the entry that follows; zero: none does. Then the gap may
	// be longer than it seems.
	Before time.Time
	// Found is what stands in their place now, as far as it was known.
	Found []Entry
}

// RepairOptions of [Repair].
type RepairOptions struct {
	FS        disk.FS
	Committed uint64 // the number of an entry that there was for certain; 0: nothing is known
	Aside     string // the folder for copies of what was damaged, made if need be
	// Fill tells what is known of the entries of a gap, in order: their times and
	// events. Of more than are lost the first ones are taken, unless Before is zero.
	Fill func(g Gap, kept []Entry) ([]Entry, error)
}

// Repaired is what [Repair] found and did.
type Repaired struct {
	Last   uint64 // the number of the last whole entry; 0: there was none
	Gaps   []Gap
	Copies []string // of files that were damaged, as they were
}

// Repair mends a damaged log in dir that nobody has open. All whole entries keep their
// numbers. In place of each lost one comes what Fill knows of it, or a [Lost]. Files
// that change are copied to Aside before. Where nothing is wrong nothing changes.
// Interrupted at any point it can be run again. It fails with [index.ErrInUse] and
// [index.ErrNewer].
func Repair(dir string, opt RepairOptions) (Repaired, error) {
	r := &repair{dir: dir, opt: opt}
	r.opt.FS = disk.Or(opt.FS)
	j := &Journal{dir: dir, opt: Options{FS: r.opt.FS, Logger: slog.New(slog.DiscardHandler)}}
	if err := j.lockDir(); err != nil {
		return Repaired{}, fmt.Errorf("repair journal %s: %w", dir, err)
	}
	defer func() { _ = j.lock.Close() }()
	err := finishForget(r.opt.FS, dir)
	if err == nil {
		err = r.read()
	}
	r.Last = r.last()
	if err == nil {
		err = r.fill()
	}
	if err == nil && (r.broken || len(r.Gaps) > 0) {
		err = r.write()
	}
	if err != nil {
		return r.Repaired, fmt.Errorf("repair journal %s: %w", dir, cas.NoSpace(err))
	}
	return r.Repaired, nil
}

// repair is a log on its way to be whole.
type repair struct {
	dir    string
	opt    RepairOptions
	names  []string // of the files there are
	kept   []keptFrame
	broken bool // there is something that no crash explains
	atEnd  bool // behind the last entry
	Repaired
}

// keptFrame is a whole entry and the file, by its place in names, that it is in.
type keptFrame struct {
	Entry
	frame []byte
	file  int
}

// read takes all whole frames, and what an earlier repair left goes.
func (r *repair) read() (err error) {
	if r.names, err = logNames(r.dir); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(r.dir, ".*.log-*")) // by one that was killed
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := r.opt.FS.Remove(path); err != nil {
			return err
		}
	}
	for i, name := range r.names {
		data, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		if err := r.readFile(i, data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name != segmentName(i+1) {
			r.broken = true
		}
	}
	return nil
}

func (r *repair) readFile(i int, data []byte) error {
	last := i == len(r.names)-1
	at := fileHeaderSize
	if first, err := readFileHeader(data); errors.Is(err, index.ErrNewer) {
		return err
	} else if err != nil {
		at = 0
		if !last || i == 0 || len(data) > fileHeaderSize { // else a crash left it without its header
			r.damage()
		}
	} else if first != r.last()+1 {
		r.broken = true
	}
	for at < len(data) {
		_, sum, size, err := readFrame(data[at:])
		if err != nil {
			next := findFrame(data[at:])
			if next < 0 {
				if !last || at > 0 && !unfinished(data[at:], int64(at)) {
					r.damage()
				}
				return nil
			}
			at += next
			r.damage()
			continue
		}
		frame := data[at : at+size]
		at += size
		e, err := decodePayload(frame[frameHeaderSize:])
		if errors.Is(err, index.ErrNewer) {
			return err
		}
		if err != nil || e.Seq <= r.last() { // no entry of ours, or one that is there
			r.broken = true
			continue
		}
		e.Sum, r.atEnd = sum, false
		r.kept = append(r.kept, keptFrame{e, frame, i})
	}
	return nil
}

func (r *repair) damage() { r.broken, r.atEnd = true, true }

// last is the number of the last entry that was kept.
func (r *repair) last() uint64 {
	if len(r.kept) == 0 {
		return 0
	}
	return r.kept[len(r.kept)-1].Seq
}

// fill finds the gaps and what belongs into them.
func (r *repair) fill() error {
	var entries []Entry
	next := uint64(1)
	for _, k := range r.kept {
		if k.Seq > next {
			r.Gaps = append(r.Gaps, Gap{First: next, Last: k.Seq - 1, Before: k.Time})
		}
		next = k.Seq + 1
		entries = append(entries, k.Entry)
	}
	end := r.opt.Committed
	if r.atEnd || len(r.names) == 0 {
		end = max(end, next) // one at least
	}
	if end >= next {
		r.Gaps = append(r.Gaps, Gap{First: next, Last: end})
	}
	for i := range r.Gaps {
		g := &r.Gaps[i]
		found, err := r.opt.Fill(*g, entries)
		if err != nil {
			return err
		}
		if most := g.Last - g.First + 1; uint64(len(found)) > most {
			if g.Before.IsZero() {
				g.Last = g.First + uint64(len(found)) - 1
			} else {
				found = found[:most]
			}
		}
		for n := range found {
			found[n].Seq = g.First + uint64(n)
		}
		g.Found = found
	}
	return nil
}

// write replaces the files that are to be others, one after the other, the first ones
// first: what a crash leaves has all that was kept.
func (r *repair) write() error {
	files, err := r.files()
	if err != nil {
		return err
	}
	for i, data := range files {
		path := filepath.Join(r.dir, segmentName(i+1))
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, data) {
			continue
		}
		if err == nil {
			err = r.setAside(path, old)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := r.put(path, data); err != nil {
			return err
		}
	}
	for _, name := range r.names {
		if name > segmentName(len(files)) {
			path := filepath.Join(r.dir, name)
			old, err := os.ReadFile(path)
			if err == nil {
				err = errors.Join(r.setAside(path, old), r.opt.FS.Remove(path))
			}
			if err != nil {
				return err
			}
		}
	}
	return r.opt.FS.SyncDir(r.dir)
}

// files are the contents of the log's files as they are to be.
func (r *repair) files() ([][]byte, error) {
	var files [][]byte
	file := 0 // the one that the last entry is in
	add := func(seq uint64, in int, frame []byte) {
		if len(files) == 0 || in > file {
			files = append(files, fileHeader(seq))
			file = in
		}
		files[len(files)-1] = append(files[len(files)-1], frame...)
	}
	gaps := r.Gaps
	fill := func(upTo uint64) error {
		for len(gaps) > 0 && gaps[0].First < upTo {
			g := gaps[0]
			gaps = gaps[1:]
			for seq := g.First; seq <= g.Last; seq++ {
				e := Entry{Seq: seq, Time: g.Before, Event: Lost{}}
				if n := seq - g.First; n < uint64(len(g.Found)) {
					e = g.Found[n]
				} else if e.Time.IsZero() {
					e.Time = time.Now()
				}
				data, err := encodePayload(e)
				if err != nil {
					return err
				}
				add(seq, file, appendFrame(nil, data))
			}
		}
		return nil
	}
	for _, k := range r.kept {
		if err := fill(k.Seq); err != nil {
			return nil, err
		}
		add(k.Seq, k.file, k.frame)
	}
	return files, fill(^uint64(0))
}

// setAside copies what a file was.
func (r *repair) setAside(path string, data []byte) error {
	if err := r.opt.FS.Mkdir(r.opt.Aside, 0o700); err == nil {
		if err := errors.Join(disk.Own(r.opt.Aside, r.dir), r.opt.FS.SyncDir(filepath.Dir(r.opt.Aside))); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	to := filepath.Join(r.opt.Aside, filepath.Base(path)+"."+time.Now().UTC().Format("20060102-150405.000000000"))
	r.Copies = append(r.Copies, to)
	return r.put(to, data)
}

// put replaces a file atomically and durably.
func (r *repair) put(path string, data []byte) error {
	beside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text())
	f, err := r.opt.FS.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, disk.Own(beside, r.dir), f.Sync(), f.Close())
	if err == nil {
		err = r.opt.FS.Rename(beside, path)
	}
	if err != nil {
		_ = r.opt.FS.Remove(beside)
		return err
	}
	return r.opt.FS.SyncDir(filepath.Dir(path))
}
