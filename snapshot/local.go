package snapshot

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/cas/memory"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/badger"
	"github.com/snapfs/snapfs/internal/disk"
)

// defaultOrg is the organization of everything until tokens say otherwise.
const defaultOrg = "default"

// notifyWait bounds how long the reply to a publish waits for the mounts.
const notifyWait = time.Second

// localHolder is the holder in the process that has the lock.
//
// Lock order: collecting, places, mu. The index is called without mu.
type localHolder struct {
	dir  string
	fsys disk.FS
	info storeInfo
	// bootID is that of the options.
	bootID string
	limit  int64 // see [Options]
	lock   *storeLock
	index  index.Index
	// objects are the store's bytes: packs, or in a store that lives in memory
	// memory, and the other is nil.
	objects cas.Store
	packs   *local.Store
	memory  *memory.Store
	log     *slog.Logger

	collecting sync.Mutex // one collection at a time
	places     sync.Mutex // held while places are compared and changed

	mu          sync.Mutex
	sessions    uint64                   // begun so far
	condemned   map[cas.Key]uint64       // by the number of sessions begun when it was condemned
	distrusted  map[cas.Key]cas.Location // damaged objects and where they lie
	live        map[*localSession]struct{}
	saving      map[string]*localSession // those that publish, by thread
	subscribers map[int]func(context.Context, Event)
	nextSub     int
	deletions   deletions
	closed      bool

	ending     sync.WaitGroup // deletions that go on
	stopResume context.CancelFunc

	steps func(step string) error // of tests: see at
}

// openLocal takes the lock and opens the index, replaying or rebuilding it if
// the last holder did not end cleanly.
func openLocal(ctx context.Context, dir string, opt Options) (h *localHolder, err error) {
	fsys, log := disk.Or(opt.fsys), opt.Logger
	info, err := readStoreInfo(dir)
	if err != nil {
		return nil, err
	}
	lock, err := acquire(dir, opt.Verb)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	if err := makeDirs(fsys, dir); err != nil {
		return nil, err
	}
	if err := local.Sweep(fsys, dir); err != nil && !errors.Is(err, iofs.ErrPermission) {
		return nil, err
	}
	h = newHolder(log)
	h.dir, h.fsys, h.info, h.bootID, h.limit, h.lock = dir, fsys, info, opt.bootID, opt.Limit, lock
	h.packs = local.New(dir, readOnly{h}, local.Options{Places: placesCache, Damaged: h.found, FS: fsys})
	h.objects = h.packs
	full := local.CheckSpace(dir)
	if opt.reindex == nil {
		if err := refusePending(dir); err != nil {
			return nil, err
		}
	} else {
		err := full // an index in memory is not asked for
		if err == nil {
			err = opt.reindex.prepare(ctx, h)
		}
		if err != nil {
			return nil, fmt.Errorf("make the index of store %s anew: %w", quoted(dir), err)
		}
	}
	if full != nil {
		log.Warn("the disk is nearly full: the index is kept in memory", "store", dir, "error", full)
	}
	inMemory := errors.Is(full, cas.ErrNoSpace)
	opened, err := h.openIndex(ctx, opt, inMemory)
	if errors.Is(err, cas.ErrNoSpace) && !inMemory && opt.reindex == nil {
		log.Warn("there is no room for the index: it is kept in memory", "store", dir, "error", err)
		opened, err = h.openIndex(ctx, opt, true)
	}
	if errors.Is(err, index.ErrCorrupt) {
		err = WithHint(err, "put the journal back as it was, from a backup; or keep what is whole: snapfs repair --reindex")
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", quoted(dir), err)
	}
	h.loadDistrust()
	h.index = opened
	switch {
	case opt.reindex != nil: // it has more to do first
	case opt.Background:
		var resuming context.Context
		resuming, h.stopResume = context.WithCancel(context.WithoutCancel(ctx))
		h.ending.Go(func() { h.resumeDeletions(resuming) })
	default:
		h.resumeDeletions(ctx)
	}
	return h, nil
}

// recordAt reads a record for the index. It may have moved since the index looked
// for it; while the index is being opened nothing moves.
func (h *localHolder) recordAt(ctx context.Context, at cas.Located) ([]byte, error) {
	data, err := h.packs.ReadAt(at.Key, at.Location, nil)
	if errors.Is(err, iofs.ErrNotExist) && h.index != nil {
		return h.packs.Read(ctx, at.Key, nil)
	}
	return data, err
}

// openIndex opens the index of a store whose lock this process has. Then nobody
// else has the index open but, for an instant, a child that the last holder was
// just forking: that is waited for.
func (h *localHolder) openIndex(ctx context.Context, opt Options, inMemory bool) (*badger.Index, error) {
	const tries, pause = 200, 5 * time.Millisecond
	for try := 1; ; try++ {
		ix, err := badger.Open(ctx, filepath.Join(h.dir, indexDir), badger.Options{
			Journal: filepath.Join(h.dir, journalDir),
			Packs:   h.footers,
			Records: h.recordAt,
			// The store was made with one.
			Existing: true,
			InMemory: inMemory,
			Logger:   h.log,
			Now:      opt.Now,
			FS:       h.fsys,
			BootID:   opt.bootID,
			Rebuild:  opt.reindex != nil,
		})
		if !errors.Is(err, index.ErrInUse) || try == tries || ctx.Err() != nil {
			return ix, err
		}
		time.Sleep(pause)
	}
}

func newHolder(log *slog.Logger) *localHolder {
	return &localHolder{log: log, stopResume: func() {}, deletions: newDeletions(), live: map[*localSession]struct{}{}, saving: map[string]*localSession{}, subscribers: map[int]func(context.Context, Event){}}
}

// checkSpace looks for room before something is written.
func (h *localHolder) checkSpace() error {
	if h.dir == "" {
		return nil
	}
	return local.CheckSpace(h.dir)
}

// footers yields what every pack holds, for a rebuild of the index. From then on saves
// rely on it.
func (h *localHolder) footers(ctx context.Context) iter.Seq2[[]cas.Located, error] {
	return func(yield func([]cas.Located, error) bool) {
		if err := local.SyncNames(h.fsys, h.dir); err != nil && !errors.Is(err, unix.EROFS) {
			yield(nil, err)
			return
		}
		for id, err := range local.Packs(h.dir) {
			if err != nil {
				yield(nil, err)
				return
			}
			objects, err := local.Footer(h.dir, id)
			if errors.Is(err, cas.ErrCorrupt) {
				h.log.Error("pack is damaged, its objects are lost", "pack", id.String(), "error", err)
				continue
			}
			if !yield(objects, err) || err != nil {
				return
			}
		}
	}
}

// Close implements [Holder].
func (h *localHolder) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.stopResume()
	h.ending.Wait()
	err := h.index.Close()
	if h.dir == "" {
		return err
	}
	err = errors.Join(err, h.packs.Close(), h.giveAway())
	h.lock.release()
	return err
}

// giveAway gives what root made in another user's store to the store's owner,
// who could not open the store again otherwise.
func (h *localHolder) giveAway() error {
	if os.Geteuid() != 0 {
		return nil
	}
	var owner unix.Stat_t
	if err := unix.Stat(h.dir, &owner); err != nil || owner.Uid == 0 {
		return err
	}
	for _, name := range []string{lockFile, storeFile, indexDir, journalDir, cacheDir} {
		err := filepath.WalkDir(filepath.Join(h.dir, name), func(path string, _ iofs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(owner.Uid), int(owner.Gid))
		})
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("give the store's files to their owner: %w", err)
		}
	}
	return nil
}

// Published implements [Holder].
func (h *localHolder) Published(ctx context.Context, sequence uint64) (PublishedCheckpoint, error) {
	id, record, err := h.index.Published(ctx, defaultOrg, sequence)
	if err != nil {
		return PublishedCheckpoint{}, err
	}
	return PublishedCheckpoint{ID: id, Record: record.String()}, nil
}

// Locate implements [Holder].
func (h *localHolder) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	if h.packs == nil {
		return h.memory.Locate(keys), nil
	}
	return h.index.Locate(ctx, keys)
}

// Thread implements [Holder].
func (h *localHolder) Thread(ctx context.Context, id string) (Thread, error) {
	t, err := h.index.Thread(ctx, defaultOrg, id)
	if err != nil {
		return Thread{}, err
	}
	return newThread(t), nil
}

// Threads implements [Holder].
func (h *localHolder) Threads(ctx context.Context, p Page) ([]Thread, error) {
	return collect(h.index.Threads(ctx, defaultOrg, index.Page(p)), newThread)
}

// Checkpoints implements [Holder].
func (h *localHolder) Checkpoints(ctx context.Context, thread string, p Page) ([]Checkpoint, error) {
	return collect(h.index.Checkpoints(ctx, defaultOrg, thread, index.Page(p)), h.doc)
}

// collect gathers a listing in the users' form. It is never nil.
func collect[From, To any](seq iter.Seq2[From, error], convert func(From) To) ([]To, error) {
	all := []To{}
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		all = append(all, convert(v))
	}
	return all, nil
}

// Check implements [Holder].
func (h *localHolder) Check(ctx context.Context) ([]string, error) {
	problems, err := collect(h.index.Check(ctx), func(s string) string { return s })
	if ix, ok := h.index.(*badger.Index); ok && err == nil {
		// An index that is whole does not need what was written long ago; the next one may.
		if jerr := ix.CheckJournal(ctx); errors.Is(jerr, index.ErrCorrupt) {
			problems = append(problems, jerr.Error())
		} else {
			err = jerr
		}
	}
	return problems, err
}

// Stats implements [Holder].
func (h *localHolder) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Store: h.dir, ID: h.info.ID, Format: h.info.Format, Fuse: FuseStats{Requests: map[string]uint64{}}, Mounts: []MountInfo{}}
	for t, err := range h.index.Threads(ctx, defaultOrg, index.Page{}) {
		if err != nil {
			return Stats{}, err
		}
		st.Threads++
		st.Checkpoints += t.Checkpoints
	}
	var err error
	st.Packs, st.PackBytes, _, err = h.sizes()
	return st, err
}

// Mount implements [Holder].
func (h *localHolder) Mount(context.Context, MountRequest) error {
	return fmt.Errorf("mount: no daemon serves this store: %w", ErrUnsupported)
}

// Unmount implements [Holder].
func (h *localHolder) Unmount(context.Context, UnmountRequest) error {
	return fmt.Errorf("no daemon serves this store: %w", ErrNotMounted)
}

// subscribe has fn told of every publish. fn returns when the change can be
// seen, or when its context ends.
func (h *localHolder) subscribe(fn func(context.Context, Event)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.nextSub
	h.nextSub++
	h.subscribers[id] = fn
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, id)
	}
}

// notify tells the subscribers and waits for them, for a bounded time: who saves
// and then lists the mount sees what was saved.
func (h *localHolder) notify(ev Event) {
	h.mu.Lock()
	subs := slices.Collect(maps.Values(h.subscribers))
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifyWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, fn := range subs {
		wg.Go(func() { fn(ctx, ev) })
	}
	wg.Wait()
}
