// Package disktest has a disk that fails, or loses power, at a chosen operation.
//
// A [Disk] does what it is told on a directory of the real file system, and keeps
// account of what would be left of it if the power went: of each file the bytes that
// it had when it was synced last, of each directory the names. [Disk.Crash] writes
// that down elsewhere. What is beyond it may be there too, as on a real disk: writes
// up to any byte, changes of names up to any one.
package disktest

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/internal/disk"
)

// ErrPowerLost is what every operation fails with once the power is lost.
var ErrPowerLost = errors.New("the power is lost")

// A Fault is what goes wrong.
type Fault struct {
	At    int   // with which operation from now on, counted from 1; 0: nothing
	Err   error // what it fails with; a write may have done a part
	Power bool  // the power is lost in the middle of it, instead
	Lasts bool  // all operations after it fail with Err, too
}

// A Disk is a [disk.FS]. It counts what changes something, syncs included; to read
// is no operation. What others write below its directory without it counts as
// written and not synced.
type Disk struct {
	root string

	mu      sync.Mutex
	rand    *rand.Rand
	ops     int
	fault   Fault
	last    string // the operation that the fault met; empty: none yet
	down    bool
	base    map[string]*node // by path: durable when the disk was made
	nodes   map[uint64]*node // by inode number
	changes []change         // of names, in order
	there   map[string]*node // by path: what there was when the power went
}

// A node is a file or a directory.
type node struct {
	dir     bool
	durable []byte
	writes  []write // since then
	current []byte  // of a file that others write, when the power went
}

// A write puts data at an offset, or cuts the file there.
type write struct {
	off  int64
	data []byte
	cut  bool
}

// A change is one of names. An empty from makes a name, an empty to removes one.
type change struct {
	from, to string
	node     *node
	durable  bool
}

// New returns a disk with what is below root now, all of it durable. What chance
// decides follows from seed.
func New(root string, seed uint64) (*Disk, error) {
	d := &Disk{root: root, rand: rand.New(rand.NewPCG(seed, 1)), nodes: map[uint64]*node{}, base: map[string]*node{}}
	err := d.walk(func(path string, n *node, data []byte) {
		n.durable = data
		d.base[path] = n
	})
	return d, err
}

// walk calls fn for every directory and regular file.
func (d *Disk) walk(fn func(path string, n *node, data []byte)) error {
	return filepath.WalkDir(d.root, func(path string, e iofs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		n, err := d.nodeOf(path)
		if err != nil {
			return err
		}
		var data []byte
		if !n.dir {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fn(path, n, data)
		return nil
	})
}

// nodeOf returns the node of what lies at a path; mu is held or nobody else is there.
func (d *Disk) nodeOf(path string) (*node, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	ino := info.Sys().(*syscall.Stat_t).Ino
	n := d.nodes[ino]
	if n == nil || n.dir != info.IsDir() {
		n = &node{dir: info.IsDir()}
		d.nodes[ino] = n
	}
	return n, nil
}

// made notes a new name.
func (d *Disk) made(path string) (*node, error) {
	d.forget(path) // the number may have been another file's
	n, err := d.nodeOf(path)
	d.changes = append(d.changes, change{to: path, node: n})
	return n, err
}

// forget drops the inode number of what lies at a path, which may be given to
// another file when this one goes.
func (d *Disk) forget(path string) {
	if info, err := os.Lstat(path); err == nil {
		delete(d.nodes, info.Sys().(*syscall.Stat_t).Ino)
	}
}

// freeze notes what there is now.
func (d *Disk) freeze() error {
	d.there = map[string]*node{}
	return d.walk(func(path string, n *node, data []byte) { d.there[path], n.current = n, data })
}

// Arm has a fault happen. It replaces one that has not happened.
func (d *Disk) Arm(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.At > 0 {
		f.At += d.ops
	}
	d.fault, d.last = f, ""
}

// Met tells the operation that the fault met; empty: it has not happened.
func (d *Disk) Met() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// Restart has the operations after a lost power work again, as if only a process had
// been killed: all that it wrote is there, and no more durable than before.
func (d *Disk) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.fault, d.last = false, Fault{}, ""
}

// Ops returns how many operations there were.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// do runs one operation. part does a part of it, where it can be done in part.
func (d *Disk) do(what, path string, all func() error, part func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return &os.PathError{Op: what, Path: path, Err: ErrPowerLost}
	}
	d.ops++
	lasting := d.last != "" && d.fault.Lasts
	if d.ops != d.fault.At && !lasting {
		return all()
	}
	if !lasting {
		d.last = fmt.Sprintf("%s %s", what, path[min(len(d.root)+1, len(path)):])
	}
	if part != nil {
		part()
	} else if d.fault.Power && d.rand.IntN(2) == 0 {
		_ = all() // it was done, and nobody was told
	}
	if !d.fault.Power {
		return &os.PathError{Op: what, Path: path, Err: d.fault.Err}
	}
	d.down = true
	if err := d.freeze(); err != nil {
		panic(err)
	}
	return &os.PathError{Op: what, Path: path, Err: ErrPowerLost}
}

// OpenFile implements [disk.FS].
func (d *Disk) OpenFile(path string, flag int, perm iofs.FileMode) (disk.File, error) {
	var f disk.File
	var n *node
	open := func() (err error) {
		_, serr := os.Lstat(path)
		if f, err = disk.OS.OpenFile(path, flag, perm); err != nil {
			return err
		}
		if errors.Is(serr, iofs.ErrNotExist) {
			n, err = d.made(path)
			return err
		}
		if n, err = d.nodeOf(path); err == nil && flag&os.O_TRUNC != 0 {
			n.writes = append(n.writes, write{cut: true})
		}
		return err
	}
	var err error
	if _, serr := os.Lstat(path); flag&os.O_TRUNC != 0 || errors.Is(serr, iofs.ErrNotExist) && flag&os.O_CREATE != 0 {
		err = d.do("open", path, open, nil)
	} else {
		d.mu.Lock()
		err = open()
		d.mu.Unlock()
	}
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, err
	}
	return &file{File: f, d: d, n: n, appends: flag&os.O_APPEND != 0}, nil
}

// Mkdir implements [disk.FS].
func (d *Disk) Mkdir(path string, perm iofs.FileMode) error {
	if _, err := os.Lstat(path); err == nil {
		return os.Mkdir(path, perm) // fails
	}
	return d.do("mkdir", path, func() error {
		if err := os.Mkdir(path, perm); err != nil {
			return err
		}
		_, err := d.made(path)
		return err
	}, nil)
}

// Rename implements [disk.FS]; it is for files.
func (d *Disk) Rename(from, to string) error {
	return d.do("rename", to, func() error {
		n, err := d.nodeOf(from)
		if err == nil {
			d.forget(to)
			err = os.Rename(from, to)
		}
		if err == nil {
			d.changes = append(d.changes, change{from: from, to: to, node: n})
		}
		return err
	}, nil)
}

// Remove implements [disk.FS].
func (d *Disk) Remove(path string) error {
	return d.do("remove", path, func() error {
		d.forget(path)
		err := os.Remove(path)
		if err == nil {
			d.changes = append(d.changes, change{from: path})
		}
		return err
	}, nil)
}

// SyncDir implements [disk.FS].
func (d *Disk) SyncDir(path string) error {
	return d.do("sync", path, func() error {
		for i, c := range d.changes {
			if c.to != "" && filepath.Dir(c.to) == path || c.to == "" && filepath.Dir(c.from) == path {
				d.changes[i].durable = true
			}
		}
		return d.adopt(path)
	}, nil)
}

// adopt makes names durable that others made and removed in a directory.
func (d *Disk) adopt(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	now := d.names(func(change) bool { return true })
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		there[path] = true
		if n, err := d.nodeOf(path); err == nil && now[path] != n && e.Type().IsRegular() {
			d.changes = append(d.changes, change{to: path, node: n, durable: true})
		}
	}
	for path := range now {
		if filepath.Dir(path) == dir && !there[path] {
			d.changes = append(d.changes, change{from: path, durable: true})
		}
	}
	return nil
}

// names applies those changes for which keep holds to what there was at first.
func (d *Disk) names(keep func(change) bool) map[string]*node {
	all := make(map[string]*node, len(d.base))
	for path, n := range d.base {
		all[path] = n
	}
	for _, c := range d.changes {
		if !keep(c) {
			continue
		}
		if c.from != "" {
			delete(all, c.from)
		}
		if c.to != "" {
			all[c.to] = c.node
		}
	}
	return all
}
