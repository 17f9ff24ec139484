package disktest

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Left says how much of what was not durable a crash leaves.
type Left int

// From nothing to all.
const (
	Least Left = iota // what was synced, and nothing else
	Some              // names up to some change, of each file's writes some bytes
	Most              // everything: also what a process leaves that is killed
)

// Crash writes what the disk has after the power was lost below to, which it makes. Until
// the power is lost it is what the disk would have if that happened now.
func (d *Disk) Crash(to string, left Left) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down {
		if err := d.freeze(); err != nil {
			return err
		}
	}
	names := d.left(left)
	for _, path := range slices.Sorted(maps.Keys(names)) { // a directory before what is in it
		target := filepath.Join(to, strings.TrimPrefix(path, d.root))
		var err error
		switch n := names[path]; {
		case path == d.root:
			err = os.MkdirAll(target, 0o700)
		case names[filepath.Dir(path)] == nil:
			delete(names, path) // its directory is gone, and it with that
		case n.dir:
			err = os.Mkdir(target, 0o700)
		default:
			err = os.WriteFile(target, d.content(n, left), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// left are the names that a crash leaves.
func (d *Disk) left(left Left) map[string]*node {
	if left == Most {
		return maps.Clone(d.there)
	}
	upTo := 0 // so many changes are there, and of those that follow the durable ones
	if left == Some {
		upTo = d.rand.IntN(len(d.changes) + 1)
	}
	i := 0
	names := d.names(func(c change) bool {
		i++
		return c.durable || i <= upTo
	})
	if left == Least {
		return names
	}
	// Of what others made or removed, any part.
	ours := d.names(func(change) bool { return true })
	for _, path := range slices.Sorted(maps.Keys(d.there)) {
		if ours[path] == nil && d.rand.IntN(2) == 0 {
			names[path] = d.there[path]
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ours)) {
		if d.there[path] == nil && d.rand.IntN(2) == 0 {
			delete(names, path)
		}
	}
	return names
}

// content is what a crash leaves of a file.
func (d *Disk) content(n *node, left Left) []byte {
	if left == Least {
		return n.durable
	}
	data := bytes.Clone(n.durable)
	if len(n.writes) == 0 && n.current != nil { // what others wrote
		if left == Most {
			return n.current
		}
		if d.rand.IntN(2) == 0 {
			return data
		}
		// Any page may be the old one, or none.
		data = bytes.Clone(n.current)
		const page = 4096
		for off := 0; off < len(data); off += page {
			if d.rand.IntN(4) > 0 {
				continue
			}
			end := min(off+page, len(data))
			clear(data[off:end])
			if off < len(n.durable) {
				copy(data[off:end], n.durable[off:])
			}
		}
		return data
	}
	upTo := len(n.writes)
	if left == Some {
		upTo = d.rand.IntN(upTo + 1)
	}
	for i, w := range n.writes {
		if i > upTo {
			break
		}
		if i == upTo {
			if w.cut {
				break
			}
			w.data = w.data[:d.rand.IntN(len(w.data)+1)]
		}
		data = w.apply(data)
	}
	return data
}

// apply returns what a file with these bytes has after the write.
func (w write) apply(data []byte) []byte {
	if w.cut {
		if int64(len(data)) > w.off {
			return data[:w.off]
		}
		return append(data, make([]byte, w.off-int64(len(data)))...)
	}
	if len(w.data) == 0 {
		return data
	}
	if end := w.off + int64(len(w.data)); end > int64(len(data)) {
		data = append(data, make([]byte, end-int64(len(data)))...)
	}
	copy(data[w.off:], w.data)
	return data
}
