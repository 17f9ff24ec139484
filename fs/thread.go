package fs

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// threadDir lists a thread's checkpoints.
type threadDir struct {
	dir
	thread string
	roster roster
	shown  shown
	// gone says that the thread was deleted. Who is still in its directory finds
	// it empty, whatever thread gets its id later.
	gone  atomic.Bool
	owner owner
}

func (d *threadDir) valid() time.Duration  { return changing }
func (d *threadDir) absent() time.Duration { return changing }

func (d *threadDir) attr(out *fuse.Attr) {
	when := d.fs.started
	if t, err := d.fs.store.Thread(d.fs.ctx, d.thread); err == nil && !d.gone.Load() {
		when = t.Updated
	}
	d.dirAttr(out, d.shown.at(d.fs.calendar.at(threadKey(d.thread), when)))
	if d.fs.allowOther {
		d.private(out)
	}
}

// threadKey is the calendar's name for a thread's directory. Its directory of
// names shows the same time.
func threadKey(id string) string { return threadsName + "/" + id }

func (d *threadDir) lookup(name string) (node, error) {
	if d.gone.Load() {
		return nil, nil
	}
	switch name {
	case snapshot.LatestName:
		return d.latest()
	case snapshot.ByNameName:
		return d.byName(), nil
	}
	id, ok, err := d.fs.idOf(name, d.ids)
	if !ok || err != nil {
		return nil, err
	}
	return d.checkpoint(id)
}

// latest returns the link to the head, or nil when there is none.
func (d *threadDir) latest() (node, error) {
	t, err := d.fs.store.Thread(d.fs.ctx, d.thread)
	if err != nil || t.Head == "" {
		return nil, notThere(err)
	}
	return d.linkTo(snapshot.LatestName, snapshot.EncodeName(t.Head), t.Updated), nil
}

func (d *threadDir) byName() node {
	return d.child(snapshot.ByNameName, func(base dir) kept {
		n := &byNameDir{dir: base, of: d}
		n.take(virtualIno(snapshot.ByNameName, d.thread))
		return n
	})
}

// checkpoint returns the node of one of the thread's checkpoints, or nil.
func (d *threadDir) checkpoint(id string) (node, error) {
	cp, err := d.fs.store.Resolve(d.fs.ctx, id)
	if err != nil {
		return nil, notThere(err)
	}
	if cp.ID != id || cp.Thread != d.thread {
		return nil, nil
	}
	return d.checkpointNode(cp), nil
}

func (d *threadDir) checkpointNode(cp snapshot.Checkpoint) node {
	return d.child(snapshot.EncodeName(cp.ID), func(base dir) kept {
		n := &checkpointDir{dir: base, cp: cp}
		n.take(virtualIno("checkpoint", cp.ID))
		return n
	})
}

// checkpoints lists the thread's checkpoints, oldest first.
func (d *threadDir) checkpoints() ([]snapshot.Checkpoint, error) {
	if d.gone.Load() {
		return nil, nil
	}
	cps, err := d.fs.store.Checkpoints(d.fs.ctx, d.thread, snapshot.Page{})
	slices.Reverse(cps)
	return cps, notThere(err)
}

func (d *threadDir) ids() ([]string, error) {
	cps, err := d.checkpoints()
	ids := make([]string, len(cps))
	for i, cp := range cps {
		ids[i] = cp.ID
	}
	return ids, err
}

// fixedEntries is how many entries come before the checkpoints.
const fixedEntries = 2

func (d *threadDir) list(off uint64, _ bool, add func(listed) bool) error {
	if d.gone.Load() {
		return nil
	}
	if off == 0 {
		ids, err := d.ids()
		if err != nil {
			return err
		}
		d.roster.update(ids)
		if !add(listed{name: snapshot.ByNameName, off: 1, mode: unix.S_IFDIR, ino: virtualIno(snapshot.ByNameName, d.thread),
			make: func() (node, error) { return d.byName(), nil }}) {
			return nil
		}
		off = 1
	}
	if off == 1 {
		t, err := d.fs.store.Thread(d.fs.ctx, d.thread)
		if err != nil {
			return notThere(err)
		}
		if t.Head != "" && !add(listed{name: snapshot.LatestName, off: fixedEntries, mode: unix.S_IFLNK, ino: virtualIno("link", snapshot.LatestName, snapshot.EncodeName(t.Head)),
			make: d.latest}) {
			return nil
		}
		off = fixedEntries
	}
	for i, id := range d.roster.from(off - fixedEntries) {
		if id != "" && !add(listed{name: snapshot.EncodeName(id), off: off + uint64(i) + 1, mode: unix.S_IFDIR, ino: virtualIno("checkpoint", id),
			make: func() (node, error) { return d.checkpoint(id) }}) {
			break
		}
	}
	return nil
}

// byNameDir has a link for each named checkpoint of a thread.
type byNameDir struct {
	dir
	of     *threadDir
	roster roster
}

func (d *byNameDir) valid() time.Duration  { return changing }
func (d *byNameDir) absent() time.Duration { return changing }
func (d *byNameDir) attr(out *fuse.Attr)   { d.of.attr(out) }

// names returns the named checkpoints by name.
func (d *byNameDir) names() (map[string]snapshot.Checkpoint, error) {
	cps, err := d.of.checkpoints()
	named := map[string]snapshot.Checkpoint{}
	for _, cp := range cps {
		if cp.Name != "" {
			named[cp.Name] = cp
		}
	}
	return named, err
}

func (d *byNameDir) linkNode(cp snapshot.Checkpoint) node {
	return d.linkTo(snapshot.EncodeName(cp.Name), "../"+snapshot.EncodeName(cp.ID), cp.Created)
}

func (d *byNameDir) lookup(name string) (node, error) {
	if d.of.gone.Load() {
		return nil, nil
	}
	want, ok, err := d.fs.idOf(name, func() ([]string, error) {
		named, err := d.names()
		var ids []string
		for id := range named {
			ids = append(ids, id)
		}
		return ids, err
	})
	if !ok || err != nil {
		return nil, err
	}
	cp, err := d.fs.store.Resolve(d.fs.ctx, d.of.thread+"@"+want)
	if err != nil || cp.Thread != d.of.thread || cp.Name != want {
		return nil, notThere(err)
	}
	return d.linkNode(cp), nil
}

func (d *byNameDir) list(off uint64, _ bool, add func(listed) bool) error {
	named, err := d.names()
	if err != nil {
		return err
	}
	if off == 0 {
		names := make([]string, 0, len(named))
		for name := range named {
			names = append(names, name)
		}
		slices.Sort(names)
		d.roster.update(names)
	}
	for i, name := range d.roster.from(off) {
		cp, ok := named[name]
		if ok && !add(listed{name: snapshot.EncodeName(name), off: off + uint64(i) + 1, mode: unix.S_IFLNK, ino: virtualIno("link", snapshot.EncodeName(name), "../"+snapshot.EncodeName(cp.ID)),
			make: func() (node, error) { return d.linkNode(cp), nil }}) {
			break
		}
	}
	return nil
}
