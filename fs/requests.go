package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// Lookup implements [fuse.RawFileSystem].
func (f *FS) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f.count(opLookup)
	d, status := f.directory(header.NodeId)
	if status != fuse.OK {
		return status
	}
	n, err := d.lookup(name)
	if err != nil {
		return f.fail("look up "+name, header.NodeId, err)
	}
	if n == nil {
		// Node id 0: the kernel remembers that there is nothing.
		out.SetEntryTimeout(d.absent())
		return fuse.OK
	}
	f.fill(n, out)
	return fuse.OK
}

// directory returns the directory node of an id.
func (f *FS) directory(id uint64) (directory, fuse.Status) {
	n := f.node(id)
	if n == nil {
		return nil, staleNode
	}
	d, ok := n.(directory)
	if !ok {
		return nil, fuse.ENOTDIR
	}
	return d, fuse.OK
}

// GetAttr implements [fuse.RawFileSystem].
func (f *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.count(opGetattr)
	n := f.node(in.NodeId)
	if n == nil {
		return staleNode
	}
	n.attr(&out.Attr)
	out.Ino = n.number()
	out.SetTimeout(n.valid())
	return fuse.OK
}

// Readlink implements [fuse.RawFileSystem].
func (f *FS) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	f.count(opReadlink)
	switch n := f.node(header.NodeId).(type) {
	case *treeNode:
		return []byte(n.target), fuse.OK
	case *link:
		return []byte(n.target), fuse.OK
	case nil:
		return nil, staleNode
	}
	return nil, fuse.EINVAL
}

// Open answers ENOSYS: the kernel then opens files by itself and keeps their
// pages.
func (f *FS) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	f.count(opOpen)
	return fuse.ENOSYS
}

// OpenDir answers ENOSYS like Open; the kernel then keeps listings too.
func (f *FS) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	f.count(opOpendir)
	return fuse.ENOSYS
}

// Flush answers ENOSYS: nothing happens when a file is closed.
func (f *FS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status {
	f.count(opFlush)
	return fuse.ENOSYS
}

// The listings begin with "." and "..", at the offsets 0 and 1.
const dots = 2

// ReadDir implements [fuse.RawFileSystem].
func (f *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.count(opReaddir)
	return f.list(in, false, func(e listed) (bool, error) {
		return out.AddDirEntry(fuse.DirEntry{Name: e.name, Mode: e.mode, Ino: e.ino, Off: e.off}), nil
	})
}

// ReadDirPlus implements [fuse.RawFileSystem]: a listing that makes every entry
// known to the kernel.
func (f *FS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.count(opReaddirplus)
	return f.listPlus(in, out, nil)
}

// listPlus makes the answer to a READDIRPLUS. The nodes in it have a reference
// more each; their ids are added to nodes, if that is not nil.
func (f *FS) listPlus(in *fuse.ReadIn, out *fuse.DirEntryList, nodes *[]uint64) fuse.Status {
	return f.list(in, true, func(e listed) (bool, error) {
		n := e.node
		if e.make != nil {
			var err error
			if n, err = e.make(); err != nil || n == nil {
				return err == nil, err // gone meanwhile: left out
			}
		}
		if n == nil { // "." and "..": the kernel knows them
			return out.AddDirLookupEntry(fuse.DirEntry{Name: e.name, Mode: e.mode, Ino: e.ino, Off: e.off}) != nil, nil
		}
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.name, Mode: e.mode, Ino: n.number(), Off: e.off})
		if entry == nil {
			f.forget(n.nodeID(), 1) // no room: the kernel never hears of it
			return false, nil
		}
		f.fill(n, entry)
		if nodes != nil {
			*nodes = append(*nodes, n.nodeID())
		}
		return true, nil
	})
}

// list runs a listing from the request's offset on.
func (f *FS) list(in *fuse.ReadIn, plus bool, add func(e listed) (bool, error)) fuse.Status {
	d, status := f.directory(in.NodeId)
	if status != fuse.OK {
		return status
	}
	off := in.Offset
	if off < dots {
		for _, e := range []listed{{name: ".", ino: d.number()}, {name: "..", ino: d.above()}}[off:] {
			off++
			e.off, e.mode = off, unix.S_IFDIR
			if ok, _ := add(e); !ok {
				return fuse.OK
			}
		}
	}
	added := false
	var failed error
	err := d.list(off-dots, plus, func(e listed) bool {
		e.off += dots
		var more bool
		if more, failed = add(e); failed == nil && more {
			added = true
		}
		return more && failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil && !added {
		return f.fail("list", in.NodeId, err)
	}
	// What was added is given out; the next request meets the error first.
	return fuse.OK
}

// StatFs implements [fuse.RawFileSystem] with the totals of the file system that
// holds the store. Nothing is free: nothing can be written.
func (f *FS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	f.count(opStatfs)
	var st unix.Statfs_t
	if err := unix.Statfs(f.dir, &st); err != nil {
		return f.fail("statfs", fuse.FUSE_ROOT_ID, err)
	}
	out.Blocks, out.Bsize, out.Frsize = st.Blocks, uint32(st.Bsize), uint32(st.Frsize)
	out.Files = st.Files
	out.NameLen = snapshot.MaxFileName
	return fuse.OK
}
