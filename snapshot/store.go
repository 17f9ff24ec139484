// Package snapshot has the operations of snapfs, as one Go API: [Store] saves,
// lists, compares, restores and forks checkpoints.
//
// A Go program opens a store with [Open]. The command line, the mount and the
// HTTP server are faces of the same Store; a client across a connection is a
// Store too, with another [Holder].
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/tree"
)

// treeCache bounds the decoded directory objects that a store keeps, in bytes.
const treeCache = 64 << 20

// placesCache bounds the memory for places of objects that packs' footers told,
// in bytes: two million objects.
const placesCache = 32 << 20

// Options of [Open] and [New]. The zero value works.
type Options struct {
	Create bool         // make the store if it is missing
	Verb   string       // what this process does, for others who wait; empty: "snapfs"
	Logger *slog.Logger // nil discards
	// Now tells the time that is noted in checkpoints and artifacts, and, if this process
	// holds the store, when leases expire; nil: [time.Now]. What is newer than what never
	// depends on it.
	Now func() time.Time
	// Limit is what packs and journal may take together, in bytes, if this process holds
	// the store; 0: as much as there is. The smaller of 64 MiB and a tenth of it is for
	// deletions and collections only.
	Limit int64

	// Background: what an interrupted process has left to do is done after Open has
	// returned, not before. It is for processes that stay.
	Background bool

	fsys    disk.FS     // nil: the operating system's
	bootID  string      // of the running boot; empty: the kernel's
	reindex *reindexing // makes the index anew; nil: nobody asked for it
}

// A Store saves and restores checkpoints. Its methods may be called
// concurrently. Workspaces and targets are opened by the calling process, with
// its rights.
type Store struct {
	dir    string
	fsys   disk.FS
	holder Holder
	blobs  cas.Store
	trees  *tree.Reader
	log    *slog.Logger
	now    func() time.Time

	retaining sync.Mutex // held by Retain
}

// Open opens the store in dir in this process. It fails with [ErrNoStore],
// [ErrNotAStore], [ErrNewerStore], or [ErrLocked] while another process has it
// open.
func Open(ctx context.Context, dir string, opt Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Verb == "" {
		opt.Verb = "snapfs"
	}
	if opt.Create {
		if err := create(disk.Or(opt.fsys), dir); err != nil {
			return nil, err
		}
	}
	h, err := openLocal(ctx, dir, opt)
	if err != nil {
		return nil, err
	}
	return New(dir, h, opt), nil
}

// New makes a Store that works through holder on the packs in dir. Closing it
// closes the holder.
func New(dir string, holder Holder, opt Options) *Store {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	var blobs cas.Store
	if h, ok := holder.(*localHolder); ok {
		blobs = h.packs // one set of open packs, which a collection closes
	} else {
		log := opt.Logger
		blobs = local.New(dir, readOnly{holder}, local.Options{Places: placesCache, Damaged: func(o cas.Located) {
			if err := holder.Distrust(context.Background(), []cas.Located{o}); err != nil {
				log.Warn("cannot note that an object is damaged", "object", o.Key.String(), "error", err)
			}
		}})
	}
	return &Store{dir: dir, fsys: disk.Or(opt.fsys), holder: holder, blobs: blobs, trees: NewTrees(blobs), log: opt.Logger, now: opt.Now}
}

// NewTrees reads the directories that lie in a source of objects.
func NewTrees(source cas.Source) *tree.Reader { return tree.NewReader(hashed{source}, treeCache) }

// hashed reads the objects of trees by their hashes, whatever is enough for contents. A
// record that lies about its object's name has a right checksum; a directory by such a
// name could be its own ancestor.
type hashed struct{ cas.Source }

// Read implements [cas.Source].
func (h hashed) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	return h.Source.Read(local.ByHash(ctx), key, dst)
}

// Expect implements [cas.Expecter].
func (h hashed) Expect(ctx context.Context, keys []cas.Key) {
	if e, ok := h.Source.(cas.Expecter); ok {
		e.Expect(ctx, keys)
	}
}

// newWriter begins to add objects in a session. end frees what it takes.
func (s *Store) newWriter(ctx context.Context, session Session, c local.Compression) (w cas.Writer, end func(), err error) {
	if s.dir == "" {
		w, err = s.blobs.NewWriter(ctx)
		return w, func() { w.Close() }, err
	}
	blobs := local.New(s.dir, inSession{s.holder, session}, local.Options{Compression: c, FS: s.fsys})
	if w, err = blobs.NewWriter(ctx); err != nil {
		blobs.Close()
		return nil, nil, err
	}
	return w, func() { w.Close(); blobs.Close() }, nil
}

// readOnly finds objects through a holder.
type readOnly struct{ Holder }

var errReadOnly = errors.New("objects are added in a session only")

func (readOnly) Have(context.Context, []cas.Key) ([]bool, error) { return nil, errReadOnly }
func (readOnly) AddPack(context.Context, cas.PackID) error       { return errReadOnly }

// inSession finds and adds objects in a session.
type inSession struct {
	Holder
	session Session
}

func (s inSession) Have(ctx context.Context, keys []cas.Key) ([]bool, error) {
	return s.session.Have(ctx, keys)
}

func (s inSession) AddPack(ctx context.Context, id cas.PackID) error {
	return s.session.AddPack(ctx, id)
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// Holder returns what the store works through.
func (s *Store) Holder() Holder { return s.holder }

// Blobs reads the store's objects; trees come decoded from Trees.
func (s *Store) Blobs() cas.Store { return s.blobs }

// Trees reads the store's directory objects.
func (s *Store) Trees() *tree.Reader { return s.trees }

// Close gives the store free. A second call does nothing.
func (s *Store) Close() error {
	var err error
	if packs, ok := s.blobs.(*local.Store); ok {
		err = packs.Close()
	}
	return errors.Join(err, s.holder.Close())
}

// Subscribe has fn told of every publish from now on, until cancel is called.
// The reply to a publish waits, for a bounded time, until fn returns. It fails
// with [ErrUnsupported] unless this process holds the store.
func (s *Store) Subscribe(fn func(context.Context, Event)) (cancel func(), err error) {
	h, ok := s.holder.(*localHolder)
	if !ok {
		return nil, fmt.Errorf("subscribe: another process holds the store: %w", ErrUnsupported)
	}
	return h.subscribe(fn), nil
}

// Resolve finds the checkpoint that a reference means.
func (s *Store) Resolve(ctx context.Context, ref string) (Checkpoint, error) {
	cp, err := s.holder.Resolve(ctx, ref)
	if err == nil && cp.Deleting() {
		err := fmt.Errorf("checkpoint %s: %w: %w", quoted(cp.ID), index.ErrCheckpointNotFound, index.ErrDeleting)
		return Checkpoint{}, WithHint(err, "snapfs show %s tells how far that is", quoted(cp.ID))
	}
	return cp, err
}

// Thread returns one thread, or fails with [index.ErrThreadNotFound].
func (s *Store) Thread(ctx context.Context, id string) (Thread, error) {
	return s.holder.Thread(ctx, id)
}

// Threads lists threads by last activity, newest first.
func (s *Store) Threads(ctx context.Context, p Page) ([]Thread, error) {
	return s.holder.Threads(ctx, p)
}

// Checkpoints lists a thread's checkpoints, newest first.
func (s *Store) Checkpoints(ctx context.Context, thread string, p Page) ([]Checkpoint, error) {
	return s.holder.Checkpoints(ctx, thread, p)
}

// Stats counts what the store holds.
func (s *Store) Stats(ctx context.Context) (Stats, error) { return s.holder.Stats(ctx) }

// Record reads the record of a checkpoint: what is needed to walk its tree.
func (s *Store) Record(ctx context.Context, cp Checkpoint) (index.Record, error) {
	hash, err := cas.ParseHash(cp.Record)
	if err != nil {
		return index.Record{}, fmt.Errorf("checkpoint %s: %w", cp.ID, err)
	}
	data, err := s.blobs.Read(ctx, cas.Key{NS: cas.Records, Hash: hash}, nil)
	if err != nil {
		return index.Record{}, fmt.Errorf("record of checkpoint %s: %w", cp.ID, err)
	}
	rec, err := index.DecodeRecord(data)
	if err != nil {
		return index.Record{}, fmt.Errorf("record of checkpoint %s: %w: %w", cp.ID, err, cas.ErrCorrupt)
	}
	return rec, nil
}

// record resolves a reference and reads the record behind it.
func (s *Store) record(ctx context.Context, ref string) (Checkpoint, index.Record, error) {
	cp, err := s.Resolve(ctx, ref)
	if err != nil {
		return Checkpoint{}, index.Record{}, err
	}
	rec, err := s.Record(ctx, cp)
	return cp, rec, err
}
