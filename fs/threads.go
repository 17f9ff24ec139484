package fs

import (
	"slices"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// threadsDir lists the threads.
type threadsDir struct {
	dir
	roster roster
	shown  shown
}

func (d *threadsDir) valid() time.Duration  { return changing }
func (d *threadsDir) absent() time.Duration { return changing }

func (d *threadsDir) attr(out *fuse.Attr) {
	d.dirAttr(out, d.shown.at(d.fs.calendar.at(threadsName, d.updated())))
	if d.fs.allowOther {
		out.Mode = unix.S_IFDIR | 0o711 // who knows a thread's id finds it, and its own mode decides
	}
}

// updated returns when one of the threads was last written to.
func (d *threadsDir) updated() time.Time {
	newest := d.fs.started
	if d.fs.only == nil {
		if t, err := d.fs.store.Threads(d.fs.ctx, snapshot.Page{Limit: 1}); err == nil && len(t) > 0 {
			newest = t[0].Updated
		}
		return newest
	}
	found := false
	for id := range d.fs.only {
		t, err := d.fs.store.Thread(d.fs.ctx, id)
		if err == nil && (!found || t.Updated.After(newest)) {
			newest, found = t.Updated, true
		}
	}
	return newest
}

func (d *threadsDir) thread(id string) node {
	return d.child(snapshot.EncodeName(id), func(base dir) kept {
		n := &threadDir{dir: base, thread: id}
		n.take(virtualIno("thread", id))
		return n
	})
}

func (d *threadsDir) lookup(name string) (node, error) {
	id, ok, err := d.fs.idOf(name, d.ids)
	if !ok || err != nil || !d.fs.shows(id) {
		return nil, err
	}
	if _, err := d.fs.store.Thread(d.fs.ctx, id); err != nil {
		return nil, notThere(err)
	}
	return d.thread(id), nil
}

// ids lists the threads that show.
func (d *threadsDir) ids() ([]string, error) {
	threads, err := d.fs.store.Threads(d.fs.ctx, snapshot.Page{})
	ids := make([]string, 0, len(threads))
	for _, t := range threads {
		if d.fs.shows(t.ID) {
			ids = append(ids, t.ID)
		}
	}
	slices.Sort(ids)
	return ids, err
}

func (d *threadsDir) list(off uint64, _ bool, add func(listed) bool) error {
	if off == 0 {
		ids, err := d.ids()
		if err != nil {
			return err
		}
		d.roster.update(ids)
	}
	for i, id := range d.roster.from(off) {
		if id != "" && !add(listed{name: snapshot.EncodeName(id), off: off + uint64(i) + 1, mode: unix.S_IFDIR, ino: virtualIno("thread", id),
			make: func() (node, error) { return d.thread(id), nil }}) {
			break
		}
	}
	return nil
}
