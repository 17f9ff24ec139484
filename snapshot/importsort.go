package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/tree"
)

// sortRun is how many bytes of entries are sorted at a time, in memory.
const sortRun = 24 << 20

// imported is an entry of an archive.
type imported struct {
	// key is its path below the root with NUL for each slash. In the order of keys a
	// directory comes right before what lies below it, and names of one directory come
	// in the order of a tree.
	key        string
	seq        uint64 // place in the archive
	skipped    bool   // is no content; it only takes the name
	owned      bool   // stands for itself even where it is the default owner
	tree.Entry        // without name; owner as in the archive
}

// An entrySorter sorts entries of any number by key and place in bounded memory: full
// runs go to a file that has no name any more, so that nothing is left of it whatever
// becomes of the process. Its add may be called concurrently.
type entrySorter struct {
	ctx   context.Context
	store *Store
	most  int // bytes of a run

	mu    sync.Mutex
	buf   []byte
	items []sortItem
	runs  []sortSpan
	file  disk.File
	size  int64         // of the file
	kept  *bytes.Buffer // instead of the file, of a store in memory
}

// sortItem is an entry in buf.
type sortItem struct {
	off, keyLen, len uint32
	head             uint32 // bytes before the key
	seq              uint64
}

// sortSpan is a run in the file.
type sortSpan struct{ off, len int64 }

// add takes an entry.
func (s *entrySorter) add(e *imported) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	off := len(s.buf)
	s.buf = binary.AppendUvarint(s.buf, uint64(len(e.key)))
	head := len(s.buf) - off
	s.buf = append(s.buf, e.key...)
	s.buf = binary.AppendUvarint(s.buf, e.seq)
	flags := byte(0)
	for i, set := range []bool{e.skipped, e.owned, !e.Hash.IsZero(), !e.XAttrs.IsZero()} {
		if set {
			flags |= 1 << i
		}
	}
	s.buf = append(s.buf, byte(e.Kind), flags, byte(e.Flags))
	for _, n := range []uint64{uint64(e.Mode), uint64(e.UID), uint64(e.GID), uint64(e.MtimeSec), uint64(e.MtimeNsec), e.Size, uint64(len(e.Target))} {
		s.buf = binary.AppendUvarint(s.buf, n)
	}
	s.buf = append(s.buf, e.Target...)
	for _, h := range []cas.Hash{e.Hash, e.XAttrs} {
		if !h.IsZero() {
			s.buf = append(s.buf, h[:]...)
		}
	}
	s.items = append(s.items, sortItem{uint32(off), uint32(len(e.key)), uint32(len(s.buf) - off), uint32(head), e.seq})
	if len(s.buf) >= s.most {
		return s.spill()
	}
	return nil
}

// sort brings what is in memory into order.
func (s *entrySorter) sort() {
	key := func(i sortItem) []byte { return s.buf[i.off+i.head : i.off+i.head+i.keyLen] }
	slices.SortFunc(s.items, func(a, b sortItem) int {
		return cmp.Or(bytes.Compare(key(a), key(b)), cmp.Compare(a.seq, b.seq))
	})
}

// spill writes a run.
func (s *entrySorter) spill() error {
	s.sort()
	if err := s.store.checkRoom(s.ctx); err != nil {
		return fmt.Errorf("sort entries: %w", err)
	}
	if s.store.dir == "" && s.kept == nil {
		s.kept = &bytes.Buffer{}
	}
	if s.store.dir != "" && s.file == nil {
		f, err := local.CreateTemp(s.store.fsys, s.store.dir)
		if err != nil {
			return fmt.Errorf("sort entries: %w", err)
		}
		s.file = f
		if err := s.store.fsys.Remove(f.Name()); err != nil {
			return fmt.Errorf("sort entries: %w", err)
		}
	}
	var to io.Writer = s.kept
	if s.file != nil {
		to = s.file
	}
	out := bufio.NewWriterSize(to, 256<<10)
	for _, i := range s.items {
		_, _ = out.Write(s.buf[i.off : i.off+i.len]) // Flush tells
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("sort entries: %w", cas.NoSpace(err))
	}
	s.runs = append(s.runs, sortSpan{s.size, int64(len(s.buf))})
	s.size += int64(len(s.buf))
	s.buf, s.items = s.buf[:0], s.items[:0]
	return nil
}

// each calls fn for every entry in order. What it is given is valid until fn returns. It
// may be called again.
func (s *entrySorter) each(fn func(*imported) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) > 0 && len(s.items) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	var e imported
	if len(s.runs) == 0 {
		s.sort()
		for _, i := range s.items {
			if err := e.read(bytes.NewReader(s.buf[i.off : i.off+i.len])); err != nil {
				return err
			}
			if err := fn(&e); err != nil {
				return err
			}
		}
		return s.ctx.Err()
	}
	s.buf, s.items = nil, nil // the tree needs the memory now
	var all runHeap
	for _, span := range s.runs {
		r := &runReader{}
		if s.file != nil {
			r.r = bufio.NewReaderSize(io.NewSectionReader(s.file, span.off, span.len), 64<<10)
		} else {
			r.r = bufio.NewReader(bytes.NewReader(s.kept.Bytes()[span.off : span.off+span.len]))
		}
		more, err := r.next()
		if err != nil {
			return err
		}
		if more {
			all = append(all, r)
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		first := all[0]
		if err := fn(&first.imported); err != nil {
			return err
		}
		more, err := first.next()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&all, 0)
		} else {
			heap.Pop(&all)
		}
	}
	return nil
}

// close gives up the file.
func (s *entrySorter) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// byteReader is what entries are read from.
type byteReader interface {
	io.Reader
	io.ByteReader
}

// read is the inverse of [entrySorter.add]. It fails with [io.EOF] at the end.
func (e *imported) read(r byteReader) error {
	n, err := binary.ReadUvarint(r)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	text := func(n uint64) string {
		b := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		return string(b)
	}
	number := func() (n uint64) {
		if err == nil {
			n, err = binary.ReadUvarint(r)
		}
		return n
	}
	*e = imported{key: text(n)}
	e.seq = number()
	fixed := text(3)
	e.Kind, e.Flags = tree.Kind(fixed[0]), tree.Flags(fixed[2])
	e.skipped, e.owned = fixed[1]&1 != 0, fixed[1]&2 != 0
	e.Mode, e.UID, e.GID = uint32(number()), uint32(number()), uint32(number())
	e.MtimeSec, e.MtimeNsec, e.Size = int64(number()), uint32(number()), number()
	e.Target = text(number())
	if fixed[1]&4 != 0 {
		copy(e.Hash[:], text(uint64(len(e.Hash))))
	}
	if fixed[1]&8 != 0 {
		copy(e.XAttrs[:], text(uint64(len(e.XAttrs))))
	}
	if err != nil {
		return fmt.Errorf("sorted entries: %w", err)
	}
	return nil
}

// runReader reads a run.
type runReader struct {
	r byteReader
	imported
}

// next reads the run's next entry, if there is one.
func (r *runReader) next() (more bool, err error) {
	err = r.read(r.r)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// runHeap has the runs by their next entries.
type runHeap []*runReader

// Len implements [heap.Interface].
func (h runHeap) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h runHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].key, h[j].key), cmp.Compare(h[i].seq, h[j].seq)) < 0
}

// Swap implements [heap.Interface].
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *runHeap) Push(x any) { *h = append(*h, x.(*runReader)) }

// Pop implements [heap.Interface].
func (h *runHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
