package capture

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// child is one entry of a directory on its way into the tree.
type child struct {
	name  string
	path  string
	st    unix.Stat_t
	entry tree.Entry
	below tree.Totals
	ok    bool         // entry is complete
	sub   policy.Scope // of a directory
	keep  bool         // a directory that stays even when nothing below it does
}

// dir captures the entries of an open directory. path is "" for the root, else
// it ends in a slash. kept is how many entries it has. Errors are of the whole
// capture; those of single entries are noted and the walk goes on.
func (c *walker) dir(d *dirFD, path string, scope policy.Scope) (root tree.Root, kept int, err error) {
	children, err := c.list(d, path, scope)
	if err != nil {
		c.problem(strings.TrimSuffix(path, "/"), vanished(err))
		return tree.Root{}, 0, errUnlisted
	}
	var wg sync.WaitGroup
	var batch []*child
	var bytes int64
	for _, e := range children {
		switch e.st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			c.spawn(&wg, func() { c.subdir(d, e) })
		case unix.S_IFREG:
			if limit := c.opt.MaxFileSize; limit > 0 && e.st.Size > limit {
				c.problem(e.path, fmt.Errorf("%d bytes long, the limit is %d: %w", e.st.Size, limit, cas.ErrTooLarge))
				continue
			}
			if e.st.Size > batchBytes {
				c.spawn(&wg, func() { c.largeFile(d, e) })
				continue
			}
			if len(batch) == batchFiles || bytes+e.st.Size > batchBytes {
				files := batch
				batch, bytes = nil, 0
				c.spawn(&wg, func() { c.smallFiles(d, files) })
			}
			batch, bytes = append(batch, e), bytes+e.st.Size
		case unix.S_IFLNK:
			c.symlink(d, e)
		}
	}
	c.smallFiles(d, batch)
	wg.Wait()
	if c.ctx.Err() != nil {
		return tree.Root{}, 0, c.ctx.Err()
	}

	var b tree.Builder
	for _, e := range children {
		if !e.ok {
			continue
		}
		kept++
		if err := b.Add(e.entry, e.below); err != nil {
			return tree.Root{}, 0, fmt.Errorf("%s: %w", tree.Quote(e.path), err)
		}
	}
	root, objs, err := b.Finish()
	if err != nil {
		return tree.Root{}, 0, fmt.Errorf("directory %s: %w", tree.Quote(path), err)
	}
	if err := c.putTrees(objs); err != nil {
		c.cancel(err)
		return tree.Root{}, 0, err
	}
	return root, kept, nil
}

// list reads the directory's names in byte order and looks at those that the
// policy lets in.
func (c *walker) list(d *dirFD, path string, scope policy.Scope) ([]*child, error) {
	names, err := d.readNames()
	if err != nil {
		return nil, err
	}
	children := make([]*child, 0, len(names))
	for _, n := range names {
		e := &child{name: n.name, path: path + n.name}
		if n.name == Marker {
			c.problem(strings.TrimSuffix(path, "/"), ErrUnfinished)
			continue
		}
		looked := n.kind == unix.DT_UNKNOWN
		if looked {
			if !c.look(d, e) {
				continue
			}
			n.kind = e.kind()
		}
		decision, sub := scope.Decide(n.name, n.kind == unix.DT_DIR)
		if !decision.Keep && !decision.Descend {
			if decision.Rule.Pattern != "" {
				c.omit(&c.excluded, e.path, "excluded by "+decision.Rule.Pattern+" ("+decision.Rule.Source+")")
			}
			continue
		}
		if what, special := specialKinds[n.kind]; special {
			c.omit(&c.special, e.path, what)
			continue
		}
		if len(e.path) > tree.MaxPath {
			c.problem(e.path, fmt.Errorf("its path has %d bytes, at most %d can be saved", len(e.path), tree.MaxPath))
			continue
		}
		if !looked && !c.look(d, e) {
			continue
		}
		if e.kind() != n.kind {
			c.problem(e.path, errReplaced)
			continue
		}
		if d.fsRoot && e.name == "lost+found" && e.st.Uid == 0 && e.st.Mode&0o777 == 0o700 {
			continue // belongs to the file system and not to the workspace
		}
		e.sub, e.keep = sub, decision.Keep
		children = append(children, e)
	}
	return children, nil
}

// specialKinds are the kinds of entries that are never opened and never saved.
var specialKinds = map[uint8]string{
	unix.DT_SOCK: "socket",
	unix.DT_FIFO: "fifo",
	unix.DT_BLK:  "block device",
	unix.DT_CHR:  "character device",
}

var (
	// errUnlisted: a directory was opened and could not be listed, which was noted.
	errUnlisted = errors.New("cannot be listed")
	errVanished = errors.New("vanished while it was being saved")
	errReplaced = errors.New("was replaced while it was being saved")
)

// kind returns what the entry was when it was looked at, as DT_...: the
// constants are the file types of a mode, shifted.
func (e *child) kind() uint8 { return uint8(e.st.Mode & unix.S_IFMT >> 12) }

// look fetches an entry's metadata.
func (c *walker) look(d *dirFD, e *child) bool {
	if err := unix.Fstatat(d.fd, e.name, &e.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		c.problem(e.path, vanished(err))
		return false
	}
	return true
}

// vanished explains an entry that was listed and is gone, or is something else
// by now: a directory that is none, a file that is a link.
func vanished(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return errVanished
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return errReplaced
	}
	return err
}

// entry makes the tree entry of a stat, without content.
func (c *walker) entry(name, path string, st *unix.Stat_t, kind tree.Kind) tree.Entry {
	e := tree.Entry{
		Name:      name,
		Kind:      kind,
		Mode:      st.Mode & 0o1777,
		MtimeSec:  st.Mtim.Sec,
		MtimeNsec: uint32(st.Mtim.Nsec),
	}
	if kind == tree.Symlink {
		e.Mode = 0o777
	} else if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		c.omit(&c.setuid, path, "setuid and setgid bits dropped")
	}
	if st.Uid != c.uid || st.Gid != c.gid {
		e.Owned, e.UID, e.GID = true, st.Uid, st.Gid
	}
	return e
}

// subdir captures a directory below d.
func (c *walker) subdir(d *dirFD, e *child) {
	if c.ctx.Err() != nil {
		return
	}
	sub, err := d.openDir(e.name)
	if err != nil {
		c.problem(e.path, vanished(err))
		return
	}
	defer sub.close()
	// From here on the open directory is what counts, whatever its name leads
	// to by now.
	if err := unix.Fstat(sub.fd, &e.st); err != nil {
		c.problem(e.path, err)
		return
	}
	if c.opt.Skip != nil {
		if why := c.opt.Skip(e.st.Dev, e.st.Ino); why != "" {
			c.omit(&c.special, e.path, why)
			return
		}
	}
	sub.dev, sub.fsRoot = e.st.Dev, e.st.Dev != d.dev
	entry := c.entry(e.name, e.path, &e.st, tree.Dir)
	if entry.XAttrs, err = c.xattrs(sub.fd); err != nil {
		c.problem(e.path, err)
		return
	}
	root, kept, err := c.dir(sub, e.path+"/", e.sub)
	if errors.Is(err, errUnlisted) {
		return
	}
	if err != nil {
		c.cancel(err)
		return
	}
	if kept == 0 && !e.keep {
		return // only on the way to an include that matched nothing
	}
	entry.Hash = root.Hash
	e.entry, e.below, e.ok = entry, root.Totals, true
}

// symlink captures a link's own text.
func (c *walker) symlink(d *dirFD, e *child) {
	target, err := d.readlink(e.name)
	if errors.Is(err, unix.EINVAL) { // no link any more
		err = errReplaced
	}
	if err != nil {
		c.problem(e.path, vanished(err))
		return
	}
	entry := c.entry(e.name, e.path, &e.st, tree.Symlink)
	entry.Target, entry.Size = target, uint64(len(target))
	e.entry, e.ok = entry, true
}
