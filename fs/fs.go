// Package fs shows the checkpoints of a store as a read-only FUSE file system.
//
// # What the kernel remembers
//
// The kernel keeps three things about a file system: names (dentries: this name
// in this directory is that inode, or is nothing), inodes (a file's metadata,
// by the node id that we gave it), and pages of content. Each is asked for once
// and kept until it times out, until memory is short, or until we say that it
// changed. What lies under a checkpoint never changes, so all of it has no
// time-out: a second pass over a tree makes no request at all. What does
// change (the list of threads, a thread's directory, its latest link) has a
// short one, and whoever publishes, renames or deletes has the kernel told at
// once (see [FS.changed]).
//
// The kernel would also ask before it opens a file, opens a directory and
// closes a file. We answer that once with ENOSYS, and it never asks again.
//
// # Which node is which
//
// Files that are equal in path, content and metadata are one node, also across
// forks: they share the pages that the kernel has read. A directory node
// belongs to one mounted path, since the kernel allows a directory one dentry.
// Inode numbers follow from path, content and metadata (see [meta.ino]), so
// that two forks show equal numbers for what is equal, and no two things of one
// checkpoint show the same. Node ids count up from a random start: a mount that
// comes back at the same place can never be taken for its predecessor by what
// still has a file of it open.
//
// # Layout
//
//	threads/<thread>/<checkpoint>/files/...
//	threads/<thread>/<checkpoint>/artifacts/<name>
//	threads/<thread>/<checkpoint>/conversation.json
//	threads/<thread>/<checkpoint>/checkpoint.json
//	threads/<thread>/latest -> <checkpoint>
//	threads/<thread>/by-name/<name> -> ../<checkpoint>
//
// See [snapshot.EncodeName] for how ids become names.
package fs

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// The fixed names.
const (
	threadsName      = "threads"
	filesName        = "files"
	artifactsName    = "artifacts"
	checkpointName   = "checkpoint.json"
	conversationName = "conversation.json"
)

// How long the kernel may remember what can change without our telling it in
// time, and what cannot.
const (
	changing = time.Second
	forever  = 30 * 365 * 24 * time.Hour
)

// objectCache bounds the decoded contents kept for files that take several
// reads, in bytes.
const objectCache = 64 << 20

// Options of a mount. The zero value works.
type Options struct {
	AllowOther bool         // users other than the one who mounts may enter (see [FS.private])
	XAttrs     bool         // serve extended attributes
	Threads    []string     // ids; only these are there; none: all
	Logger     *slog.Logger // nil discards
}

// FS answers the kernel's requests for one mount.
type FS struct {
	fuse.RawFileSystem                 // answers ENOSYS to what is not here
	store              *snapshot.Store // nil: there are no threads, see [Lowers]
	blobs              cas.Source
	trees              *tree.Reader
	dir                string // of the store
	log                *slog.Logger
	uid, gid           uint32          // of the process that mounts
	root               bool            // it is root: owners are shown as saved
	allowOther         bool            // other users may enter
	xattrs             bool            // they are served
	acls               bool            // and ACLs are in force: modes are shown as they were saved
	only               map[string]bool // ids of the threads that show; nil: all
	started            time.Time
	calendar           calendar
	queue              queue

	counts   [opCount]counter
	prefill  prefill
	listings listings
	scout    *scout
	lists    *cas.Cache[[]cas.Chunk]
	objects  *objects
	streams  streams
	decoding atomic.Int32 // objects that are decoded ahead

	mu    sync.Mutex
	table table               // nodes of saved trees
	nodes map[uint64]kept     // the others, by node id
	taken map[uint64]struct{} // their inode numbers
	gen   uint64              // generation of all nodes

	// ctx is the context of requests. Interrupts are ignored: local reads are
	// short, and a reader whom a signal meets would get a random EIO.
	ctx   context.Context
	hasty context.Context // of work that nobody waits for: it does not wait for a disk
	conn  *conn           // set before the first request is served
}

var _ fuse.RawFileSystem = (*FS)(nil)

// New makes the file system of a mount; see [Mount].
func New(store *snapshot.Store, opt Options) *FS {
	f := newFS(store.Dir(), store.Blobs(), store.Trees(), opt)
	f.store = store
	root := &rootDir{dir: dir{fs: f, id: fuse.FUSE_ROOT_ID}}
	root.take(virtualIno("root"))
	f.enter(root)
	return f
}

// newFS makes one without a root.
func newFS(dir string, blobs cas.Source, trees *tree.Reader, opt Options) *FS {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	f := &FS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		blobs:         blobs,
		trees:         trees,
		dir:           dir,
		log:           opt.Logger,
		uid:           uint32(os.Geteuid()),
		gid:           uint32(os.Getegid()),
		root:          os.Geteuid() == 0,
		allowOther:    opt.AllowOther,
		xattrs:        opt.XAttrs,
		only:          setOf(opt.Threads),
		started:       time.Now(),
		lists:         cas.NewCache(objectCache/4, func(c []cas.Chunk) int64 { return int64(len(c)) * 48 }),
		table:         newTable(),
		nodes:         map[uint64]kept{},
		taken:         map[uint64]struct{}{},
		gen:           rand.Uint64() | 1,
	}
	f.scout = newScout(f)
	f.objects = newObjects(objectCache, f.loadObject)
	f.ctx = local.ByChecksum(local.OnWait(context.Background(), f.slow))
	f.hasty = local.ByChecksum(local.WithoutWait(context.Background()))
	return f
}

// idle does a bit of work that may be asked for next; false: there is none now.
func (f *FS) idle() bool { return f.listings.make(f) || f.scout.work(false) }

// slow is called before a request waits for something or takes long.
func (f *FS) slow() {
	if f.conn != nil { // a test has none
		f.conn.slow()
	}
}

// setOf returns nil for none.
func setOf(ids []string) map[string]bool {
	if len(ids) == 0 {
		return nil
	}
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// shows reports whether a thread is part of this mount.
func (f *FS) shows(thread string) bool { return f.only == nil || f.only[thread] }

// String implements [fuse.RawFileSystem].
func (f *FS) String() string { return "snapfs" }

// Inodes returns how many nodes the kernel remembers.
func (f *FS) Inodes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.nodes) + f.table.used
}
