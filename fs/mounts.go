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

	"github.com/snapfs/snapfs/snapshot"
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
	mounts  map[string]*Mount // by mountpoint; nil while it is being made
	past    map[string]uint64 // requests of mounts that ended
	serving sync.WaitGroup
}

// NewMounts makes the daemon's mounts, none at first. The process must hold the
// store.
func NewMounts(store *snapshot.Store, log *slog.Logger) (*Mounts, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Mounts{store: store, log: log, gone: make(chan struct{}, 1), mounts: map[string]*Mount{}, past: map[string]uint64{}}
	cancel, err := store.Subscribe(m.notify)
	if err != nil {
		return nil, err
	}
	m.cancel = cancel
	return m, nil
}

// Mount mounts the store at an absolute path. It fails with
// [snapshot.ErrMounted] where something is mounted already, or that is no place
// for a mount.
func (m *Mounts) Mount(_ context.Context, req snapshot.MountRequest) error {
	if !filepath.IsAbs(req.Mountpoint) {
		return fmt.Errorf("mountpoint %q is not absolute: %w", req.Mountpoint, snapshot.ErrRefused)
	}
	at := filepath.Clean(req.Mountpoint)
	if err := m.reserve(at); err != nil {
		return err
	}
	mount, err := newMount(m.store, at, Options{AllowOther: req.AllowOther, Logger: m.log.With("mountpoint", at)})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		delete(m.mounts, at)
		return err
	}
	m.mounts[at] = mount
	m.serving.Go(func() { m.wait(at, mount) })
	m.log.Info("mounted", "mountpoint", at)
	return nil
}

// reserve checks a mountpoint and keeps others from taking it meanwhile. It
// asks the mount table before it touches the directory: on a mount of this very
// process it would wait for itself.
func (m *Mounts) reserve(at string) error {
	mounts, err := snapshot.Mountpoints()
	if err != nil {
		return err
	}
	for _, other := range mounts {
		if snapshot.Within(at, other.Mountpoint) {
			return fmt.Errorf("%s: a snapfs mount is at %s already: %w", at, other.Mountpoint, snapshot.ErrMounted)
		}
	}
	info, err := os.Stat(at)
	if err != nil {
		return snapshot.WithHint(fmt.Errorf("mountpoint: %w", err), "create the directory first: mkdir -p %s", at)
	}
	if !info.IsDir() {
		return fmt.Errorf("mountpoint %s is not a directory: %w", at, snapshot.ErrMounted)
	}
	dir := m.store.Dir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if snapshot.Within(at, dir) || snapshot.Within(dir, at) {
		return fmt.Errorf("mountpoint %s and the store %s lie inside one another: %w", at, dir, snapshot.ErrMounted)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.mounts[at]; taken {
		return fmt.Errorf("%s is mounted already: %w", at, snapshot.ErrMounted)
	}
	m.mounts[at] = nil
	return nil
}

// wait forgets a mount when the kernel has ended it, whoever asked for that.
func (m *Mounts) wait(at string, mount *Mount) {
	<-mount.done
	m.log.Info("unmounted", "mountpoint", at)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mounts, at)
	mount.addRequests(m.past)
	if len(m.mounts) == 0 {
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
	return len(m.mounts) == 0
}

// Unmount ends a mount. It fails with [snapshot.ErrNotMounted] when it is none
// of this daemon's, and with [snapshot.ErrMountBusy] while it is in use.
func (m *Mounts) Unmount(ctx context.Context, req snapshot.UnmountRequest) error {
	at := filepath.Clean(req.Mountpoint)
	m.mu.Lock()
	mount := m.mounts[at]
	m.mu.Unlock()
	if mount == nil {
		return fmt.Errorf("%s: %w", at, snapshot.ErrNotMounted)
	}
	if err := Unmount(at, req.Lazy); err != nil || req.Lazy {
		return err
	}
	select {
	case <-mount.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mounts lists the mounts.
func (m *Mounts) Mounts() []snapshot.MountInfo {
	infos := []snapshot.MountInfo{}
	for _, mount := range m.all() {
		infos = append(infos, snapshot.MountInfo{Mountpoint: mount.mountpoint, Inodes: mount.Inodes()})
	}
	return infos
}

// all returns the mounts that are served, by mountpoint.
func (m *Mounts) all() []*Mount {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*Mount
	for _, at := range slices.Sorted(maps.Keys(m.mounts)) {
		if mount := m.mounts[at]; mount != nil {
			all = append(all, mount)
		}
	}
	return all
}

// Requests counts the kernel's requests of all mounts, also of those that ended.
func (m *Mounts) Requests() map[string]uint64 {
	m.mu.Lock()
	sums := maps.Clone(m.past)
	m.mu.Unlock()
	for _, mount := range m.all() {
		mount.addRequests(sums)
	}
	return sums
}

// Close takes all mounts away: cleanly those that are not in use, lazily the
// others.
func (m *Mounts) Close() error {
	m.cancel()
	var errs []error
	for _, mount := range m.all() {
		err := Unmount(mount.mountpoint, false)
		if errors.Is(err, snapshot.ErrMountBusy) {
			m.log.Warn("mount is in use: detached", "mountpoint", mount.mountpoint)
			err = Unmount(mount.mountpoint, true)
		} else if err == nil {
			<-mount.done
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// notify shows a publish in all mounts. It does not wait for a kernel that takes
// long: a save must not hang because of somebody who lists a directory.
func (m *Mounts) notify(ctx context.Context, ev snapshot.Event) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		for _, mount := range m.all() {
			mount.published(ev)
		}
	}()
	select {
	case <-told:
	case <-ctx.Done():
		m.log.Warn("mounts do not show a publish yet", "thread", ev.Thread, "checkpoint", ev.Checkpoint)
	}
}
