package capture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// overError refuses a file that is longer than the user allows.
type overError struct{ size, limit int64 }

func (e *overError) Error() string {
	return fmt.Sprintf("%d bytes long (%s), the limit is %d", e.size, humanize.IBytes(uint64(e.size)), e.limit)
}

// Unwrap makes it a [cas.ErrTooLarge].
func (e *overError) Unwrap() error { return cas.ErrTooLarge }

// fits refuses a file that is longer than the user allows.
func (w *worker) fits(size int64) error {
	if limit := w.opt.Settings.MaxFileSize; limit > 0 && size > limit {
		return &overError{size, limit}
	}
	return nil
}

// Sized is a file or a directory with its length.
type Sized struct {
	Path string // relative to the workspace; of a directory it ends in a slash
	Size int64  // in bytes
}

// A SizeError says that all files together are longer than the user allows. It is a
// [cas.ErrTooLarge].
type SizeError struct {
	Size, Limit int64   // in bytes; Size is of all files
	Files, Dirs []Sized // the largest, at most five each
}

// Error names the largest files and directories.
func (e *SizeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes (%s) in files, the limit is %d (%s)", e.Size, humanize.IBytes(uint64(e.Size)), e.Limit, humanize.IBytes(uint64(e.Limit)))
	for _, s := range slices.Concat(e.Dirs, e.Files) {
		fmt.Fprintf(&b, "\n  %s: %s", tree.Quote(s.Path), humanize.IBytes(uint64(s.Size)))
	}
	return b.String()
}

// Unwrap makes it a [cas.ErrTooLarge].
func (e *SizeError) Unwrap() error { return cas.ErrTooLarge }

// largest is how many files and directories a [SizeError] names.
const largest = 5

// sizes adds up the files that were looked at, before they are read. Once they are
// too many, nothing is read any more, and the walk goes on to see which are the
// largest.
type sizes struct {
	limit int64 // 0: none, and nothing is added up
	total atomic.Int64

	mu    sync.Mutex
	files []Sized          // the largest, in ascending order
	dirs  map[string]int64 // by path: the files in it, without what lies deeper
}

// add counts a file of a directory and reports whether all together are too long.
func (s *sizes) add(dir, name string, size int64) bool {
	if s.limit == 0 {
		return false
	}
	total := s.total.Add(size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs == nil {
		s.dirs = map[string]int64{}
	}
	s.dirs[dir] += size
	bySize := func(a Sized, b Sized) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), strings.Compare(b.Path, a.Path))
	}
	f := Sized{dir + name, size}
	if len(s.files) < largest || bySize(f, s.files[0]) > 0 {
		at, _ := slices.BinarySearchFunc(s.files, f, bySize)
		s.files = slices.Insert(s.files, at, f)
		if len(s.files) > largest {
			s.files = s.files[1:]
		}
	}
	return total > s.limit
}

// err says that all files together are too long; nil: they are not. stored is how long
// they are in the tree.
func (s *sizes) err(stored int64) error {
	total := max(s.total.Load(), stored) // some have become longer
	if s.limit == 0 || total <= s.limit {
		return nil
	}
	e := &SizeError{Size: total, Limit: s.limit, Files: slices.Clone(s.files)}
	slices.Reverse(e.Files)
	e.Dirs = s.largestDirs()
	return e
}

// largestDirs goes down as long as nearly all is in one directory. It returns that
// directory, unless it is the root, and the largest of those in it.
func (s *sizes) largestDirs() []Sized {
	const nearly = 0.9
	below := map[string]int64{} // with what lies deeper
	children := map[string][]string{}
	for dir, size := range s.dirs {
		for at := dir; ; {
			_, seen := below[at]
			below[at] += size
			if at == "" {
				break
			}
			parent := at[:strings.LastIndexByte(at[:len(at)-1], '/')+1]
			if !seen {
				children[parent] = append(children[parent], at)
			}
			at = parent
		}
	}
	sized := func(dir string) []Sized {
		var list []Sized
		for _, c := range children[dir] {
			list = append(list, Sized{c, below[c]})
		}
		slices.SortFunc(list, func(a, b Sized) int { return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.Path, b.Path)) })
		return list[:min(largest, len(list))]
	}
	at := ""
	list := sized(at)
	for len(list) > 0 && float64(list[0].Size) >= nearly*float64(below[at]) {
		at = list[0].Path
		list = sized(at)
	}
	if at != "" {
		list = slices.Insert(list, 0, Sized{at, below[at]})
	}
	return list[:min(largest, len(list))]
}

// full counts a file that was looked at. If all together are too long, it is not
// read.
func (w *worker) full(d *directory, name string, size int64) bool {
	return w.sizes.add(d.path, name, size)
}
