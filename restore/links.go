package restore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// linkGroups knows which paths are names of one file. The first path of a group
// that is restored gets the content; the others become links to it.
type linkGroups struct {
	groups map[string]int // path -> group
	size   []int          // by group: how many paths

	mu    sync.Mutex
	seen  []tree.Entry // by group: a member's entry without its name; no kind: none yet
	first []string     // by group: the path that was restored; empty: none yet
}

// further is a path to be linked to the first of its group.
type further struct {
	path, first string
	entry       tree.Entry
}

// readLinks loads the hard link groups of a checkpoint.
func readLinks(ctx context.Context, store cas.Store, links cas.Blob) (*linkGroups, error) {
	l := &linkGroups{}
	if links == (cas.Blob{}) {
		return l, nil
	}
	data, err := cas.ReadBlob(ctx, store, cas.Trees, links, tree.MaxLinkList)
	if err != nil {
		return nil, fmt.Errorf("hard links: %w", err)
	}
	groups, err := tree.DecodeLinks(data)
	if err != nil {
		return nil, fmt.Errorf("hard links: %w: %w", err, cas.ErrCorrupt)
	}
	l.groups = make(map[string]int)
	l.first, l.seen, l.size = make([]string, len(groups)), make([]tree.Entry, len(groups)), make([]int, len(groups))
	for i, group := range groups {
		l.size[i] = len(group)
		for _, p := range group {
			l.groups[p] = i
		}
	}
	return l, nil
}

// any reports whether there are hard links at all.
func (l *linkGroups) any() bool { return len(l.groups) > 0 }

// check refuses the entry at p when it cannot be one file with the other members
// of its group.
func (l *linkGroups) check(p string, e tree.Entry) error {
	i, ok := l.groups[p]
	if !ok {
		return nil
	}
	e.Name = ""
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Kind != tree.File:
		return corrupt("%s: a %s among the hard links", tree.Quote(p), e.Kind)
	case l.seen[i].Kind == 0:
		l.seen[i] = e
	case l.seen[i] != e:
		return corrupt("%s: differs from another hard link of the same file", tree.Quote(p))
	}
	return nil
}

// names returns how many names the file at p may have.
func (l *linkGroups) names(p string) int {
	if i, ok := l.groups[p]; ok {
		return l.size[i]
	}
	return 1
}

// prefer makes p the path of its group that gets the content, if none is yet: an
// earlier restore has written it.
func (l *linkGroups) prefer(p string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, ok := l.groups[p]; ok && l.first[i] == "" {
		l.first[i] = p
	}
}

// claim returns the path that has the content of p's group already, or "" when
// the caller is to restore it.
func (l *linkGroups) claim(p string) (first string) {
	i, ok := l.groups[p]
	if !ok {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first[i] == "" || l.first[i] == p {
		l.first[i] = p
		return ""
	}
	return l.first[i]
}

// linkAll makes the further names of files that have several.
func (w *writer) linkAll(root *target) error {
	slices.SortFunc(w.further, func(a, b further) int { return strings.Compare(a.path, b.path) })
	for _, l := range w.further {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if err := w.link(root, l); err != nil {
			return w.at(l.path, fmt.Errorf("link to %s: %w", tree.Quote(l.first), cas.NoSpace(err)))
		}
		w.meter.Add(0, int64(l.entry.Size))
	}
	w.count(int64(len(w.further)), 0)
	return nil
}

func (w *writer) link(root *target, l further) error {
	from, err := root.openBelow(path.Dir(l.first))
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := root.openBelow(path.Dir(l.path))
	if err != nil {
		return err
	}
	defer unix.Close(to)
	w.step()
	err = unix.Linkat(from, path.Base(l.first), to, path.Base(l.path), 0)
	if w.left != nil && errors.Is(err, unix.EEXIST) {
		err = w.relink(from, to, l)
	}
	switch {
	case unable(to, err) || oneOf(err, unix.EPERM, unix.EMLINK):
		w.incomplete(l.path, fmt.Errorf("a copy of %s instead of a hard link: the file system has none", tree.Quote(l.first)))
		err = w.copyOf(to, l)
	case errors.Is(err, errFilled):
		err = w.copyOf(to, l) // which keeps it
	case err == nil:
		err = w.linked(to, path.Base(l.path), l.path, &l.entry)
	}
	if err != nil {
		return err
	}
	if path.Dir(l.path) == "." {
		root.note(l.path)
	}
	return nil
}

// errFilled: a name of a hard link is a file of its own in which secrets were put back.
var errFilled = errors.New("secrets were put back")

// relink makes a link where an earlier restore left a file, unless that is the link. It
// fails with [errFilled] where that must stay.
func (w *writer) relink(from, to int, l further) error {
	first, name := path.Base(l.first), path.Base(l.path)
	var want, is unix.Stat_t
	if err := errors.Join(unix.Fstatat(from, first, &want, unix.AT_SYMLINK_NOFOLLOW), unix.Fstatat(to, name, &is, unix.AT_SYMLINK_NOFOLLOW)); err != nil {
		return err
	}
	if want.Dev == is.Dev && want.Ino == is.Ino {
		return nil
	}
	if filled, err := w.filled(to, l.path, &l.entry); err != nil {
		return err
	} else if filled {
		return errFilled
	}
	if err := w.remove(&target{fd: to}, &l.entry); err != nil {
		return err
	}
	w.step()
	return unix.Linkat(from, first, to, name, 0)
}

// copyOf makes a file of its own where there should be a further name of one.
func (w *writer) copyOf(dir int, l further) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	at := &target{fd: fd, made: true, parent: &target{}}
	defer at.close()
	return w.file(at, l.path, &l.entry)
}
