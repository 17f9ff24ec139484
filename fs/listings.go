package fs

import (
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// listings are answers to READDIRPLUS that were made before they were asked for:
// who walks a tree lists the directories next that are in the one just listed, in
// order, and waits for each. They are made while the program that walks has its
// turn.
type listings struct {
	mu    sync.Mutex
	dirs  []uint64 // node ids of directories to be listed, the next one last
	ready map[uint64]madeListing
	order []uint64 // of ready, the oldest first
	buf   []byte
}

// madeListing is the first page of a directory, with a reference to each node in
// it, which becomes the kernel's with the answer.
type madeListing struct {
	data  []byte
	nodes []uint64
}

const (
	// maxDirs bounds the directories that are still to be listed.
	maxDirs = 256
	// maxListings bounds the answers that wait.
	maxListings = 64
	// listingSize is the buffer that the C library has for a listing, in bytes.
	listingSize = 32 << 10
)

// follow notes the directories in one that was listed.
func (l *listings) follow(dirs []uint64) {
	if len(dirs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.dirs) + len(dirs) - maxDirs; n > 0 {
		l.dirs = slices.Delete(l.dirs, 0, min(n, len(l.dirs)))
	}
	for _, id := range slices.Backward(dirs[:min(len(dirs), maxDirs)]) {
		l.dirs = append(l.dirs, id)
	}
}

// take returns the answer for a directory if there is one that fits.
func (l *listings) take(id uint64, size int) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	made, ok := l.ready[id]
	if !ok || len(made.data) > size {
		return nil, false
	}
	delete(l.ready, id)
	l.order = slices.DeleteFunc(l.order, func(other uint64) bool { return other == id })
	return made.data, true
}

// make makes the answer for the next directory; false: there is none to be made
// now. Only the leader calls it.
func (l *listings) make(f *FS) bool {
	l.mu.Lock()
	n := len(l.dirs)
	if n == 0 || len(l.order) == maxListings {
		l.mu.Unlock()
		return false
	}
	id := l.dirs[n-1]
	l.dirs = l.dirs[:n-1]
	_, there := l.ready[id]
	l.mu.Unlock()
	if there {
		return true
	}
	if !f.atHand(id) {
		return true
	}
	if l.buf == nil {
		l.buf = make([]byte, listingSize)
	}
	var made madeListing
	out := fuse.NewDirEntryList(l.buf, 0)
	in := &fuse.ReadIn{InHeader: fuse.InHeader{NodeId: id}}
	if status := f.listPlus(in, out, &made.nodes); status != fuse.OK {
		return true // who asks for it is told
	}
	made.data = slices.Clone(out.Bytes())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready == nil {
		l.ready = map[uint64]madeListing{}
	}
	l.ready[id] = made
	l.order = append(l.order, id)
	return true
}

// atHand reports whether a directory can be listed without waiting for a disk.
func (f *FS) atHand(id uint64) bool {
	d, ok := f.node(id).(*treeDir)
	if !ok {
		return false
	}
	obj, err := f.store.Trees().Open(f.hasty, d.hash)
	return err == nil && obj.Whole()
}

// clear drops what nobody asked for, and the references with it.
func (l *listings) clear(f *FS) {
	l.mu.Lock()
	ready := l.ready
	l.ready, l.order, l.dirs = nil, nil, nil
	l.mu.Unlock()
	for _, made := range ready {
		for _, id := range made.nodes {
			f.forget(id, 1)
		}
	}
}
