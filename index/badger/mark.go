package badger

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/internal/disk"
)

// The states of a mark.
const (
	stateBuilding = "building" // a rebuild has begun: worth nothing until it is over
	stateOpen     = "open"     // written to since the last clean close: good during the same boot only
	stateClean    = "clean"    // all of it is durable
)

const markName = "mark"

// A mark is the file that says how far the database beside it can be trusted
// when it is opened. It is one line of fixed length, written in place with one
// write, so a crash leaves the old one, the new one, or one whose checksum is
// wrong. An unreadable mark means a rebuild.
//
//   - clean: trusted. It stays while a process only reads.
//   - open, same boot: the process was killed. What it wrote to files and mapped
//     memory is in the kernel's cache; the journal's tail brings the rest.
//   - open, other boot: the machine crashed, anything may be missing. Rebuild.
//   - building: rebuild.
//
// It also has the number of an entry that was acknowledged, so that a journal which
// ends before that is found out even where the database cannot be read.
type mark struct {
	f disk.File

	mu    sync.Mutex
	state string // empty: there is no valid mark
	boot  string
	seq   uint64
}

// openMark opens the directory's mark, or makes an empty one. One that cannot be
// opened (it belongs to somebody else) is replaced.
func openMark(fsys disk.FS, dir string) (*mark, error) {
	path := filepath.Join(dir, markName)
	const flags = os.O_RDWR | os.O_CREATE
	f, err := fsys.OpenFile(path, flags, 0o600)
	if err != nil {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
		if f, err = fsys.OpenFile(path, flags, 0o600); err != nil {
			return nil, err
		}
	}
	m := &mark{f: f}
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0) // what cannot be read is no valid mark
	m.parse(b[:n])
	return m, nil
}

// Committed returns the number of an entry that was committed for certain, by the mark
// in dir; 0: nothing is known.
func Committed(dir string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var m mark
	m.parse(b)
	return m.seq, err
}

func markLine(state, boot string, seq uint64) []byte {
	b := fmt.Appendf(nil, "snapfs index 1 %-8s %-40.40s %016x ", state, boot, seq)
	return fmt.Appendf(b, "%08x\n", crc32.ChecksumIEEE(b))
}

func (m *mark) parse(b []byte) {
	fields := strings.Fields(string(b))
	if len(fields) != 7 {
		return
	}
	state, boot := fields[3], fields[4]
	seq, err := strconv.ParseUint(fields[5], 16, 64)
	if err == nil && bytes.Equal(b, markLine(state, boot, seq)) {
		m.state, m.boot, m.seq = state, boot, seq
	}
}

// set writes a new state; durable makes it survive a crash of the machine. seq is
// an entry that was acknowledged; an earlier one changes nothing.
func (m *mark) set(state, boot string, seq uint64, durable bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq = max(m.seq, seq)
	if _, err := m.f.WriteAt(markLine(state, boot, m.seq), 0); err != nil {
		return err
	}
	if durable {
		if err := m.f.Datasync(); err != nil {
			return err
		}
	}
	m.state, m.boot = state, boot
	return nil
}

func (m *mark) is(state string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == state
}

func (m *mark) close() error { return m.f.Close() }

// doubt says why the database cannot be trusted; empty: it can.
func (m *mark) doubt(boot string) string {
	switch {
	case m.state == stateClean, m.state == stateOpen && m.boot == boot:
		return ""
	case m.state == "":
		return "it is new, or its mark is damaged"
	case m.state == stateOpen:
		return "the machine went down while it was open"
	case m.state == stateBuilding:
		return "an earlier rebuild did not end"
	}
	return "its mark says " + m.state
}

// bootID asks the kernel. Without an answer each process is a boot of its own.
func bootID() string {
	if id := disk.BootID(); id != "" {
		return id
	}
	return fmt.Sprintf("unknown-%d", os.Getpid())
}

// syncFiles makes all files of dir durable, and then their names.
func syncFiles(fsys disk.FS, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != markName {
			if err := syncFile(fsys, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return fsys.SyncDir(dir)
}

func syncFile(fsys disk.FS, path string) error {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// giveToOwner gives what root made in a user's index to that user.
func giveToOwner(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := disk.Own(filepath.Join(dir, e.Name()), dir); err != nil {
			return err
		}
	}
	return nil
}
