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
	in    uint64   // the directory that the last ones are in
	base  int      // where those begin in dirs
	stray int      // answers in a row that were not ready
	ready map[uint64]madeListing
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
	maxDirs = 4096
	// maxListings bounds the answers that wait.
	maxListings = 64
	// listingSize is the buffer that the C library has for a listing, in bytes.
	listingSize = 32 << 10
)

// follow notes the directories on a page of a listing. Those of later pages come
// after those of the first one.
func (l *listings) follow(in uint64, first bool, dirs []uint64) {
	if len(dirs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dirs)+len(dirs) > maxDirs {
		l.dirs = l.dirs[:0] // it is a guess anyway
	}
	if first || l.in != in {
		l.in, l.base = in, len(l.dirs)
	}
	slices.Reverse(dirs)
	l.dirs = slices.Insert(l.dirs, min(l.base, len(l.dirs)), dirs...)
}

// take returns the answer for a directory if there is one that fits. If not, none
// needs to be made any more.
func (l *listings) take(id uint64, size int) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	made, ok := l.ready[id]
	if !ok || len(made.data) > size {
		l.stray++
		for i := len(l.dirs) - 1; i >= max(0, len(l.dirs)-maxListings); i-- {
			if l.dirs[i] == id {
				l.dirs = slices.Delete(l.dirs, i, i+1)
				break
			}
		}
		return nil, false
	}
	l.stray = 0
	delete(l.ready, id)
	return made.data, true
}

// make makes the answer for the next directory; false: there is none to be made
// now. Only the leader calls it.
func (l *listings) make(f *FS) bool {
	id, lost := l.next()
	if lost {
		l.clear(f)
	}
	if id == 0 {
		return false
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
	return true
}

// next takes the directory off the list whose answer is to be made, if there is one.
// It may say that whoever walks here has gone another way.
func (l *listings) next() (id uint64, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) >= maxListings {
		return 0, l.stray > maxListings
	}
	for n := len(l.dirs); n > 0; n-- {
		id, l.dirs = l.dirs[n-1], l.dirs[:n-1]
		if _, there := l.ready[id]; !there {
			return id, false
		}
	}
	return 0, false
}

// atHand reports whether a directory can be listed without waiting for a disk.
func (f *FS) atHand(id uint64) bool {
	d, ok := f.node(id).(*treeDir)
	if !ok {
		return false
	}
	obj, err := f.trees.Open(f.hasty, d.hash)
	return err == nil && obj.Whole()
}

// clear drops what nobody asked for, and the references with it.
func (l *listings) clear(f *FS) {
	l.mu.Lock()
	ready := l.ready
	l.ready, l.dirs, l.stray = nil, nil, 0
	l.mu.Unlock()
	for _, made := range ready {
		for _, id := range made.nodes {
			f.forget(id, 1)
		}
	}
}
