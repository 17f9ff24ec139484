package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// Everything that would change something answers EROFS. The kernel says so by
// itself while the mount is read-only; these are for one that somebody
// remounted.

func (f *FS) deny() fuse.Status {
	f.count(opOther)
	return fuse.EROFS
}

// SetAttr implements [fuse.RawFileSystem].
func (f *FS) SetAttr(<-chan struct{}, *fuse.SetAttrIn, *fuse.AttrOut) fuse.Status { return f.deny() }

// Mknod implements [fuse.RawFileSystem].
func (f *FS) Mknod(<-chan struct{}, *fuse.MknodIn, string, *fuse.EntryOut) fuse.Status {
	return f.deny()
}

// Mkdir implements [fuse.RawFileSystem].
func (f *FS) Mkdir(<-chan struct{}, *fuse.MkdirIn, string, *fuse.EntryOut) fuse.Status {
	return f.deny()
}

// Unlink implements [fuse.RawFileSystem].
func (f *FS) Unlink(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return f.deny() }

// Rmdir implements [fuse.RawFileSystem].
func (f *FS) Rmdir(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return f.deny() }

// Rename implements [fuse.RawFileSystem].
func (f *FS) Rename(<-chan struct{}, *fuse.RenameIn, string, string) fuse.Status { return f.deny() }

// Link implements [fuse.RawFileSystem].
func (f *FS) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return f.deny()
}

// Symlink implements [fuse.RawFileSystem].
func (f *FS) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return f.deny()
}

// SetXAttr implements [fuse.RawFileSystem].
func (f *FS) SetXAttr(<-chan struct{}, *fuse.SetXAttrIn, string, []byte) fuse.Status {
	return f.deny()
}

// RemoveXAttr implements [fuse.RawFileSystem].
func (f *FS) RemoveXAttr(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return f.deny() }

// Create implements [fuse.RawFileSystem].
func (f *FS) Create(<-chan struct{}, *fuse.CreateIn, string, *fuse.CreateOut) fuse.Status {
	return f.deny()
}

// Tmpfile implements [fuse.RawFileSystem].
func (f *FS) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status { return f.deny() }

// Write implements [fuse.RawFileSystem].
func (f *FS) Write(<-chan struct{}, *fuse.WriteIn, []byte) (uint32, fuse.Status) {
	return 0, f.deny()
}

// Writev implements [fuse.RawFileSystem].
func (f *FS) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, f.deny()
}

// Fallocate implements [fuse.RawFileSystem].
func (f *FS) Fallocate(<-chan struct{}, *fuse.FallocateIn) fuse.Status { return f.deny() }

// CopyFileRange implements [fuse.RawFileSystem].
func (f *FS) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, f.deny()
}
