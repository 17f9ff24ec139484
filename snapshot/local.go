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
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/badger"
)

// defaultOrg is the organization of everything until tokens say otherwise.
const defaultOrg = "default"

// notifyWait bounds how long the reply to a publish waits for the mounts.
const notifyWait = time.Second

// localHolder is the holder in the process that has the lock.
//
// Lock order: mu alone, never while the index is called.
type localHolder struct {
	dir   string
	info  storeInfo
	lock  *storeLock
	index *badger.Index
	packs *local.Store
	log   *slog.Logger

	mu          sync.Mutex
	saving      map[string]*localSession // by thread
	subscribers map[int]func(context.Context, Event)
	nextSub     int
	closed      bool
}

// openLocal takes the lock and opens the index, replaying or rebuilding it if
// the last holder did not end cleanly.
func openLocal(ctx context.Context, dir, verb string, log *slog.Logger) (h *localHolder, err error) {
	info, err := readStoreInfo(dir)
	if err != nil {
		return nil, err
	}
	lock, err := acquire(dir, verb)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	if err := local.Sweep(dir); err != nil && !errors.Is(err, iofs.ErrPermission) {
		return nil, err
	}
	h = &localHolder{dir: dir, info: info, lock: lock, log: log, saving: map[string]*localSession{}, subscribers: map[int]func(context.Context, Event){}}
	h.packs = local.New(dir, nil, local.Options{}) // reads by place alone
	h.index, err = badger.Open(ctx, filepath.Join(dir, indexDir), badger.Options{
		Journal: filepath.Join(dir, journalDir),
		Packs:   h.footers,
		Records: func(_ context.Context, at cas.Located) ([]byte, error) {
			return h.packs.ReadAt(at.Key, at.Location, nil)
		},
		Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return h, nil
}

// footers yields what every pack holds, for a rebuild of the index.
func (h *localHolder) footers(ctx context.Context) iter.Seq2[[]cas.Located, error] {
	return func(yield func([]cas.Located, error) bool) {
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
	err := errors.Join(h.index.Close(), h.packs.Close(), h.giveAway())
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

// Locate implements [Holder].
func (h *localHolder) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
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
	return collect(h.index.Checkpoints(ctx, defaultOrg, thread, index.Page(p)), newCheckpoint)
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
	return collect(h.index.Check(ctx), func(s string) string { return s })
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
	st.Packs, st.PackBytes, err = local.Size(h.dir)
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
