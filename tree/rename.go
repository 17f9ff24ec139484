package tree

import (
	"container/heap"
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// MaxRenames is how many added and deleted entries a comparison looks at to find
// renames, which bounds its memory. What lies in a directory that was renamed as a whole
// is not looked at. Of more only those directories are found.
const MaxRenames = 100_000

// moves are the renames of a comparison.
type moves struct {
	to   map[string]*candidate // by new path: what was there under an old one
	from map[string]struct{}   // old paths
}

// move reports a rename in place of an addition or a deletion that is a part of one.
func (d *differ) move(op Op, path string, e *Entry) (done bool, err error) {
	if op == Deleted {
		_, done = d.moved.from[path]
		return done, nil
	}
	was, done := d.moved.to[path]
	if !done {
		return false, nil
	}
	old, new := was.entry, *e
	return true, d.emit(Change{Op: Renamed, Path: path, From: was.path, Old: &old, New: &new})
}

// A candidate is an added or deleted file or directory.
type candidate struct {
	op    Op
	path  string
	entry Entry
	size  uint64 // of a directory: how many entries are below it
}

// A search looks for renames: first among what stands on one side only, then, the
// larger directories first, among what lies below the directories that have found no
// other half. Two directories with the same hash have the same number of entries below
// them, and none lies in another one of these.
type search struct {
	d     *differ
	left  int // how many more entries it may look at
	sides map[Op]int
	next  []pairOfDirs
	dirs  dirHeap
	files map[contentKey][]*candidate
}

// contentKey is what renamed files have in common.
type contentKey struct {
	hash cas.Hash
	size uint64
}

// errTooMany ends a search.
var errTooMany = errors.New("too many entries to look for renames")

// findRenames fills d.moved. It looks at most at some entries.
func (d *differ) findRenames(a, b cas.Hash, most int) error {
	s := &search{d: d, left: most, sides: map[Op]int{}, files: map[contentKey][]*candidate{}}
	d.moved = moves{to: map[string]*candidate{}, from: map[string]struct{}{}}
	d.search = s
	defer func() { d.search = nil }()
	err := s.waves(a, b)
	if err == nil {
		err = s.run()
	}
	if errors.Is(err, errTooMany) {
		if d.opt.TooMany != nil {
			d.opt.TooMany()
		}
		return nil
	}
	return err
}

// A pairOfDirs is a directory of both sides.
type pairOfDirs struct {
	path     string
	old, new cas.Hash
}

// waveSize bounds the directories that wait to be compared.
const waveSize = 4096

// waves goes through what both sides have, level by level: to find many objects at once
// takes little longer than to find one.
func (s *search) waves(a, b cas.Hash) error {
	for wave := []pairOfDirs{{"", a, b}}; len(wave) > 0; wave = s.next {
		var hashes []cas.Hash
		for _, p := range wave {
			hashes = append(hashes, p.old, p.new)
		}
		s.d.r.Expect(s.d.ctx, hashes)
		s.next = nil
		for _, p := range wave {
			if err := s.d.dirs(p.path, p.old, p.new); err != nil {
				return err
			}
		}
	}
	return nil
}

// later has a directory compared in the next wave, or at once when that is full.
func (s *search) later(path string, old, new cas.Hash) error {
	if old == new {
		return nil
	}
	if len(s.next) == waveSize {
		return s.d.dirs(path, old, new)
	}
	s.next = append(s.next, pairOfDirs{path, old, new})
	return nil
}

// add takes an entry that stands on one side only.
func (s *search) add(op Op, path string, e *Entry) error {
	if s.left--; s.left < 0 {
		return errTooMany
	}
	c := &candidate{op: op, path: strings.Clone(path), entry: *e}
	c.entry.Name = c.path[strings.LastIndexByte(c.path, '/')+1:] // the object's memory is not kept
	switch {
	case e.Kind == File && e.Size > 0:
		key := contentKey{e.Hash, e.Size}
		s.files[key] = append(s.files[key], c)
	case e.Kind == Dir:
		dir, err := s.d.r.openAt(s.d.ctx, e.Hash, path)
		if err != nil {
			return err
		}
		below := dir.Root().Totals
		if c.size = below.Files + below.Dirs; c.size == 0 {
			return nil
		}
		heap.Push(&s.dirs, c)
	default:
		return nil
	}
	s.sides[op]++
	return nil
}

func (s *search) run() error {
	for len(s.dirs) > 0 && s.sides[Added] > 0 && s.sides[Deleted] > 0 {
		same := map[cas.Hash][]*candidate{}
		var all []*candidate
		for size := s.dirs[0].size; len(s.dirs) > 0 && s.dirs[0].size == size; {
			c := heap.Pop(&s.dirs).(*candidate)
			all = append(all, c)
			same[c.entry.Hash] = append(same[c.entry.Hash], c)
			s.sides[c.op]--
		}
		for _, group := range same {
			s.pair(group)
		}
		for _, c := range all {
			if s.paired(c) {
				continue
			}
			if err := s.d.below(c.op, c.path, c.entry.Hash); err != nil {
				return err
			}
		}
	}
	for _, group := range s.files {
		s.pair(group)
	}
	return nil
}

// paired reports whether a candidate is a part of a rename.
func (s *search) paired(c *candidate) bool {
	if c.op == Added {
		return s.d.moved.to[c.path] != nil
	}
	_, ok := s.d.moved.from[c.path]
	return ok
}

// pair makes renames of candidates with the same content: first of those with the same
// last name, else in order of paths.
func (s *search) pair(group []*candidate) {
	slices.SortFunc(group, func(a, b *candidate) int { return strings.Compare(a.path, b.path) })
	match := func(name func(c *candidate) string) {
		olds := map[string][]*candidate{}
		for _, c := range group {
			if c.op == Deleted && !s.paired(c) {
				olds[name(c)] = append(olds[name(c)], c)
			}
		}
		for _, c := range group {
			if c.op != Added || s.paired(c) {
				continue
			}
			if some := olds[name(c)]; len(some) > 0 {
				s.d.moved.to[c.path], s.d.moved.from[some[0].path] = some[0], struct{}{}
				olds[name(c)] = some[1:]
			}
		}
	}
	match(func(c *candidate) string { return c.entry.Name })
	match(func(*candidate) string { return "" })
}

// dirHeap has the largest directory first.
type dirHeap []*candidate

func (h dirHeap) Len() int           { return len(h) }
func (h dirHeap) Less(i, j int) bool { return h[i].size > h[j].size }
func (h dirHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dirHeap) Push(c any)        { *h = append(*h, c.(*candidate)) }
func (h *dirHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}
