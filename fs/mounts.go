package fs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// Mounts are the mounts of one daemon.
//
// Lock order: mu alone, never while a mount is made or taken away.
type Mounts struct {
	store  *snapshot.Store
	log    *slog.Logger
	cancel func() // of the subscription
	gone   chan struct{}

	mu      sync.Mutex
	mounts  map[string]*Mount // by mountpoint
	away    map[*Mount]bool   // taken away, and still used by somebody
	past    map[string]uint64 // requests of mounts that ended
	serving sync.WaitGroup
}

// NewMounts makes the daemon's mounts, none at first. The process must hold the
// store.
func NewMounts(store *snapshot.Store, log *slog.Logger) (*Mounts, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Mounts{store: store, log: log, gone: make(chan struct{}, 1), mounts: map[string]*Mount{}, away: map[*Mount]bool{}, past: map[string]uint64{}}
	cancel, err := store.Subscribe(m.notify)
	if err != nil {
		return nil, err
	}
	m.cancel = cancel
	return m, nil
}

// Mount mounts the store at an absolute path. It fails with
// [snapshot.ErrMounted] where something is mounted already, or that is no place
// for a mount. What a daemon that is gone left there is taken away first.
func (m *Mounts) Mount(ctx context.Context, req snapshot.MountRequest) error {
	if !filepath.IsAbs(req.Mountpoint) {
		return fmt.Errorf("mountpoint %s is not absolute: %w", tree.Quote(req.Mountpoint), snapshot.ErrRefused)
	}
	for _, id := range req.Threads {
		if err := index.ValidID("thread id", id); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	at := filepath.Clean(req.Mountpoint)
	opt := Options{AllowOther: req.AllowOther, XAttrs: req.XAttrs, Threads: req.Threads, Logger: m.log.With("mountpoint", at)}
	mount := prepare(m.store, at, opt)
	if err := m.reserve(ctx, mount); err != nil {
		return err
	}
	err := mount.start(opt)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		delete(m.mounts, at)
		return err
	}
	mount.ready = true
	m.serving.Go(func() { m.wait(at, mount) })
	m.log.Info("mounted", "mountpoint", at)
	return nil
}

// reserve checks a mountpoint and keeps others from taking it meanwhile. From
// then on the mount is told of changes: the kernel may ask before start returns.
// It asks the mount table before it touches the directory: on a mount of this
// very process it would wait for itself.
func (m *Mounts) reserve(ctx context.Context, mount *Mount) error {
	at := mount.mountpoint
	if err := m.take(at, mount); err != nil {
		return err
	}
	if err := m.check(ctx, at); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.mounts, at)
		return err
	}
	return nil
}

// take keeps a mountpoint for a mount, unless this daemon has one there.
func (m *Mounts) take(at string, mount *Mount) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.mounts[at]; taken {
		return fmt.Errorf("%s: a snapfs mount is at %s already, served by process %d for the store %s: %w", tree.Quote(at), tree.Quote(at), os.Getpid(), tree.Quote(m.store.Dir()), snapshot.ErrMounted)
	}
	m.mounts[at] = mount
	return nil
}

// check looks whether a directory is a place for a mount.
func (m *Mounts) check(ctx context.Context, at string) error {
	if err := recoverAt(ctx, at, m.log); err != nil {
		return err
	}
	info, err := os.Stat(at)
	if err != nil {
		return snapshot.WithHint(fmt.Errorf("mountpoint: %w", err), "create the directory first: mkdir -p %s", tree.QuoteShell(at))
	}
	if !info.IsDir() {
		return fmt.Errorf("mountpoint %s is not a directory: %w", tree.Quote(at), snapshot.ErrMounted)
	}
	dir := m.store.Dir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if snapshot.Within(at, dir) || snapshot.Within(dir, at) {
		return fmt.Errorf("mountpoint %s and the store %s lie inside one another: %w", tree.Quote(at), tree.Quote(dir), snapshot.ErrMounted)
	}
	return nil
}

// wait forgets a mount when the kernel has ended it, whoever asked for that.
func (m *Mounts) wait(at string, mount *Mount) {
	<-mount.done
	m.log.Info("unmounted", "mountpoint", at)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounts[at] == mount {
		delete(m.mounts, at)
	}
	delete(m.away, mount)
	mount.addRequests(m.past)
	if len(m.mounts)+len(m.away) == 0 {
		select {
		case m.gone <- struct{}{}:
		default:
		}
	}
}

// Gone yields a value whenever the last mount has ended.
func (m *Mounts) Gone() <-chan struct{} { return m.gone }

// None reports whether nothing is mounted now.
func (m *Mounts) None() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mounts)+len(m.away) == 0
}

// Unmount ends a mount. It fails with [snapshot.ErrNotMounted] when it is none
// of this daemon's, and with [snapshot.ErrMountBusy] while it is in use.
func (m *Mounts) Unmount(ctx context.Context, req snapshot.UnmountRequest) error {
	at := filepath.Clean(req.Mountpoint)
	m.mu.Lock()
	mount := m.mounts[at]
	ready := mount != nil && mount.ready
	m.mu.Unlock()
	if !ready {
		return fmt.Errorf("%s: %w", at, snapshot.ErrNotMounted)
	}
	if err := Unmount(at, req.Lazy); err != nil {
		return err
	}
	if !req.Lazy {
		if err := m.ended(ctx, mount); err != nil {
			return err
		}
	}
	m.leave(at, mount)
	return nil
}

// leave gives a mountpoint free whose mount was taken away, although somebody may
// still use that.
func (m *Mounts) leave(at string, mount *Mount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounts[at] == mount {
		delete(m.mounts, at)
		m.away[mount] = true
	}
}

// endTime is how long the kernel has to end a mount that was taken away.
const endTime = 2 * time.Second

// ended waits until the kernel has ended a mount that was taken away. It does not
// as long as another mount namespace has a copy of it, made when a container
// began: the mount is then served until that one goes, like one detached lazily.
func (m *Mounts) ended(ctx context.Context, mount *Mount) error {
	limit := time.NewTimer(endTime)
	defer limit.Stop()
	select {
	case <-mount.done:
	case <-limit.C:
		m.log.Warn("another mount namespace still has a copy of the mount", "mountpoint", mount.mountpoint)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Mounts lists the mounts.
func (m *Mounts) Mounts() []snapshot.MountInfo {
	infos := []snapshot.MountInfo{}
	for _, mount := range m.mounted() {
		at := snapshot.NewPath(mount.mountpoint)
		infos = append(infos, snapshot.MountInfo{Mountpoint: at.Text, Bytes: at.Bytes, Inodes: mount.Inodes()})
	}
	return infos
}

// mounted returns the mounts that are usable, by mountpoint.
func (m *Mounts) mounted() []*Mount {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*Mount
	for _, at := range slices.Sorted(maps.Keys(m.mounts)) {
		if mount := m.mounts[at]; mount.ready {
			all = append(all, mount)
		}
	}
	return all
}

// served returns all that the kernel may ask for: also mounts that were taken
// away, and those that are being made.
func (m *Mounts) served() []*Mount {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(m.mounts)), maps.Keys(m.away))
}

// Requests counts the kernel's requests of all mounts, also of those that ended.
func (m *Mounts) Requests() map[string]uint64 {
	m.mu.Lock()
	sums := maps.Clone(m.past)
	m.mu.Unlock()
	for _, mount := range m.served() {
		mount.addRequests(sums)
	}
	return sums
}

// Close takes all mounts away: cleanly those that are not in use, lazily the
// others.
func (m *Mounts) Close() error {
	m.cancel()
	var errs []error
	for _, mount := range m.mounted() {
		err := Unmount(mount.mountpoint, false)
		if _, _, there := ourMount(mount.mountpoint); !there {
			err = nil // somebody else was faster
		}
		if errors.Is(err, snapshot.ErrMountBusy) {
			m.log.Warn("mount is in use: detached", "mountpoint", mount.mountpoint, "error", err)
			err = Unmount(mount.mountpoint, true)
		} else if err == nil {
			err = m.ended(context.Background(), mount)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// notify shows a change in all mounts. It does not wait for a kernel that takes
// long: a save must not hang because of somebody who lists a directory.
func (m *Mounts) notify(ctx context.Context, ev snapshot.Event) {
	all := m.served()
	told := make([]<-chan struct{}, len(all))
	for i, mount := range all {
		told[i] = mount.queue.put(ev, mount.changed)
	}
	for i, mount := range all {
		select {
		case <-told[i]:
		case <-ctx.Done():
			m.log.Warn("a mount does not show a change yet", "mountpoint", mount.mountpoint, "thread", ev.Thread, "checkpoint", ev.Checkpoint)
		}
	}
}
