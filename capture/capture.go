// Package capture turns a live directory into a tree of content-addressed
// objects.
//
// The walk goes down relative to open directories and never follows a symbolic
// link, so that nobody who changes the workspace meanwhile can lead it out.
// What the policy excludes is decided by name alone: such an entry is not even
// looked at. Files are read, hashed, compressed and appended in one pass on all
// cores; directories become objects bottom-up once all below them is known.
//
// A capture is whole or it fails: an entry that cannot be read, or that does
// not hold still while it is read, ends it with the list of all such entries.
// Nothing is ever written inside the workspace.
package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/internal/tasks"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// Marker is the name of the file that stands in a directory while a restore
// into it is unfinished. Such a directory is not captured.
const Marker = ".snapfs-restoring"

var (
	// ErrUnsavable: entries that the policy includes could not be saved. The
	// error is a [*ProblemsError].
	ErrUnsavable = errors.New("workspace cannot be saved whole")
	// ErrUnfinished: the directory is the target of a restore that did not end.
	ErrUnfinished = errors.New("an unfinished restore left this directory incomplete")
)

// A Problem is one entry that could not be saved.
type Problem struct {
	Path string // relative to the workspace, "." is the workspace itself
	Err  error
}

// A ProblemsError lists every entry that kept a capture from being whole.
type ProblemsError struct{ Problems []Problem }

// OnlyMoved reports whether an error says no more than that entries vanished or were replaced
// while they were looked at: another capture may not meet that.
func OnlyMoved(err error) bool {
	var problems *ProblemsError
	return errors.As(err, &problems) && !slices.ContainsFunc(problems.Problems, func(p Problem) bool {
		return !errors.Is(p.Err, errVanished) && !errors.Is(p.Err, errReplaced)
	})
}

// Error names the first entries.
func (e *ProblemsError) Error() string {
	const shown = 20
	var b strings.Builder
	fmt.Fprintf(&b, "%d of the entries to save could not be saved:", len(e.Problems))
	for _, p := range e.Problems[:min(shown, len(e.Problems))] {
		fmt.Fprintf(&b, "\n  %s: %v", tree.Quote(p.Path), p.Err)
	}
	if more := len(e.Problems) - shown; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// Unwrap makes the error an [ErrUnsavable], and what its problems are.
func (e *ProblemsError) Unwrap() []error {
	all := []error{ErrUnsavable}
	for _, p := range e.Problems {
		all = append(all, p.Err)
	}
	return all
}

// An Omission is something that is not in the tree although it was in the
// workspace.
type Omission struct {
	Path string // relative to the workspace, "." is the workspace itself; any bytes
	Why  string
}

// A SecretFile is a file of the tree, or one that was left out for it, in which secrets
// were found.
type SecretFile struct {
	Path string // relative to the workspace, any bytes
	secrets.Report
}

// Options of [Tree].
type Options struct {
	Files *policy.Files // which entries are content
	// SkipUnreadable leaves out what cannot be read instead of failing; a file
	// that does not hold still is unreadable too.
	SkipUnreadable bool
	AllowTorn      bool            // keeps a file that does not hold still, marked as [tree.Torn]
	Settings       policy.Settings // limits, and which ignore files of the workspace count
	Screen         Screen          // which secrets stay out
	// Skip says why a directory, told by its device and inode number, is not
	// content; "": it is. Nil: all are.
	Skip func(dev, ino uint64) string
	// Known is the result of an earlier capture, of which all objects are in the
	// store; nil: everything is read.
	Known *Known
	// Lower is the saved tree below a workspace of overlayfs: what was changed is read, and
	// not the directory. It fails with [ErrNeedsScan] where that does not suffice, and as if
	// the file could not be read with [ErrMetacopy]. Nil: all is read.
	Lower *Lower
}

// A Result describes what was captured. The objects are durable after the
// writer's Flush.
type Result struct {
	Root  tree.Root
	Stat  tree.Entry // the root directory's own metadata; Name is empty, UID and GID are the default owner
	Links cas.Blob   // hard link groups (see [tree.EncodeLinks]); zero: none
	Left  []Omission // sorted by path: excluded entries, special files, dropped setuid and setgid bits, files that grew or are torn
	// ByPolicy are the paths of Left that the policy leaves out, be it for what is in
	// them; it has their content below them, too.
	ByPolicy []string
	Excluded int // entries that the policy left out, without what lies below them
	Special  int // sockets, FIFOs, devices, and the shared memory of SQLite databases
	Setuid   int // entries whose setuid or setgid bit was dropped
	// Unreadable counts what SkipUnreadable left out.
	Unreadable int
	Read       int64 // bytes of contents that were read: what is known is not
	Grew       int   // files that were appended to; they are saved as they were at first
	Torn       int   // files that AllowTorn kept
	Over       int   // files over the limit that [policy.Settings] leaves out
	Secret     int   // entries and attributes that were left out for the secrets in them
	// Ignore are the ignore files that were in force, sorted by path.
	Ignore []policy.IgnoreFile
	// Warnings are for the user: those about the whole, then in order of the paths that
	// the others begin with.
	Warnings []string
	// Secrets are the files in which secrets were found, sorted by path.
	Secrets []SecretFile
	// Known is for the next capture, once the objects are durable.
	Known *Known
	Lower *Lower
}

// Tree captures the directory dir with w.
func Tree(ctx context.Context, dir string, w cas.Writer, opt Options) (Result, error) {
	return treeOf(ctx, dir, w, opt, nil)
}

// treeOf is [Tree], or with a plan [Plan].
func treeOf(ctx context.Context, dir string, w cas.Writer, opt Options, plan *plan) (Result, error) {
	mounted := dir
	if opt.Lower != nil {
		dir = opt.Lower.Upper
	}
	root, err := openRoot(dir)
	if err != nil {
		return Result{}, fmt.Errorf("open workspace %s: %w", tree.Quote(dir), err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newWalker(ctx, cancel, w)
	c.opt, c.known, c.plan = opt, opt.Known, plan
	c.opt.Files, c.unmatched = opt.Files.WatchedIncludes()
	if opt.Lower != nil {
		c.lower = &lowerState{Lower: opt.Lower, mounted: mounted, shown: map[string]*shownDir{}}
	}
	return c.run(root, workers())
}

func newWalker(ctx context.Context, cancel context.CancelCauseFunc, w cas.Writer) *walker {
	return &walker{ctx: ctx, cancel: cancel, w: w, meter: progress.From(ctx), fineTimes: fineTimes, links: linkTable{inodes: map[inode]*linked{}}, setNumbers: map[cas.Hash]uint32{}, suspects: map[string]policy.Rule{}, unmatched: func() []policy.Rule { return nil }}
}

// openRoot opens the workspace itself; here alone a symlink is followed.
func openRoot(dir string) (*dirFD, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &dirFD{fd: fd}, nil
}

// run captures the whole tree, and closes its root.
func (c *walker) run(root *dirFD, workers int) (Result, error) {
	stat, err := c.start(root, workers)
	if err != nil {
		return Result{}, err
	}
	if cause := context.Cause(c.ctx); cause != nil {
		return Result{}, cause
	}
	if err := c.sizes.err(int64(c.root.Totals.Bytes)); err != nil {
		return Result{}, err
	}
	if c.opt.Settings.SkipOver {
		c.problems = slices.DeleteFunc(c.problems, func(p Problem) bool {
			var over *overError
			if errors.As(p.Err, &over) {
				c.omit(&c.over, p.Path, "over the limit for files: "+p.Err.Error())
			}
			return over != nil
		})
	}
	if c.opt.SkipUnreadable {
		c.problems = slices.DeleteFunc(c.problems, func(p Problem) bool {
			if over := (*overError)(nil); p.Path == "." || errors.Is(p.Err, ErrUnfinished) || errors.As(p.Err, &over) {
				return false
			}
			c.omit(&c.unreadable, p.Path, "unreadable: "+p.Err.Error())
			return true
		})
	}
	if len(c.problems) > 0 {
		slices.SortFunc(c.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
		return Result{}, &ProblemsError{Problems: c.problems}
	}
	links, err := c.writeLinks()
	if err != nil {
		return Result{}, err
	}
	slices.SortFunc(c.left, func(a, b Omission) int { return strings.Compare(a.Path, b.Path) })
	c.lost()
	slices.SortFunc(c.secrets, func(a, b SecretFile) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(c.ignoreFiles, func(a, b policy.IgnoreFile) int { return strings.Compare(a.Path, b.Path) })
	return Result{
		Root: c.root, Stat: stat, Links: links, Left: c.left, ByPolicy: c.byPolicy, Known: &Known{records: c.seen, sets: c.sets, notes: c.notes},
		Excluded: c.excluded, Special: c.special, Setuid: c.setuid, Unreadable: c.unreadable,
		Read: c.read.Load(), Grew: c.grew, Torn: c.torn, Over: c.over,
		Secret: c.secret, Secrets: c.secrets,
		Ignore: c.ignoreFiles, Warnings: c.warned(),
	}, nil
}

// start takes the root's own metadata and has the workers take all below it.
func (c *walker) start(fd *dirFD, workers int) (stat tree.Entry, err error) {
	root := &directory{fd: fd}
	defer func() {
		if err != nil {
			fd.close()
		}
	}()
	if err := unix.Fstat(fd.fd, &root.st); err != nil {
		return stat, fmt.Errorf("stat workspace: %w", err)
	}
	if _, err := fd.look(Marker); err == nil {
		return stat, ErrUnfinished
	}
	fd.dev, fd.fsRoot, fd.fine = root.st.Dev, isMountRoot(fd.fd, &root.st), c.fineTimes(fd.fd)
	if c.lower != nil {
		fd.fsRoot = true // it stands for the overlay's
		if err := c.lower.begin(c, root); err != nil {
			return stat, err
		}
	}
	c.uid, c.gid = root.st.Uid, root.st.Gid
	c.fill(&stat, ".", &root.st, tree.Dir)
	stat.UID, stat.GID = root.st.Uid, root.st.Gid
	first := &worker{walker: c}
	hides := false
	if stat.XAttrs, hides, err = first.xattrs(fd.fd); err != nil {
		return stat, fmt.Errorf("read extended attributes of the workspace: %w", err)
	}
	if hides {
		c.omit(&c.secret, ".", hidden)
	}
	var wg sync.WaitGroup
	all := []*worker{first}
	c.ignored, c.sizes.limit = c.ignoreNames(), c.opt.Settings.MaxSize
	c.tasks = tasks.New(task{dir: root})
	for range workers - 1 {
		w := &worker{walker: c}
		all = append(all, w)
		wg.Go(w.work)
	}
	first.work()
	wg.Wait()
	for _, w := range all {
		c.seen = append(c.seen, w.seen...)
	}
	return stat, nil
}

// writeLinks stores the groups of paths that were one file.
func (c *walker) writeLinks() (cas.Blob, error) {
	groups, err := c.carry(c.links.groups())
	if err != nil || len(groups) == 0 {
		return cas.Blob{}, err
	}
	data, err := tree.EncodeLinks(groups)
	if err != nil {
		return cas.Blob{}, fmt.Errorf("list hard links: %w", err)
	}
	return cas.WriteBlob(c.ctx, c.w, cas.Trees, strings.NewReader(string(data)))
}

// walker is the state of one capture.
type walker struct {
	ctx       context.Context
	opt       Options
	cancel    context.CancelCauseFunc // with the first error that ends the capture
	w         cas.Writer
	meter     *progress.Meter // files that are done, and their bytes, of which long ones count while they are read
	read      atomic.Int64    // bytes of contents
	uid, gid  uint32          // the default owner
	known     *Known
	lower     *lowerState // nil: all of the workspace is read
	tasks     *tasks.Stack[task]
	links     linkTable
	root      tree.Root     // when all is done
	seen      []byte        // of all workers
	ignored   []string      // names of the ignore files that count
	budget    policy.Budget // of these
	plan      *plan         // nil: files are read and stored
	sizes     sizes
	unmatched func() []policy.Rule // includes that have matched nothing
	passed    atomic.Bool          // something is not saved since no include matches it
	fineTimes func(fd int) bool    // [fineTimes], but in tests
	looked    func(path string)    // for tests: after a directory was listed or a file looked at, before it is read

	mu         sync.Mutex
	problems   []Problem
	left       []Omission
	byPolicy   []string
	excluded   int
	special    int
	setuid     int
	unreadable int
	grew       int
	torn       int
	over       int
	secret     int
	secrets    []SecretFile

	ignoreFiles []policy.IgnoreFile
	warnings    []warning
	suspects    map[string]policy.Rule // see [walker.suspect]

	sets       []cas.Hash // of attributes
	notes      [][]byte   // encoded [screened]
	setNumbers map[cas.Hash]uint32
}

// problem notes an entry that keeps the capture from being whole. The walk goes
// on, so that the user learns of all of them at once.
func (c *walker) problem(path string, err error) {
	if path == "" {
		path = "."
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, Problem{Path: c.opt.Screen.Declared.Mask(path), Err: err})
}

// omit notes an entry that is left out on purpose and counts it.
func (c *walker) omit(count *int, path, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
	declared := c.opt.Screen.Declared
	path = declared.Mask(path)
	c.left = append(c.left, Omission{Path: path, Why: declared.Mask(why)})
	if count == &c.excluded || count == &c.over || count == &c.secret {
		c.byPolicy = append(c.byPolicy, path)
	}
}
