package snapshot

import (
	"context"

	"github.com/snapfs/snapfs/cas"
)

// A Holder is whoever has a store's lock and with it the index. In the process
// that holds the lock it is the index itself; in every other one it is a
// connection to the daemon that does. A [Store] does all its work through one,
// and touches the pack files itself.
//
// The methods may be called concurrently. They return this package's and the
// index's sentinels, also across a connection.
type Holder interface {
	// Resolve finds the checkpoint that a reference means (see [localHolder.Resolve]).
	Resolve(ctx context.Context, ref string) (Checkpoint, error)
	// Thread returns one thread.
	Thread(ctx context.Context, id string) (Thread, error)
	// Threads lists threads by last activity, newest first.
	Threads(ctx context.Context, p Page) ([]Thread, error)
	// Checkpoints lists a thread's checkpoints, newest first.
	Checkpoints(ctx context.Context, thread string, p Page) ([]Checkpoint, error)
	// Published tells which checkpoint had a sequence ([Checkpoint.Sequence]) when it was
	// published, whatever became of it since. It fails with [index.ErrCheckpointNotFound].
	Published(ctx context.Context, sequence uint64) (PublishedCheckpoint, error)
	// Locate tells, key by key, where an object lies; the zero Location is
	// nowhere.
	Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error)
	// Begin starts a save into a thread.
	Begin(ctx context.Context, req BeginRequest) (Session, error)
	// Rename gives the checkpoint with exactly this id a name; "" takes it away.
	Rename(ctx context.Context, id, name string) (Checkpoint, error)
	// Delete removes the checkpoint with exactly this id. Its thread's head moves
	// to the newest one left. It reports whether that is done: see [DeleteOptions].
	Delete(ctx context.Context, id string, opt DeleteOptions) (done bool, err error)
	// DeleteThread removes a thread with all its checkpoints and artifacts.
	DeleteThread(ctx context.Context, id string, opt DeleteOptions) (done bool, err error)
	// Forget deletes some checkpoints of a thread, unless they have got a name or are the
	// head by then.
	Forget(ctx context.Context, req ForgetSome) (Forgotten, error)
	// Artifacts lists what a thread has now, by id.
	Artifacts(ctx context.Context, thread string) ([]Artifact, error)
	// RemoveArtifact takes one away from a thread; checkpoints keep theirs.
	RemoveArtifact(ctx context.Context, thread, id string) error
	// AcquireLease makes who asks the single writer of a thread (see [Store.AcquireWriter]).
	// With a token that has the lease already it returns that.
	AcquireLease(ctx context.Context, req LeaseRequest) (Lease, error)
	// RenewLease gives the lease of a token its whole time again.
	RenewLease(ctx context.Context, thread, token string) (Lease, error)
	// ReleaseLease ends the lease of a token.
	ReleaseLease(ctx context.Context, thread, token string) error
	// Lease is the one that a thread has now, without its token.
	Lease(ctx context.Context, thread string) (Lease, error)
	// GC frees what nothing refers to.
	GC(ctx context.Context, req GCRequest) (GCResult, error)
	// Repair moves damaged packs aside (see [localHolder.Repair]).
	Repair(ctx context.Context, req RepairRequest) (RepairResult, error)
	// Distrust notes objects that were found damaged at their places: the next save
	// of the same content stores it anew.
	Distrust(ctx context.Context, objects []cas.Located) error
	// Check compares the index with itself and yields what is wrong.
	Check(ctx context.Context) ([]string, error)
	// Stats counts.
	Stats(ctx context.Context) (Stats, error)
	// Usage counts what takes the room (see [Store.Usage]).
	Usage(ctx context.Context) (Usage, error)
	// Mount serves the store at a mountpoint, Unmount ends that. Only a daemon
	// can; without one they fail with [ErrUnsupported].
	Mount(ctx context.Context, req MountRequest) error
	Unmount(ctx context.Context, req UnmountRequest) error
	// Close ends the connection or gives the store free.
	Close() error
}

// PublishedCheckpoint is what is known of a checkpoint that may be gone.
type PublishedCheckpoint struct {
	ID     string `json:"id"`
	Record string `json:"record"` // hash, 64 hex digits
}

// Page bounds a listing.
type Page struct {
	Limit  int    // at most so many; 0: all
	Before string // only what comes after this id in the listing; empty: from the start
	// Deleting: also checkpoints that are being deleted, alone or with their thread.
	Deleting bool
}

// BeginRequest starts a save. ID, Name, Parent and Lease are looked at early, so that a
// save that cannot be published fails before it reads a whole workspace.
type BeginRequest struct {
	Thread string `json:"thread"`
	ID     string `json:"id,omitempty"`
	Name   string `json:"name,omitempty"`
	PID    int    `json:"pid,omitempty"`    // of the saving process, for messages
	Empty  bool   `json:"empty,omitempty"`  // the thread must have nothing: a fork
	Parent string `json:"parent,omitempty"` // must be the head; empty: whatever is
	// Base is a checkpoint that the save wants to rely on: see [Session.BaseHolds].
	Base Base `json:"base,omitzero"`
	// Lease is the token of the writer's lease; empty: it has none. The publish looks again.
	Lease string `json:"lease,omitempty"`
	// Beside lets other saves into the thread go on: for what adds artifacts only.
	Beside bool `json:"beside,omitempty"`
}

// Base names a checkpoint and its record.
type Base struct {
	Checkpoint string `json:"checkpoint"`
	Record     string `json:"record"` // hash, 64 hex digits
}

// PublishRequest ends a save.
type PublishRequest struct {
	Record    cas.Hash // in the records namespace; its Parent is the session's head, unless it was received
	Name      string
	Artifacts []Artifact // to be added to the thread in the same step
	Received  *Received  // the store that the checkpoint comes from; nil: it was made here
}

// MountRequest asks a daemon for a mount.
type MountRequest struct {
	Mountpoint string `json:"mountpoint"` // absolute
	// Bytes is the mountpoint where that is not valid UTF-8, which JSON cannot
	// carry.
	Bytes      []byte   `json:"mountpointBytes,omitempty"`
	AllowOther bool     `json:"allowOther,omitempty"` // users other than the one who mounts may enter
	XAttrs     bool     `json:"xattrs,omitempty"`     // serve extended attributes
	Threads    []string `json:"threads,omitempty"`    // ids; only these show; none: all
}

// UnmountRequest ends a mount.
type UnmountRequest struct {
	Mountpoint string `json:"mountpoint"`
	Lazy       bool   `json:"lazy,omitempty"` // detach now, end when the last user has left
}

// A Session is one save in progress. It is over when it is closed or when its
// process ends. Blobs that were added stay for a while, so that a save that
// lost a race can be tried again at little cost.
type Session interface {
	// Head is the thread's head when the session began, or what it published last;
	// empty: there is none.
	Head() string
	// BaseHolds reports whether the session may rely on all objects of the request's
	// base without asking for each: the checkpoint is there, and no damage is known.
	BaseHolds() bool
	// Have reports, key by key, whether the save may rely on the object that the
	// store has.
	Have(ctx context.Context, keys []cas.Key) ([]bool, error)
	// AddPack takes over a closed and durable pack from the store's tmp/.
	AddPack(ctx context.Context, id cas.PackID) error
	// Publish makes the record the head of its thread.
	Publish(ctx context.Context, req PublishRequest) (Checkpoint, error)
	// AddArtifact gives the session's thread an artifact whose content was put.
	AddArtifact(ctx context.Context, a Artifact) error
	// Close ends the session. A second call does nothing.
	Close() error
}

// An EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	Published     EventKind = iota // a checkpoint, which is its thread's head now
	Renamed                        // a checkpoint got a name, or lost one
	Deleted                        // a checkpoint
	ThreadDeleted                  // a thread with all of its checkpoints
	ThreadMade                     // by an artifact: it has no checkpoint yet
)

// An Event is a change that mounts show.
type Event struct {
	Kind       EventKind
	Thread     string
	Checkpoint string // empty for a whole thread
	Name       string // of the checkpoint now; empty: unnamed
	OldName    string // before; empty: unnamed
	NewThread  bool   // the thread was made by this
}
