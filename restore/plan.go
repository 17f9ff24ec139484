package restore

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// A Mode says what a restore does with what is in its target already.
type Mode uint8

// The modes.
const (
	New     Mode = iota // nothing may be there
	Overlay             // the checkpoint's entries replace those of their names, others stay
	Mirror              // and what the checkpoint would have, but has not, is deleted
)

// String returns the mode's name as it stands in messages.
func (m Mode) String() string { return [...]string{"new", "overlay", "mirror"}[m] }

// An Op is what a restore does about one entry.
type Op string

// The operations.
const (
	Create  Op = "create"  // nothing was there
	Replace Op = "replace" // something else was there
	Delete  Op = "delete"  // the checkpoint does not have it
	Keep    Op = "keep"    // it stays as it is
	Skip    Op = "skip"    // the checkpoint has it, and the restore's policy excludes it
)

// A Change is one step of a plan.
type Change struct {
	Op   Op
	Path string // relative to the target, which is "." itself
	// Why says what differs, of what kind something else is, or what excludes or
	// protects the entry; empty of one that is created or deleted.
	Why string
	// Redacted: it is created or replaced by a file with zero bytes in place of secrets.
	Redacted bool
}

// A Coverage says what of a live directory a checkpoint speaks about: that it does not
// have an entry which its policy had left out, or which could not be saved, is no
// reason to delete one. Nil covers everything.
type Coverage struct {
	Files *policy.Files // the policy that the checkpoint was saved under
	// Narrow adds the ignore files that held in a directory, "" or ending in a slash.
	// known is false when what they said is lost: nothing in there is covered then.
	Narrow func(path string, scope policy.Scope) (_ policy.Scope, known bool, err error)
	// Caches: of a directory with a [capture.CacheTag] only that was saved.
	Caches      bool
	MaxFileSize int64 // a longer file was not saved, in bytes; 0: any was
	// Omitted tells why an entry was not saved; "": it was, or was not there.
	Omitted func(path string) string
	// Foreign says why a directory, told by its device and inode number, is none of the
	// workspace's; "": it is. Such a one is never deleted.
	Foreign func(dev, ino uint64) string
}

var (
	// ErrDeletesMore: a restore into a live directory would delete more than it writes.
	ErrDeletesMore = errors.New("more would be deleted than written")
	// ErrInTheWay: what the policy protects, or another file system, stands where the
	// checkpoint has something else. The error is a [*PathsError].
	ErrInTheWay = errors.New("in the way")
	// ErrExcluded: a strict restore of a checkpoint that has what the policy excludes.
	// The error is a [*PathsError].
	ErrExcluded = errors.New("the policy excludes what the checkpoint has")
)

// A PathsError is an error about some paths.
type PathsError struct {
	Err   error
	Paths []Problem
}

// Error names the first paths.
func (e *PathsError) Error() string {
	const few = 20
	var b strings.Builder
	b.WriteString(e.Err.Error())
	b.WriteByte(':')
	for _, p := range e.Paths[:min(few, len(e.Paths))] {
		fmt.Fprintf(&b, "\n  %s: %v", tree.Quote(p.Path), p.Err)
	}
	if more := len(e.Paths) - few; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// Unwrap returns what the error is.
func (e *PathsError) Unwrap() error { return e.Err }

// planDir is what is to be done in a directory that is there.
type planDir struct {
	entry  *tree.Entry          // its saved metadata; nil: it keeps its own
	dev    uint64               // device and inode number that it had
	ino    uint64               //
	dirs   map[string]*planDir  // directories in it in which something is to be done
	write  map[string]place     // what is to be made anew
	meta   map[string]*planMeta // files and symlinks of which only metadata is to be set
	remove []string
}

// A place says what stands where an entry is to go.
type place uint8

const (
	free  place = iota // nothing
	taken              // something that a rename replaces
	other              // something that must first be moved away
)

// planMeta is a file or symlink whose content is right.
type planMeta struct {
	entry    tree.Entry
	dev, ino uint64
	time     bool // it is its time alone
}

// empty reports whether there is nothing to do, but perhaps for its own metadata.
func (d *planDir) empty() bool {
	return len(d.dirs)+len(d.write)+len(d.meta)+len(d.remove) == 0
}

// within is what a restore makes in a directory: what the policy chooses and, where the
// directory is there already, of that what the plan lists.
type within struct {
	scope policy.Scope
	plan  *planDir // nil: all
}

// decide decides about an entry of the directory.
func (s within) decide(e *tree.Entry) (policy.Decision, within) {
	d, sub := s.scope.Decide(e.Name, e.Kind == tree.Dir)
	if s.plan == nil {
		return d, within{scope: sub}
	}
	if _, whole := s.plan.write[e.Name]; whole {
		return d, within{scope: sub}
	}
	if below := s.plan.dirs[e.Name]; below != nil && e.Kind == tree.Dir && d.Descend {
		return policy.Decision{Descend: true}, within{scope: sub, plan: below}
	}
	return policy.Decision{}, within{}
}

// kindOf is what a live entry is, as users say it.
func kindOf(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return tree.File.String()
	case unix.S_IFDIR:
		return tree.Dir.String()
	case unix.S_IFLNK:
		return tree.Symlink.String()
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// isKind reports whether a live entry is of a kind that a checkpoint may have.
func isKind(st *unix.Stat_t, kind tree.Kind) bool { return kindOf(st) == kind.String() }

// special reports whether a live entry is of a kind that is never saved.
func special(st *unix.Stat_t) bool {
	return !isKind(st, tree.File) && !isKind(st, tree.Dir) && !isKind(st, tree.Symlink)
}
