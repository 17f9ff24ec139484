package disktest

import (
	"bytes"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/internal/disk"
)

// file is an open file of a [Disk].
type file struct {
	disk.File
	d       *Disk
	n       *node
	appends bool
	at      int64 // where the next Write goes, unless it appends
}

// Write implements [disk.File].
func (f *file) Write(b []byte) (n int, err error) {
	return f.put(b, func() int64 {
		if !f.appends {
			return f.at
		}
		info, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			panic(err)
		}
		return info.Size()
	}, f.File.Write)
}

// WriteAt implements [disk.File].
func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	return f.put(b, func() int64 { return off }, func(b []byte) (int, error) { return f.File.WriteAt(b, off) })
}

// put writes at the offset that where tells, or a part of it.
func (f *file) put(b []byte, where func() int64, write func(b []byte) (int, error)) (n int, err error) {
	some := func(b []byte) (err error) {
		off := where()
		n, err = write(b)
		f.at = off + int64(n)
		f.n.put(off, b[:n])
		return err
	}
	err = f.d.do("write", f.Name(), func() error { return some(b) }, func() { _ = some(b[:f.d.rand.IntN(len(b)+1)]) })
	return n, err
}

func (n *node) put(off int64, data []byte) {
	n.writes = append(n.writes, write{off: off, data: bytes.Clone(data)})
}

// Truncate implements [disk.File].
func (f *file) Truncate(size int64) error {
	return f.d.do("truncate", f.Name(), func() error {
		err := f.File.Truncate(size)
		if err == nil {
			f.n.writes = append(f.n.writes, write{off: size, cut: true})
		}
		return err
	}, nil)
}

// Sync implements [disk.File].
func (f *file) Sync() error {
	return f.d.do("sync", f.Name(), func() error {
		data, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err == nil {
			f.n.durable, f.n.writes = data, nil
		}
		return err
	}, nil)
}

// Datasync implements [disk.File].
func (f *file) Datasync() error { return f.Sync() }
