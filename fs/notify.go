package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/snapshot"
)

// changed drops what the kernel remembers and an event made wrong: listings and
// times of the directories above, names that were not there or are not any more,
// and the link to the head. It is never called from a request's handler and
// takes no lock while it talks to the kernel, which may hold a directory's lock
// while it waits for a handler of ours.
//
// A name that stays is never dropped, unless it is a link: that would cut off
// everybody who works below it.
func (f *FS) changed(ev snapshot.Event) {
	if !f.shows(ev.Thread) {
		return
	}
	root, ok := f.node(fuse.FUSE_ROOT_ID).(*rootDir)
	if !ok {
		return
	}
	threads, ok := root.known(threadsName).(*threadsDir)
	if !ok {
		return // the kernel never looked below the root
	}
	now := f.when(ev)
	f.calendar.changed(threadsName, now, threads.shown.last())
	name := snapshot.EncodeName(ev.Thread)
	if ev.Kind == snapshot.ThreadDeleted {
		if thread, ok := threads.detach(name).(*threadDir); ok {
			thread.gone.Store(true)
			f.calendar.forget(threadKey(ev.Thread))
			f.leave(thread)
		}
		f.invalidate(threads.id, name)
		return
	}
	thread, ok := threads.known(name).(*threadDir)
	if !ok {
		if ev.Kind != snapshot.Published { // of that the index has the time
			f.calendar.changed(threadKey(ev.Thread), now, time.Time{})
		}
		f.invalidate(threads.id, name) // not known, so nobody is below it
		return
	}
	f.calendar.changed(threadKey(ev.Thread), now, thread.shown.last())
	f.changedIn(thread, ev)
	f.invalidate(threads.id)
}

// when returns the time of an event.
func (f *FS) when(ev snapshot.Event) time.Time {
	if ev.Kind == snapshot.Published {
		if t, err := f.store.Thread(f.ctx, ev.Thread); err == nil {
			return t.Updated
		}
	}
	return time.Now()
}

// changedIn is changed for the directories of a thread that is known.
func (f *FS) changedIn(thread *threadDir, ev snapshot.Event) {
	names, named := thread.known(snapshot.ByNameName).(*byNameDir)
	switch ev.Kind {
	case snapshot.Deleted:
		// Who gets the id later is another checkpoint and must be another node.
		thread.detach(snapshot.EncodeName(ev.Checkpoint))
		f.invalidate(thread.id, snapshot.EncodeName(ev.Checkpoint), snapshot.LatestName)
	case snapshot.Published:
		f.invalidate(thread.id, snapshot.EncodeName(ev.Checkpoint), snapshot.LatestName)
	default:
		f.invalidate(thread.id)
	}
	if !named {
		return
	}
	var links []string
	for _, name := range []string{ev.OldName, ev.Name} {
		if name != "" {
			links = append(links, snapshot.EncodeName(name))
		}
	}
	f.invalidate(names.id, links...)
}

// leave drops what the kernel remembers in the directory of a deleted thread, for
// those who are still in it.
func (f *FS) leave(thread *threadDir) {
	f.invalidate(thread.id, snapshot.LatestName)
	if names, ok := thread.known(snapshot.ByNameName).(*byNameDir); ok {
		f.invalidate(names.id)
	}
}

// invalidate drops names in a directory, its listing and its attributes.
func (f *FS) invalidate(dir uint64, names ...string) {
	for _, name := range names {
		f.tell("entry", f.conn.dropEntry(dir, name))
	}
	f.tell("inode", f.conn.dropInode(dir))
}

// tell logs a notification that did not arrive. The kernel answers ENOENT for
// what it does not remember, which is as good, and ENODEV for a mount that is
// gone.
func (f *FS) tell(what string, status fuse.Status) {
	if status != fuse.OK && status != fuse.ENOENT && status != fuse.ENODEV {
		f.log.Warn("the kernel did not take a notification", "notification", what, "status", status.String())
	}
}
