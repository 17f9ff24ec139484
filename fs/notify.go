package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/snapshot"
)

// published drops what the kernel remembers and a publish made wrong: listings
// and times of the directories above, the name that was not there, and the link
// to the head. It is never called from a request's handler and takes no lock
// while it talks to the kernel, which may hold a directory's lock while it waits
// for a handler of ours.
func (f *FS) published(ev snapshot.Event) {
	root, ok := f.node(fuse.FUSE_ROOT_ID).(*rootDir)
	if !ok {
		return
	}
	threads, ok := root.known(threadsName).(*threadsDir)
	if !ok {
		return // the kernel never looked below the root
	}
	name := EncodeName(ev.Thread)
	if thread, ok := threads.known(name).(*threadDir); ok {
		f.invalidate(thread.id, EncodeName(ev.Checkpoint), latestName)
		if names, ok := thread.known(byNameName).(*byNameDir); ok && ev.Name != "" {
			f.invalidate(names.id, EncodeName(ev.Name))
		}
	}
	if ev.NewThread {
		f.invalidate(threads.id, name)
	} else {
		// Never the name: that would cut off everybody who works below it.
		f.invalidate(threads.id)
	}
}

// invalidate drops names in a directory, its listing and its attributes.
func (f *FS) invalidate(dir uint64, names ...string) {
	for _, name := range names {
		f.tell("entry", f.server.EntryNotify(dir, name))
	}
	f.tell("inode", f.server.InodeNotify(dir, 0, 0))
}

// tell logs a notification that did not arrive. The kernel answers ENOENT for
// what it does not remember, which is as good.
func (f *FS) tell(what string, status fuse.Status) {
	if status != fuse.OK && status != fuse.ENOENT {
		f.log.Warn("the kernel did not take a notification", "notification", what, "status", status.String())
	}
}
