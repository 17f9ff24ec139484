package fs

import (
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Who reads the files of a tree one after the other (grep -r, cp -a, tar) would ask
// for each of them, and wait each time. So the answer to one read is preceded by
// the contents of the files that follow in the directory: the kernel keeps them,
// and the reader finds them there. What a program only lists is never given, nor
// are files to those who read here and there.
const (
	// smallFile is how long a file may be that is given ahead, in bytes.
	smallFile = 64 << 10
	// The window is how many files are given ahead of a reader. It doubles each
	// time that the reader comes to its end, so at most 4 MiB are given in vain.
	firstWindow, lastWindow = 8, 64
	// alone is how many reads in a row must be one thread's: of two that share a
	// directory, one would wait for the pages that are just given to the other.
	alone = 8
	// sure is how many directories in a row a reader has begun with their first
	// file when the next one is given at once. Whoever did not loses some of it.
	sure, mostSure = 4, 16
	// readDirs is how many directories are remembered in which somebody reads.
	readDirs = 256
	// searched is how many entries are looked at for small files behind the window.
	searched = 512
	// relief is how long giving files may take before other requests are answered
	// beside it. It also ends the embrace of a reader that waits for a page which
	// the kernel has locked, and us who give that very page.
	relief = time.Millisecond
)

// prefill knows how files are read.
type prefill struct {
	mu     sync.Mutex
	thread uint32 // that read last
	inARow int    // reads of it
	sure   int
	dirs   [readDirs]dirReads
}

// dirReads is how far a reader is in a directory.
type dirReads struct {
	dir    uint64 // node id
	next   int    // position of the file that a reader in order asks for next
	window int    // how many files were given last
}

// small reports whether a node's content may be given ahead.
func (in *inode) small() bool { return in.kind == tree.File && in.size > 0 && in.size <= smallFile }

// follow notes that a thread reads a file from its beginning, and gives the kernel
// those that it will read next, if it reads in order.
func (f *FS) follow(n *treeNode, thread uint32) {
	if !f.prefill.one(thread) || n.dir == 0 {
		return
	}
	dir := f.dirOf(n)
	if dir == nil {
		return
	}
	window := f.prefill.window(dir, int(n.position))
	if window == 0 {
		return
	}
	files, next := dir.small(int(n.position)+1, window)
	f.prefill.given(dir, next)
	f.give(files)
	if f.scout.wanted() {
		f.scout.begin(f.way(dir, next))
	}
}

// way returns the directories from the top of a tree down to dir, each at the
// entry that a reader in order comes to next.
func (f *FS) way(dir *treeDir, next int) []step {
	var path []step
	for dir != nil && len(path) < deepest {
		obj, err := dir.open()
		if err != nil {
			break
		}
		path = append(path, step{dir: obj, pos: next})
		next = int(dir.position) + 1
		up, ok := f.node(dir.parent).(*treeDir)
		if !ok || dir.dir == noSlot {
			break // the top, or one that was not listed
		}
		dir = up
	}
	slices.Reverse(path)
	return path
}

// one notes a read and reports whether the thread is alone.
func (p *prefill) one(thread uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inARow++; thread != p.thread {
		p.thread, p.inARow = thread, 1
	}
	return p.inARow >= alone
}

// window says how many of the files behind the one at pos are worth giving.
func (p *prefill) window(dir *treeDir, pos int) int {
	_, first := dir.small(0, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.dirs[dir.id%readDirs]
	if r.dir != dir.id {
		*r = dirReads{dir: dir.id, next: first}
		if pos != first {
			p.sure = max(p.sure-2, 0)
		} else if p.sure = min(p.sure+1, mostSure); p.sure < sure {
			r.next = pos + 1
			return 0
		}
	}
	switch {
	case pos < r.next:
		return 0 // it was given, and the kernel could not keep it
	case pos > r.next:
		r.next, r.window = pos+1, 0
		p.sure = max(p.sure-1, 0)
		return 0
	}
	r.window = min(max(2*r.window, firstWindow), lastWindow)
	return r.window
}

// given notes which file of a directory follows those that were given.
func (p *prefill) given(dir *treeDir, next int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := &p.dirs[dir.id%readDirs]; r.dir == dir.id {
		r.next = next
	}
}

// dirOf returns the directory in which a file was listed, or nil. The slot may be
// another directory's by now.
func (f *FS) dirOf(n *treeNode) *treeDir {
	dir := f.dirInSlot(n.dir)
	if dir == nil {
		return nil
	}
	obj, err := dir.open()
	if err != nil {
		return nil
	}
	for e, err := range obj.Entries(f.ctx, int(n.position)) {
		if err != nil {
			return nil
		}
		if at, m := dir.identity(e); at == n.at && m.Hash == n.hash {
			return dir
		}
		break
	}
	return nil
}

// dirInSlot returns the directory in a slot, or nil.
func (f *FS) dirInSlot(slot uint32) *treeDir {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.table.inDir[slot]; !ok {
		return nil
	}
	return f.dirInTable(slot)
}

// found is an entry by its identity.
type found struct {
	at place
	m  meta
}

// small returns the next n small files of the directory from a position on, and
// the position of the one that follows them, or where the search for it ended.
func (d *treeDir) small(pos, n int) (files []found, next int) {
	obj, err := d.open()
	if err != nil {
		return nil, pos
	}
	next = pos
	for e, err := range obj.Entries(d.source.fs.ctx, pos) {
		if err != nil || next-pos == searched {
			break
		}
		if e.Kind == tree.File && e.Size > 0 && e.Size <= smallFile {
			if len(files) == n {
				break
			}
			at, m := d.identity(e)
			files = append(files, found{at, m})
		}
		next++
	}
	return files, next
}

// give gives the kernel the contents of files that it does not have.
func (f *FS) give(files []found) {
	timer := time.AfterFunc(relief, f.slow)
	defer timer.Stop()
	var buf []byte
	for i := range files {
		id := f.toGive(&files[i])
		if id == 0 {
			continue
		}
		m := &files[i].m
		key := cas.Key{NS: cas.Files, Hash: m.Hash}
		data, ready := f.scout.take(key, int64(m.Size))
		if !ready {
			var err error
			if buf, err = f.readObject(key, int64(m.Size), buf[:0]); err != nil {
				return // who reads it is told
			}
			data = buf
		}
		status := f.conn.storeContent(id, data)
		if status != fuse.OK {
			return // the kernel has no room, or has forgotten it
		}
		f.count(opStore)
	}
}

// toGive returns the node id of a small file that the kernel knows and was not
// given before, or 0.
func (f *FS) toGive(file *found) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, slot := f.treeNumber(file.at, &file.m)
	if slot == noSlot || f.table.slot(slot).given {
		return 0
	}
	in := f.table.slot(slot)
	in.given = true
	return in.id
}

// reading returns the node that is read. What the kernel asks for need not be
// given.
func (f *FS) reading(id uint64) node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slot := f.table.find(id); slot != noSlot {
		f.table.slot(slot).given = true
	}
	return f.nodeLocked(id)
}

// listedAt notes where a file is in a directory.
func (f *FS) listedAt(id, dir, position uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slot := f.table.find(id); slot != noSlot {
		in := f.table.slot(slot)
		in.dir, in.position = f.table.find(dir), uint32(position)
	}
}
