package fs

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// A scout decodes small files before a reader who goes through a tree in order
// comes to them: of the time that a first read takes, decoding is the most, and
// one thread answers. It works while the reader or a processor has nothing to do,
// and never far ahead.
type scout struct {
	fs *FS

	mu      sync.Mutex
	path    []step // where it is: directories from the top down
	ready   map[cas.Key][]byte
	bytes   int // of ready
	misses  int // reads in a row of what was not ready
	threads int
	wake    chan struct{}
}

// step is how far a walk is in a directory.
type step struct {
	dir *tree.Directory
	pos int
}

const (
	// maxReady bounds what is decoded and was not read yet, in bytes.
	maxReady = 4 << 20
	// lost is how many reads in a row show that the reader went elsewhere.
	lost = 64
	// deepest bounds the directories on the way.
	deepest = 256
	// scoutTime is how long a thread waits for more to do.
	scoutTime = 100 * time.Millisecond
)

func newScout(f *FS) *scout {
	return &scout{fs: f, ready: map[cas.Key][]byte{}, wake: make(chan struct{}, 1)}
}

// take returns the content of a small file of size bytes if it is ready, and
// forgets it.
func (s *scout) take(key cas.Key, size int64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.ready[key]
	if !ok || int64(len(data)) != size {
		s.misses++
		return nil, false
	}
	s.misses = 0
	delete(s.ready, key)
	if s.bytes -= len(data); s.bytes < maxReady/2 && len(s.path) > 0 {
		s.call()
	}
	return data, true
}

// wanted reports whether a reader in order has no scout that helps it.
func (s *scout) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.path) == 0 && len(s.ready) == 0 || s.misses >= lost
}

// begin has the scout go on at a path.
func (s *scout) begin(path []step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path, s.misses = path, 0
	clear(s.ready)
	s.bytes = 0
	s.call()
}

// call wakes a thread, or starts one; mu is held.
func (s *scout) call() {
	if s.threads < max(1, runtime.GOMAXPROCS(0)-1) && runtime.GOMAXPROCS(0) > 1 {
		s.threads++
		go s.run()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run works in a thread that gives way to every other one.
func (s *scout) run() {
	runtime.LockOSThread() // the thread ends with the goroutine
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	for {
		for s.work(true) {
		}
		select {
		case <-s.wake:
		case <-time.After(scoutTime):
			s.mu.Lock()
			s.threads--
			s.mu.Unlock()
			return
		}
	}
}

// work decodes one file; false: there is nothing to do now. Only with wait it
// waits for a disk.
func (s *scout) work(wait bool) bool {
	ctx := s.fs.hasty
	if wait {
		ctx = s.fs.ctx
	}
	key, size, ok := s.next()
	if !ok {
		return wait && s.fetch()
	}
	data, err := s.fs.readObjectIn(ctx, key, size, make([]byte, 0, size))
	if err != nil {
		return true // who reads it is told
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.path) > 0 {
		if _, there := s.ready[key]; !there {
			s.ready[key] = data
			s.bytes += len(data)
		}
	}
	return true
}

// fetch waits for the directory that next could not have without waiting; false:
// there is none.
func (s *scout) fetch() bool {
	s.mu.Lock()
	if len(s.path) == 0 || s.bytes >= maxReady {
		s.mu.Unlock()
		return false
	}
	at := s.path[len(s.path)-1]
	s.mu.Unlock()
	e, more, err := entryAt(s.fs.ctx, at.dir, at.pos)
	if err == nil && more && e.Kind == tree.Dir {
		_, err = s.fs.trees.Open(s.fs.ctx, e.Hash)
	}
	if err != nil { // who lists it is told
		s.mu.Lock()
		s.path = nil
		s.mu.Unlock()
		return false
	}
	return more
}

// next goes on to the next small file, as far as it can without waiting.
func (s *scout) next() (key cas.Key, size int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; len(s.path) > 0 && s.bytes < maxReady && n < searched; n++ {
		at := &s.path[len(s.path)-1]
		e, more, err := entryAt(s.fs.hasty, at.dir, at.pos)
		if err != nil {
			return key, 0, false
		}
		if !more {
			s.path = s.path[:len(s.path)-1]
			continue
		}
		var below *tree.Directory
		if e.Kind == tree.Dir && len(s.path) < deepest {
			if below, err = s.fs.trees.Open(s.fs.hasty, e.Hash); err != nil {
				return key, 0, false
			}
		}
		at.pos++
		switch {
		case e.Kind == tree.File && e.Size > 0 && e.Size <= smallFile:
			return cas.Key{NS: cas.Files, Hash: e.Hash}, int64(e.Size), true
		case below != nil:
			s.path = append(s.path, step{dir: below})
		}
	}
	return key, 0, false
}

// entryAt returns the entry of a directory at a position; false: it is the end.
func entryAt(ctx context.Context, dir *tree.Directory, pos int) (e tree.Entry, more bool, err error) {
	if pos >= dir.Len() {
		return e, false, nil
	}
	for e, err := range dir.Entries(ctx, pos) {
		return e, true, err
	}
	return e, false, nil
}
