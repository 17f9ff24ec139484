package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// narrow adds what holds in a directory alone to what covers it: its ignore files, and
// that it may be a cache.
func (p *planner) narrow(path string, c coverage, has func(name string) bool) (coverage, error) {
	of := p.opt.Coverage
	switch {
	case path != "" && has(capture.Marker):
		c.none = "an unfinished restore is in it"
	case of == nil || c.none != "":
	case of.Caches && has(capture.CacheTag):
		c.none = "it is in a cache directory"
	case of.Narrow != nil:
		scope, known, err := of.Narrow(path, c.scope)
		if err != nil {
			return c, err
		}
		if c.scope = scope; !known {
			c.none = "what ignore files said about it is not known"
		}
	}
	return c, nil
}

// down is the coverage of a directory of the checkpoint.
func (p *planner) down(c coverage, name string) coverage {
	if c.none == "" && p.opt.Coverage != nil && p.opt.Coverage.Files != nil {
		_, c.scope = c.scope.Decide(name, true)
	}
	return c
}

// A guard says how far a live entry that the checkpoint does not have may be deleted.
type guard struct {
	why   string // it stays; "": nothing protects the entry itself
	pass  bool   // it stays, a directory, but what is in it may go
	do    policy.Scope
	cover coverage // of what is in it
}

// guarded asks all that can protect an entry from a mirror.
func (p *planner) guarded(at, name string, st *unix.Stat_t, do policy.Scope, cover coverage) (g guard) {
	isDir := isKind(st, tree.Dir)
	mine, below := do.Decide(name, isDir)
	g.do, g.cover = below, cover
	covered := policy.Decision{Keep: true, Descend: true}
	c := p.opt.Coverage
	if c != nil && c.Files != nil && cover.none == "" {
		covered, g.cover.scope = cover.scope.Decide(name, isDir)
	}
	omitted := ""
	if c != nil && c.Omitted != nil {
		omitted = c.Omitted(at)
	}
	switch {
	case special(st):
		g.why = "a " + kindOf(st)
	case !mine.Keep && mine.Rule.Pattern != "":
		g.why = excludedBy(mine.Rule)
	case !mine.Keep && !mine.Descend:
		g.why = "not included"
	case cover.none != "":
		g.why = "not saved: " + cover.none
	case !covered.Keep && covered.Rule.Pattern != "":
		g.why = "not saved: " + excludedBy(covered.Rule)
	case !covered.Keep && !covered.Descend:
		g.why = "not saved: not included"
	case omitted != "":
		g.why = "not saved: " + omitted
	case c != nil && c.MaxFileSize > 0 && isKind(st, tree.File) && st.Size > c.MaxFileSize:
		g.why = "not saved: it is longer than the limit"
	case !mine.Keep || !covered.Keep:
		g.why, g.pass = "on the way to what is included", true
	}
	return g
}

// mounted is why what is mounted in the target is left alone.
const mounted = "another file system is mounted there"

// statusOf tells the mount that an entry of the open directory dir lies on, or with no
// name the directory. Where the kernel does not number them, a device is as good for
// directories; of an overlayfs, files have devices of their own.
// fixed says that the entry cannot be changed, be it by root.
func statusOf(dir int, name string, st *unix.Stat_t) (mount uint64, fixed bool) {
	var x unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_MNT_ID, &x); err != nil {
		return st.Dev, false
	}
	fixed = x.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
	if x.Mask&unix.STATX_MNT_ID == 0 {
		return st.Dev, fixed
	}
	return x.Mnt_id, fixed
}

// untouchable says why a live entry may not be deleted or replaced, nor what is in it,
// whoever asks; "": it may. Without a name it is dir itself.
func (p *planner) untouchable(dir int, name string, st *unix.Stat_t) string {
	mount, fixed := statusOf(dir, name, st)
	switch {
	case mount != p.mount:
		return mounted
	case fixed:
		return "it is immutable"
	case isKind(st, tree.Dir) && !own(dir, st):
		if err := unix.Faccessat(dir, cmp.Or(name, "."), unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			return "its entries cannot be changed: " + err.Error()
		}
	}
	if name != "" && os.Geteuid() != 0 && !own(dir, st) {
		var above unix.Stat_t
		if unix.Fstat(dir, &above) == nil && above.Mode&unix.S_ISVTX != 0 && !own(dir, &above) {
			return "it is somebody else's, in a sticky directory of somebody else's"
		}
	}
	if c := p.opt.Coverage; c != nil && c.Foreign != nil && isKind(st, tree.Dir) {
		return c.Foreign(st.Dev, st.Ino)
	}
	return ""
}

// extra plans a live entry that the checkpoint does not have.
func (p *planner) extra(l *look, d *planDir, it *item, do policy.Scope, cover coverage) error {
	fd, path := l.dir.fd, l.path
	if it.st == nil { // gone meanwhile
		return nil
	}
	if p.opt.Mode != Mirror {
		if l.staleLog(it) {
			p.note(Delete, path+it.name, "the log of a database that becomes the checkpoint's")
			d.remove = append(d.remove, it.name)
			return nil
		}
		p.note(Keep, path+it.name, "not in the checkpoint")
		return nil
	}
	gone, below, err := p.removal(fd, path, it.name, it.st, do, cover)
	switch {
	case err != nil:
		return err
	case gone:
		d.remove = append(d.remove, it.name)
	case below != nil:
		d.dirs[it.name] = below
	}
	return nil
}

// staleLog reports whether a live file is the log of an SQLite database of which the
// checkpoint has the database alone: SQLite would apply it to that, and what is in it is
// no part of the checkpoint; it would ruin one that comes in its place.
func (l *look) staleLog(it *item) bool {
	base, isLog := strings.CutSuffix(it.name, "-wal")
	if !isLog {
		base, isLog = strings.CutSuffix(it.name, "-journal")
	}
	if !isLog || !isKind(it.st, tree.File) || it.st.Size == 0 {
		return false
	}
	at, found := slices.BinarySearchFunc(l.items, base, func(it item, name string) int { return strings.Compare(it.name, name) })
	if !found || l.items[at].saved == nil || l.items[at].saved.Kind != tree.File {
		return false
	}
	if decision, _ := l.do.Decide(base, false); !decision.Keep {
		return false
	}
	if l.items[at].st != nil {
		return capture.IsDatabase(l.head(base, 16))
	}
	// Without its database it tells itself (sqlite.org/fileformat2.html).
	head := string(l.head(it.name, 8))
	return strings.HasPrefix(head, "\x37\x7f\x06\x82") || strings.HasPrefix(head, "\x37\x7f\x06\x83") || head == "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
}

// head returns the first bytes of a live file, or nil.
func (l *look) head(name string, n int64) []byte {
	fd, err := openFile(l.dir.fd, name)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var head []byte
	if !readAt(fd, &head, n, 0) {
		return nil
	}
	return head
}

// removal plans the deletion of a live entry with all below it, as far as that may go.
func (p *planner) removal(fd int, path, name string, st *unix.Stat_t, do policy.Scope, cover coverage) (gone bool, below *planDir, err error) {
	at := path + name
	if why := p.untouchable(fd, name, st); why != "" {
		p.note(Keep, at, why)
		return false, nil, nil
	}
	g := p.guarded(at, name, st, do, cover)
	if g.why != "" && !g.pass {
		p.note(Keep, at, g.why)
		return false, nil, nil
	}
	change := p.note(Delete, at, "")
	if !isKind(st, tree.Dir) {
		return true, nil, nil
	}
	left := g.pass
	below, err = p.each(fd, at, name, st, g.cover, func(sub int, name string, st *unix.Stat_t, cover coverage) (bool, *planDir, error) {
		gone, further, err := p.removal(sub, at+"/", name, st, g.do, cover)
		left = left || !gone
		return gone, further, err
	})
	if err != nil {
		return false, nil, err
	}
	if !left {
		return true, nil, nil
	}
	if g.why == "" {
		g.why = "it holds what is kept"
	}
	p.instead(change, Delete, Keep, g.why)
	if below.empty() {
		return false, nil, nil
	}
	return false, below, nil
}

// each asks about every entry of a live directory.
func (p *planner) each(fd int, at, name string, st *unix.Stat_t, cover coverage, ask func(fd int, name string, st *unix.Stat_t, cover coverage) (bool, *planDir, error)) (*planDir, error) {
	if err := context.Cause(p.ctx); err != nil {
		return nil, err
	}
	sub, err := enter(fd, name)
	if err != nil {
		return nil, fmt.Errorf("look at %s in the target: %w", tree.Quote(at), err)
	}
	defer sub.leave()
	names, err := namesIn(sub.fd)
	if err != nil {
		return nil, fmt.Errorf("look at %s in the target: %w", tree.Quote(at), err)
	}
	if cover, err = p.narrow(at+"/", cover, func(name string) bool { return slices.Contains(names, name) }); err != nil {
		return nil, err
	}
	d := &planDir{dev: st.Dev, ino: st.Ino, dirs: map[string]*planDir{}}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(sub.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return nil, p.at(at+"/"+name, err)
		}
		gone, further, err := ask(sub.fd, name, &st, cover)
		switch {
		case err != nil:
			return nil, err
		case gone:
			d.remove = append(d.remove, name)
		case further != nil:
			d.dirs[name] = further
		}
	}
	return d, nil
}

// swap plans an entry of which there is another kind. do is its directory's, sub its own.
func (p *planner) swap(fd int, d *planDir, at string, it *item, keep bool, do, sub policy.Scope, cover coverage) error {
	e, place := it.saved, len(p.list)
	made, err := p.missing(at, e, sub, keep)
	if err != nil || !made {
		return err
	}
	p.counts.Created--
	p.counts.Replaced++
	if place < len(p.list) {
		p.list[place].Op, p.list[place].Why = Replace, "a "+kindOf(it.st)
	}
	where := taken
	if e.Kind == tree.Dir || isKind(it.st, tree.Dir) {
		where = other
	}
	p.makes(d, e, where)
	if !keep { // a directory that is only on the way to what was asked for
		p.inTheWay = append(p.inTheWay, Problem{Path: strings.Clone(at), Err: errors.New("not included")})
		return nil
	}
	return p.clear(fd, at, it.name, it.st, do, cover)
}

// clear plans the deletion of a live entry, and of all that is in it, where the
// checkpoint has something else. What a mirror would not delete stands in the way.
func (p *planner) clear(fd int, at, name string, st *unix.Stat_t, do policy.Scope, cover coverage) error {
	if why := p.untouchable(fd, name, st); why != "" {
		p.foreign = append(p.foreign, Problem{Path: strings.Clone(at), Err: errors.New(why)})
		return nil
	}
	g := p.guarded(at, name, st, do, cover)
	if g.why != "" && !g.pass {
		p.inTheWay = append(p.inTheWay, Problem{Path: strings.Clone(at), Err: errors.New(g.why)})
	}
	if !isKind(st, tree.Dir) {
		return nil
	}
	_, err := p.each(fd, at, name, st, g.cover, func(sub int, name string, st *unix.Stat_t, cover coverage) (bool, *planDir, error) {
		p.note(Delete, at+"/"+name, "")
		return false, nil, p.clear(sub, at+"/"+name, name, st, g.do, cover)
	})
	return err
}
