// Package index keeps what the store knows beside its bytes: where each object
// lies, which threads and checkpoints exist, which checkpoint is a thread's
// head, and what checkpoints are called.
//
// A checkpoint is an immutable [Record], an object in the records namespace,
// plus the little that may change about it (its name, its status). Engines that
// implement [Index] live in folders of their own (badger: one machine);
// indextest holds the suite that each of them passes.
package index

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/snapfs/snapfs/cas"
)

var (
	// ErrThreadNotFound: the organization has no such thread.
	ErrThreadNotFound = errors.New("thread not found")
	// ErrCheckpointNotFound: the organization has no such checkpoint.
	ErrCheckpointNotFound = errors.New("checkpoint not found")
	// ErrStaleHead: the thread's head is not what the writer took it to be.
	ErrStaleHead = errors.New("the thread's head has moved")
	// ErrDuplicateID: a checkpoint of that id exists already.
	ErrDuplicateID = errors.New("checkpoint id is taken")
	// ErrDuplicateName: another checkpoint of the thread has that name.
	ErrDuplicateName = errors.New("checkpoint name is taken")
	// ErrArtifactNotFound: the thread has no such artifact.
	ErrArtifactNotFound = errors.New("artifact not found")
	// ErrDeleting: it is being deleted, and cannot be changed or made again before that
	// is over.
	ErrDeleting = errors.New("it is being deleted")
	// ErrInvalid: an id, a name or a record that the rules do not allow.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt: the index or its journal is damaged.
	ErrCorrupt = errors.New("index is damaged")
	// ErrNewer: a newer snapfs wrote this; this one must not guess what it means.
	ErrNewer = errors.New("written by a newer snapfs")
	// ErrCommitted: the change is durable and will be seen once the index is
	// opened again, but the open index could not take it in and serves no more.
	// Whoever gets it must not report the change as failed.
	ErrCommitted = errors.New("committed, but the index must be opened again")
	// ErrInUse: another process, or another handle of this one, has the index open.
	ErrInUse = errors.New("index is in use")
	// ErrClosed: the index was closed.
	ErrClosed = errors.New("index is closed")
)

// Status says how far a checkpoint is.
type Status string

// The statuses. Only ready checkpoints are seen by mounts, restores and heads.
const (
	Ready Status = "ready"
	Error Status = "error"
	// Deleting: its deletion, or that of its thread, is decided and not done yet. Only a
	// [Page] that asks for it shows it, and Checkpoint by its id. It has no name.
	Deleting Status = "deleting"
	// DeleteFailed: the same, and the last try to end it failed. No index knows that;
	// whoever tried does.
	DeleteFailed Status = "delete_failed"
)

// A Deletion is one that is decided and not done yet.
type Deletion struct {
	Org        string
	Thread     string
	Checkpoint string // empty: the whole thread
}

// MaxForget is how many checkpoints one change may delete.
const MaxForget = 64

// A Checkpoint is one immutable version of a thread together with its state.
type Checkpoint struct {
	Record
	RecordHash    cas.Hash // the record's name in the records namespace
	Seq           uint64   // number of the publishing journal entry; rises with every publish in the store
	Name          string   // empty: unnamed
	Status        Status
	StatusMessage string // why the status is Error
	Received      Received
}

// Received tells where a checkpoint was before it came to this store. The zero value:
// it was made here.
type Received struct {
	Store string // id of the store that it came from
	Seq   uint64 // of the journal entry that published it there
}

// IsZero reports whether the checkpoint was made here.
func (r Received) IsZero() bool { return r == Received{} }

// A Thread is one line of work.
type Thread struct {
	ID          string
	Head        string // id of the newest ready checkpoint; empty when there is none
	Checkpoints int
	NewBytes    int64 // sum of what its checkpoints added to the store, in bytes
	Artifacts   int
	Created     time.Time // when it was first written to
	Updated     time.Time // of the last publish
}

// An Artifact is a generated file that belongs to a thread.
type Artifact struct {
	ID        string `cbor:"1,keyasint,omitempty"` // unique in the thread
	Name      string `cbor:"2,keyasint,omitempty"` // free text; several may have the same
	MediaType string `cbor:"3,keyasint,omitempty"`
	Blob      Blob   `cbor:"4,keyasint,omitzero"`  // in the artifacts namespace
	Created   int64  `cbor:"5,keyasint,omitempty"` // Unix time in ns
}

// Publish asks for one new checkpoint.
type Publish struct {
	Org    string
	Record cas.Hash // object in the records namespace that must be readable already
	// ExpectedHead is the head that the writer saw when it started; empty: the
	// thread had none. The record's parent must be the same.
	ExpectedHead string
	Name         string // optional
	// Artifacts are added to the thread in the same step. An id that the thread
	// has already fails with ErrDuplicateID.
	Artifacts []Artifact
	// Lease is the token of the writer's lease; empty: it has none.
	Lease string
	// Empty: the thread must have no artifacts either, or it is [ErrStaleHead].
	Empty bool
	// Received: the checkpoint comes from another store, and its record's parent may be
	// any. ExpectedHead is compared with the head all the same.
	Received Received
}

// Page bounds a listing.
type Page struct {
	Limit int // at most so many; 0: all
	// Before is the last id of the previous page: only what comes after it in the
	// listing's order. Empty: from the start. An id that does not exist fails with
	// ErrThreadNotFound or ErrCheckpointNotFound. A thread that was written to
	// between two pages moves to the front, so its page starts there again.
	Before string
	// Deleting: also what is being deleted, also of a thread that is. Of threads it
	// means nothing.
	Deleting bool
}

// An Index may be used concurrently. What a method returned without an error
// survives a crash of the process and of the machine, except for locations, which
// can be read again from the packs' footers, and renewals of leases: a crash of the
// machine may leave a lease to expire as when it was acquired.
//
// A listing shows one moment, however long its consumer takes. The consumer may
// call other methods meanwhile, but not Close, which waits for it.
type Index interface {
	// Locate tells, key by key, where the object lies; the zero Location is
	// nowhere.
	Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error)
	// AddLocations records the contents of one pack. A key that is known
	// already keeps its old location.
	AddLocations(ctx context.Context, objects []Located) error

	// MoveLocations records places that count from now on, whatever was known
	// before.
	MoveLocations(ctx context.Context, objects []Located) error
	// DropLocations forgets where objects lie.
	DropLocations(ctx context.Context, keys []cas.Key) error
	// Locations yields all that are known, in no order that means anything.
	Locations(ctx context.Context) iter.Seq2[Located, error]

	// Publish makes one record the newest checkpoint and the head of its
	// thread, creating the thread if need be: all of it or nothing. It fails
	// with ErrWriterConflict or ErrWriterLost, ErrDuplicateID, ErrStaleHead,
	// ErrDuplicateName (looked for in this order; ErrDeleting comes before the second) or ErrInvalid (a record that does not decode, or whose parent
	// contradicts the request, unless it was received), with cas.ErrNotFound if the record is nowhere,
	// and with ErrCommitted.
	Publish(ctx context.Context, p Publish) (Checkpoint, error)

	// Rename gives a checkpoint a name, or with "" takes it away. It fails with
	// ErrCheckpointNotFound, ErrDeleting, ErrDuplicateName, ErrInvalid and ErrCommitted.
	Rename(ctx context.Context, org, id, name string) (Checkpoint, error)
	// BeginDelete decides that a checkpoint is deleted. From then on it is
	// [Deleting], its name is free, and the newest ready one left is the head; Delete ends
	// it. Of one that is being deleted already nothing changes. It fails with
	// ErrCheckpointNotFound and ErrCommitted.
	BeginDelete(ctx context.Context, org, id string) (Checkpoint, error)
	// BeginDeleteThread decides the same of a thread with all that it has, and ends its
	// lease; DeleteThread ends it. For everything but a deletion there is no such thread
	// any more; the error then is ErrDeleting, too. It fails with ErrThreadNotFound and
	// ErrCommitted.
	BeginDeleteThread(ctx context.Context, org, id string) error
	// BeginForget is BeginDelete, in one step, of those of at most [MaxForget] checkpoints
	// of a thread that are ready, have no name and are not its head. It returns these. It
	// fails with ErrThreadNotFound, ErrInvalid and ErrCommitted.
	BeginForget(ctx context.Context, org, thread string, ids []string) ([]string, error)
	// Deletions lists what is being deleted, threads first. It costs nothing when there is
	// none.
	Deletions(ctx context.Context) ([]Deletion, error)
	// EndDelete removes, in one step, those of at most [MaxForget] checkpoints whose
	// deletion was decided. It fails with ErrInvalid and ErrCommitted.
	EndDelete(ctx context.Context, org string, ids []string) error
	// Delete removes a checkpoint and its name, decided or not. If it was its thread's
	// head, the newest ready one left becomes it; a thread without checkpoints stays. It
	// returns what was removed and the thread as it is then, and fails with
	// ErrCheckpointNotFound and ErrCommitted.
	Delete(ctx context.Context, org, id string) (Checkpoint, Thread, error)
	// DeleteThread removes a thread with its checkpoints and artifacts, decided or not, and
	// ends its lease. It fails with ErrThreadNotFound and ErrCommitted.
	DeleteThread(ctx context.Context, org, id string) error
	// AddArtifact gives a thread an artifact, creating the thread if need be. It
	// fails with ErrDuplicateID, ErrDeleting, ErrInvalid and ErrCommitted.
	AddArtifact(ctx context.Context, org, thread string, a Artifact) error
	// RemoveArtifact takes an artifact away from a thread; checkpoints keep it.
	// It fails with ErrThreadNotFound, ErrArtifactNotFound and ErrCommitted.
	RemoveArtifact(ctx context.Context, org, thread, id string) error
	// Artifacts lists a thread's artifacts in the order of their ids. It fails
	// with ErrThreadNotFound.
	Artifacts(ctx context.Context, org, thread string) ([]Artifact, error)

	// AcquireLease makes a lease, unless the caller's token has it already: then that
	// one is returned as it is. It fails with ErrWriterConflict, ErrDeleting, ErrInvalid
	// and ErrCommitted.
	AcquireLease(ctx context.Context, a AcquireLease) (Lease, error)
	// RenewLease gives a lease its whole time again. It fails with ErrWriterLost.
	RenewLease(ctx context.Context, org, thread, token string) (Lease, error)
	// ReleaseLease ends a lease. It fails with ErrWriterLost and ErrCommitted.
	ReleaseLease(ctx context.Context, org, thread, token string) error
	// Lease is the one that a thread has now. It fails with ErrNoWriter.
	Lease(ctx context.Context, org, thread string) (Lease, error)
	// CheckLease tells whether a publish with the token, or with "" none, would be
	// let through now. It fails with ErrWriterConflict and ErrWriterLost.
	CheckLease(ctx context.Context, org, thread, token string) error

	// Checkpoint fails with ErrCheckpointNotFound.
	Checkpoint(ctx context.Context, org, id string) (Checkpoint, error)
	// Named finds a thread's checkpoint by name. It fails with
	// ErrThreadNotFound or ErrCheckpointNotFound.
	Named(ctx context.Context, org, thread, name string) (Checkpoint, error)
	// ByPrefix returns up to limit checkpoints whose id, or whose id's part
	// after the last dash, starts with prefix, in the order of their ids; a
	// limit of 0 is none.
	ByPrefix(ctx context.Context, org, prefix string, limit int) ([]Checkpoint, error)
	// Thread fails with ErrThreadNotFound.
	Thread(ctx context.Context, org, id string) (Thread, error)
	// Threads lists by last activity, newest first.
	Threads(ctx context.Context, org string, p Page) iter.Seq2[Thread, error]
	// Checkpoints lists a thread's, newest first. It fails with
	// ErrThreadNotFound.
	Checkpoints(ctx context.Context, org, thread string, p Page) iter.Seq2[Checkpoint, error]
	// Organizations lists the organizations that have threads.
	Organizations(ctx context.Context) ([]string, error)

	// Published tells which checkpoint the change with a number published (see
	// [Checkpoint.Seq]), and its record, whatever became of it since. It fails with
	// ErrCheckpointNotFound where that published none of the organization, or nobody knows
	// any more.
	Published(ctx context.Context, org string, seq uint64) (id string, record cas.Hash, err error)

	// Check compares the index with itself: heads, names, counts and order
	// agree with the checkpoints. It yields what is wrong, one finding a value.
	Check(ctx context.Context) iter.Seq2[string, error]
	// Close waits for the calls that are under way; later ones fail with
	// ErrClosed. It is idempotent.
	Close() error
}

// Located is an object and its place.
type Located = cas.Located
