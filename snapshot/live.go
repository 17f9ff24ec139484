package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// A live is the side of a comparison that is a directory as it is now. Of it only what a
// save with the checkpoint's policy would keep is there.
type live struct {
	dir   string
	root  *capture.Root
	trees freshTrees
	out   map[string]bool // what the policy leaves out

	// Of the checkpoint that it is compared with: what was left out for a declared
	// secret, and where secrets were overwritten.
	secret map[string]bool
	masked []capture.Omission // of secret, those in the paths of which there are stars
	hidden func() (map[string][]secrets.Range, error)
}

// CompareDir begins to compare a checkpoint with a directory. It looks at all that a save
// with the policy of the checkpoint would keep, and reads the files that have changed
// since the directory was last saved, or all of them. Nothing is written, neither there
// nor to the store. It fails with [capture.ErrUnsavable] if something cannot be read.
func (s *Store) CompareDir(ctx context.Context, ref, dir string) (*Comparison, error) {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return nil, err
	}
	workspace, err := s.comparable(dir)
	if err != nil {
		return nil, err
	}
	l := &live{dir: dir, hidden: func() (map[string][]secrets.Range, error) { return nil, nil }}
	if rec.Totals.Redacted > 0 {
		l.hidden = sync.OnceValues(func() (map[string][]secrets.Range, error) { return s.overwritten(ctx, rec) })
	}
	omitted, err := s.omissions(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	l.lacks(omitted)
	if l.root, err = capture.OpenRoot(workspace); err != nil {
		return nil, fmt.Errorf("open %s: %w", quoted(dir), err)
	}
	got, err := s.look(ctx, l, cp, rec, workspace)
	if err != nil {
		_ = l.root.Close()
		return nil, err
	}
	l.out = map[string]bool{}
	for _, p := range got.ByPolicy {
		l.out[p] = true
	}
	stat := got.Stat
	stat.Hash = got.Root.Hash
	l.trees.under = hashed{s.blobs}
	return &Comparison{
		store: s, old: s.saved(rec), live: l,
		new:   version{name: dir, root: stat, content: l.content},
		trees: tree.NewReader(&l.trees, treeCache),
	}, nil
}

// comparable returns the real path of a directory, and refuses what is no workspace.
func (s *Store) comparable(dir string) (string, error) {
	real, err := checkWorkspace(s.dir, dir, true)
	if err != nil {
		return "", err
	}
	if s.dir != "" && Within(real, realPath(s.dir)) {
		return "", fmt.Errorf("compare with %s, inside the store: %w", quoted(dir), ErrRefused)
	}
	mounts, err := Mountpoints()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if Within(real, m.Mountpoint) {
			return "", WithHint(fmt.Errorf("compare with %s, on the snapfs mount %s: %w", quoted(dir), quoted(m.Mountpoint), ErrRefused), "two checkpoints are compared by their references: snapfs diff REF REF")
		}
	}
	return real, nil
}

// look captures a directory as a save after a checkpoint would, and keeps of it the
// directories alone.
func (s *Store) look(ctx context.Context, l *live, cp Checkpoint, rec index.Record, workspace string) (capture.Result, error) {
	saved, files, err := s.savedPolicy(ctx, rec)
	if err != nil {
		return capture.Result{}, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	opt := capture.Options{Files: files, Settings: saved.Settings, AllowTorn: true}
	opt.Settings.MaxSize = 0
	if !saved.Settings.SkipOver {
		opt.Settings.MaxFileSize = 0 // a save fails where something is left out here
	}
	opt.Settings.Secrets = policy.SecretsOff
	if saved.Settings.Secrets == policy.SecretsExclude {
		opt.Settings.Secrets = policy.SecretsExclude
	}
	allowed := SecretsOptions{Allowed: saved.Allowed}
	if opt.Screen, err = allowed.screen(opt.Settings.Secrets); err != nil {
		return capture.Result{}, fmt.Errorf("checkpoint %s: its policy: %w", quoted(cp.ID), err)
	}
	if opt.Skip, err = skipped(s.dir); err != nil {
		return capture.Result{}, err
	}
	thread := cp.Thread
	instant, err := s.instant(workspace)
	if err == nil && instant != nil {
		opt.Lower, _, err = s.lower(ctx, instant, saved)
		thread = cmp.Or(s.lastSaved(*instant).Thread, thread)
	}
	if err != nil {
		return capture.Result{}, err
	}
	if opt.Lower != nil {
		opt.Skip = nil // nothing is mounted in it
	}
	now := s.goodFor(files, saved.Settings, opt.Screen)
	opt.Known, opt.Screen.Fewer = s.knownOf(ctx, read(workspace, opt.Lower), thread, now)
	opt.Screen.Before = s.overwrittenIn(ctx, cp.ID)
	progress.From(ctx).Expect(int64(rec.Totals.Files), int64(rec.Totals.Bytes))
	const tries = 3 // files come and go where somebody works
	for try := 1; ; try++ {
		got, err := capture.Tree(ctx, workspace, &l.trees, opt)
		if err == nil {
			return got, nil
		}
		if errors.Is(err, capture.ErrNeedsScan) {
			opt.Lower = nil
			opt.Known, opt.Screen.Fewer = s.knownOf(ctx, workspace, thread, now)
			continue
		}
		if try == tries || !capture.OnlyMoved(err) {
			return capture.Result{}, lookError(err, workspace, l.dir)
		}
	}
}

// knownOf returns what the last save of a workspace found, if that is good now. It was to
// the thread that the workspace is remembered by, or else to another one.
func (s *Store) knownOf(ctx context.Context, workspace, thread string, now knownFor) (known *capture.Known, fewer bool) {
	if s.dir == "" {
		return nil, false
	}
	var err error
	if now.Aside, err = s.asidePacks(); err != nil {
		return nil, false
	}
	threads := []string{thread}
	if last, err := s.remembered(workspace); err == nil && last != "" && last != thread {
		threads = []string{last, thread}
	}
	for _, thread := range threads {
		file, err := s.knownPath(workspace, thread)
		if err != nil {
			return nil, false
		}
		known, base, fewer := s.loadKnown(file, now)
		if known == nil {
			continue
		}
		if s.there(ctx, base) { // while it is, so are the objects
			return known, fewer
		}
	}
	return nil, false
}

// lookError says what of a directory could not be looked at. given is how the user calls
// it.
func lookError(err error, workspace, given string) error {
	if errors.Is(err, capture.ErrUnfinished) {
		if e := restore.Unfinished(workspace); e != nil {
			err = unfinishedHint(err, e, given)
		}
	}
	var problems *capture.ProblemsError
	if !errors.As(err, &problems) {
		return fmt.Errorf("look at %s: %w", quoted(given), err)
	}
	const shown = 20
	var b strings.Builder
	for _, p := range problems.Problems[:min(shown, len(problems.Problems))] {
		fmt.Fprintf(&b, "\n  %s: %v", quoted(p.Path), p.Err)
	}
	if more := len(problems.Problems) - shown; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	err = &lookFailure{text: fmt.Sprintf("%s cannot be compared whole:%s", quoted(given), b.String()), err: err}
	if errors.Is(err, capture.ErrUnfinished) {
		return WithHint(err, "run that restore again, which finishes it")
	}
	return WithHint(err, "what a save would keep has to be readable and there: mend it, and compare again")
}

// A lookFailure has a text of its own in place of the error's.
type lookFailure struct {
	text string
	err  error
}

func (e *lookFailure) Error() string { return e.text }
func (e *lookFailure) Unwrap() error { return e.err }

// lacks takes what the checkpoint lacks for declared secrets.
func (l *live) lacks(omitted []capture.Omission) {
	l.secret = map[string]bool{}
	for _, o := range omitted {
		if !capture.ForDeclared(o.Why) {
			continue
		}
		l.secret[o.Path] = true
		if strings.Contains(o.Path, "*") {
			l.masked = append(l.masked, o)
		}
	}
}

// lacked reports whether the checkpoint lacks a path for a declared secret.
func (l *live) lacked(p string) bool {
	return at(l.secret, p) || slices.ContainsFunc(l.masked, func(o capture.Omission) bool { return o.Masked(p) })
}

// Close gives free what a comparison with a directory has open.
func (c *Comparison) Close() error {
	if c.live == nil {
		return nil
	}
	return c.live.root.Close()
}

// at reports whether a path, or a directory above it, is one of a set.
func at(set map[string]bool, p string) bool { return above(set, p) != "" }

// above returns the path, or the next one above it, that is one of a set; "": none is.
func above(set map[string]bool, p string) string {
	for len(set) > 0 && !set[p] {
		if p == "." {
			return ""
		}
		p = path.Dir(p)
	}
	if len(set) == 0 {
		return ""
	}
	return p
}

// kept reports whether a saved entry that the policy leaves out now may be there still: what
// has its name, or the name of a directory above it, is of the same kind.
func (l *live) kept(ch tree.Change) bool {
	out := above(l.out, ch.Path)
	if out == "" {
		return false
	}
	kind := tree.Dir
	if out == ch.Path {
		kind = ch.Old.Kind
	}
	info, err := os.Lstat(filepath.Join(l.dir, out))
	if err != nil {
		return false
	}
	switch info.Mode().Type() {
	case 0:
		return kind == tree.File
	case iofs.ModeDir:
		return kind == tree.Dir
	case iofs.ModeSymlink:
		return kind == tree.Symlink
	}
	return false
}

// counting passes on to fn what counts as a difference.
func (l *live) counting(ctx context.Context, c *Comparison, opt DiffOptions, fn func(tree.Change) error) func(tree.Change) error {
	return func(ch tree.Change) error {
		switch {
		case ch.Op == tree.Deleted && l.kept(ch), ch.Op == tree.Added && l.lacked(ch.Path):
			return nil
		case ch.Op == tree.Renamed && at(l.out, ch.From): // it is there still
			return c.added(ctx, ch, fn)
		case ch.Old == nil || ch.New == nil || ch.Op == tree.Type:
			return fn(ch)
		}
		old, new := *ch.Old, *ch.New
		if l.secret[ch.Path] {
			new.XAttrs = old.XAttrs
		}
		if new.Kind == tree.Dir {
			new.MtimeSec, new.MtimeNsec = old.MtimeSec, old.MtimeNsec // names that are left out move it, too
		}
		if ch.Op == tree.Modified && old.Flags&tree.Redacted != 0 && old.Size == new.Size {
			alike, err := l.alike(ctx, c, ch.Path, &old)
			if err != nil {
				return err
			}
			if alike {
				new.Hash, new.Flags = old.Hash, old.Flags
				ch.Op = tree.Metadata
			}
		}
		if ch.Op == tree.Metadata && !metadataDiffers(&old, &new, opt) {
			return nil
		}
		ch.Old, ch.New = &old, &new
		return fn(ch)
	}
}

// metadataDiffers compares entries with the same content.
func metadataDiffers(old, new *tree.Entry, opt DiffOptions) bool {
	return old.Mode != new.Mode || old.XAttrs != new.XAttrs || old.Flags != new.Flags || !sameTime(old, new) ||
		opt.Owner && (old.Owned != new.Owned || old.UID != new.UID || old.GID != new.GID)
}

// added tells what a rename brings as added, with all below it.
func (c *Comparison) added(ctx context.Context, ch tree.Change, fn func(tree.Change) error) error {
	if err := fn(tree.Change{Op: tree.Added, Path: ch.Path, New: ch.New}); err != nil || ch.New.Kind != tree.Dir {
		return err
	}
	return c.below(ctx, ch, func(ch tree.Change) error {
		return fn(tree.Change{Op: tree.Added, Path: ch.Path, New: ch.New})
	})
}

// alike reports whether a live file differs from the saved one only where secrets were
// overwritten in that.
func (l *live) alike(ctx context.Context, c *Comparison, p string, e *tree.Entry) (bool, error) {
	ranges, err := l.hidden()
	if err != nil || len(ranges[p]) == 0 {
		return false, err
	}
	f, err := l.root.Open(p)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return restore.OnlySecretsDiffer(ctx, c.store.blobs, f, e, ranges[p])
}

// errChanged: a file is shorter than it was a moment ago.
var errChanged = errors.New("changed while it was compared")

// content writes the content of a live file, as long as it was when it was looked at.
func (l *live) content(_ context.Context, p string, e *tree.Entry, w io.Writer) error {
	f, err := l.root.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, io.LimitReader(f, int64(e.Size)))
	if err == nil && n < int64(e.Size) {
		err = errChanged
	}
	return err
}
