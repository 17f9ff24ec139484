package snapshot

import (
	"context"
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// A treeMaker makes a tree of entries that come in the order of [imported] keys.
type treeMaker struct {
	ctx  context.Context
	w    cas.Writer
	root tree.Entry // UID and GID are the default owner
	// check looks at each entry that gets into the tree; nil: nobody does.
	check func(path string, e *tree.Entry) error

	open []openDir // the root first
	last string    // key of the last entry
	leaf string    // key of the last one that is no directory; "": none
	puts int       // entries that came
	made int       // directories above them that the archive does not have
	objs []cas.Object
	size int // of objs, in bytes
}

// openDir is a directory of which more entries may come.
type openDir struct {
	tree.Entry
	tree.Builder
}

// pathOf is the path of a key.
func pathOf(key string) string { return strings.ReplaceAll(key, "\x00", "/") }

// keyOf is the key of a path.
func keyOf(path string) string { return strings.ReplaceAll(path, "/", "\x00") }

// put takes the next entry.
func (m *treeMaker) put(e *imported) error {
	if m.open == nil {
		m.open = []openDir{{Entry: m.root}}
	}
	entry := e.Entry
	if entry.Owned = e.owned || e.UID != m.root.UID || e.GID != m.root.GID; !entry.Owned {
		entry.UID, entry.GID = 0, 0
	}
	names := strings.Split(e.key, "\x00")
	entry.Name = names[len(names)-1]
	above := names[:len(names)-1]
	if e.key == m.last {
		top := &m.open[len(m.open)-1]
		if entry.Kind != tree.Dir || m.leaf == m.last || e.skipped {
			return badEntry(pathOf(e.key), "it is there twice")
		}
		top.Entry = entry
		return nil
	}
	if m.leaf != "" && strings.HasPrefix(e.key, m.leaf) && e.key[len(m.leaf)] == 0 {
		return badEntry(pathOf(e.key), "%s, which it would lie in, is no directory", quoted(pathOf(m.leaf)))
	}
	n := 1
	for n < len(m.open) && n <= len(above) && m.open[n].Name == above[n-1] {
		n++
	}
	if err := m.close(n); err != nil {
		return err
	}
	m.puts++
	if m.made += len(above) - (n - 1); m.made > missingFree+missingEach*m.puts {
		return badEntry(shortened(pathOf(e.key)), "%d directories are missing above it and %d entries before it, more than any archive leaves out", m.made, m.puts-1)
	}
	for _, name := range above[n-1:] {
		m.open = append(m.open, openDir{Entry: tree.Entry{Name: name, Kind: tree.Dir, Mode: missingMode}})
	}
	m.last = e.key
	if e.skipped {
		m.leaf = e.key
		return nil
	}
	if entry.Kind == tree.Dir {
		m.open = append(m.open, openDir{Entry: entry})
		return nil
	}
	m.leaf = e.key
	return m.enter(entry, tree.Totals{}, len(m.open)-1)
}

// missingMode is the mode of directories that an archive does not have. Their time is
// 1970-01-01.
const missingMode = 0o755

// How many directories an archive may leave out: missingFree, and missingEach for each of
// its entries. A name of 4,095 bytes can have 2,047 of them, so that a few kilobytes would
// stand for millions. No program that leaves directories out gets there: the paths of real
// files have some ten parts on average, and share most of them.
const (
	missingFree = 4096
	missingEach = 64
)

// enter adds an entry to an open directory.
func (m *treeMaker) enter(e tree.Entry, below tree.Totals, depth int) error {
	if m.check != nil {
		if err := m.check(m.path(depth, e.Name), &e); err != nil {
			return err
		}
	}
	if err := m.open[depth].Add(e, below); err != nil {
		return badEntry(m.path(depth, e.Name), "%v", err)
	}
	return m.keep(m.open[depth].Settled())
}

// path is the path of a name in an open directory.
func (m *treeMaker) path(depth int, name string) string {
	var b strings.Builder
	for _, d := range m.open[1 : depth+1] {
		b.WriteString(d.Name + "/")
	}
	return b.String() + name
}

// close makes objects of all open directories but the first n.
func (m *treeMaker) close(n int) error {
	for len(m.open) > n {
		d := &m.open[len(m.open)-1]
		root, err := m.finish(d)
		if err != nil {
			return err
		}
		e := d.Entry
		e.Hash = root.Hash
		m.open = m.open[:len(m.open)-1]
		if err := m.enter(e, root.Totals, len(m.open)-1); err != nil {
			return err
		}
	}
	return nil
}

// finish makes the objects of a directory.
func (m *treeMaker) finish(d *openDir) (tree.Root, error) {
	root, objs, err := d.Finish()
	if err != nil {
		return root, err
	}
	return root, m.keep(objs)
}

// keep takes objects of directories, and stores them when there are several.
func (m *treeMaker) keep(objs []cas.Object) error {
	for _, o := range objs {
		m.size += len(o.Data)
	}
	m.objs = append(m.objs, objs...)
	if len(m.objs) < 256 && m.size < 1<<20 {
		return nil
	}
	return m.store()
}

func (m *treeMaker) store() error {
	err := m.w.Put(m.ctx, m.objs...)
	m.objs, m.size = m.objs[:0], 0
	clear(m.objs[:cap(m.objs)])
	return err
}

// done stores the rest and returns what a record says of the tree.
func (m *treeMaker) done() (index.Root, index.Totals, error) {
	if m.open == nil {
		m.open = []openDir{{Entry: m.root}}
	}
	if err := m.close(1); err != nil {
		return index.Root{}, index.Totals{}, err
	}
	root, err := m.finish(&m.open[0])
	if err == nil {
		err = m.store()
	}
	r := m.root
	return index.Root{
		Tree: root.Hash, Mode: r.Mode, UID: r.UID, GID: r.GID,
		MtimeSec: r.MtimeSec, MtimeNsec: r.MtimeNsec, XAttrs: r.XAttrs,
	}, index.Totals(root.Totals), err
}

// importLinks are the hard links of an archive.
type importLinks struct {
	of     map[string]string      // key of a link -> key of the file
	groups map[string]*importLink // by the file's key
	text   int                    // bytes of all keys
}

// importLink is a file with further names.
type importLink struct {
	first uint64 // the place of its first link in the archive
	links []imported
	done  bool
}

// Limits of the hard links of one archive, which are in memory: those of a list of hard
// links.
const maxImportLinks = 4 << 20

// add takes a link.
func (l *importLinks) add(e imported, target string) error {
	if l.of == nil {
		l.of, l.groups = map[string]string{}, map[string]*importLink{}
	}
	if first, ok := l.of[target]; ok {
		target = first
	}
	if _, ok := l.of[e.key]; ok {
		return badEntry(pathOf(e.key), "it is there twice")
	}
	l.of[e.key] = target
	if l.text += len(e.key) + len(target); l.text > 2*tree.MaxLinkList || len(l.of) > maxImportLinks {
		return fmt.Errorf("%d hard links, more than a checkpoint can have: %w", len(l.of), cas.ErrTooLarge)
	}
	g := l.groups[target]
	if g == nil {
		g = &importLink{first: e.seq}
		l.groups[target] = g
	}
	g.links = append(g.links, e)
	return nil
}

// resolve gives each link what the file has that it is a name of, and adds it to the
// entries. It returns the groups of names.
func (l *importLinks) resolve(all *entrySorter, skip func(path, why string) error) ([][]string, error) {
	if len(l.groups) == 0 {
		return nil, nil
	}
	var groups [][]string
	to := &entrySorter{ctx: all.ctx, store: all.store, most: all.most}
	defer to.close()
	err := all.each(func(e *imported) error {
		g := l.groups[e.key]
		if g == nil || g.done || g.first < e.seq {
			return nil
		}
		g.done = true
		first := g.links[0]
		if !e.skipped && e.Kind == tree.Dir {
			return badEntry(pathOf(first.key), "its target %s is a directory", quoted(pathOf(e.key)))
		}
		group := []string{pathOf(e.key)}
		for _, link := range g.links {
			also := *e
			also.key, also.seq = link.key, link.seq
			if err := to.add(&also); err != nil {
				return err
			}
			if e.skipped {
				if err := skip(pathOf(link.key), "hard link of a special file"); err != nil {
					return err
				}
			}
			group = append(group, pathOf(link.key))
		}
		if !e.skipped && e.Kind == tree.File {
			groups = append(groups, group)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var lost *importLink
	for _, g := range l.groups {
		if !g.done && (lost == nil || g.first < lost.first) {
			lost = g
		}
	}
	if lost != nil {
		link := lost.links[0].key
		return nil, badEntry(pathOf(link), "no file %s comes before it, which it is to be a hard link of", quoted(pathOf(l.of[link])))
	}
	return groups, to.each(all.add)
}
