// Package workspace makes instant workspaces: writable directories of any size, ready in
// milliseconds. The kernel's overlayfs shows a checkpoint there and keeps what changes in a
// directory of its own, so that nothing is copied before it is written to, and a save reads
// what was changed. What lies below is served by a process that outlives the store's
// daemon: see [Serve].
//
// Mounts are made in the mount namespace of the process that asks for them, and by root.
package workspace

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// CreateOptions of [Create]. Only Dir and Start are needed.
type CreateOptions struct {
	Dir    string // missing or empty
	Thread string // to save to; one that does not exist is made as a fork; empty: the checkpoint's
	// Layer is a missing or empty directory for what changes, on a file system that
	// overlayfs can write to; empty: one in the store.
	Layer string
	// Start starts a process that calls [Serve] for the store in this mount namespace.
	Start func() error
}

// Create makes a directory an instant workspace of a checkpoint. It is whole, or nothing of
// it is left.
func Create(ctx context.Context, store *snapshot.Store, ref string, opt CreateOptions) (w snapshot.InstantWorkspace, err error) {
	if err := mayMount(ref, opt.Dir); err != nil {
		return w, err
	}
	if err := store.MayHaveWorkspaces(); err != nil {
		return w, err
	}
	dir, missing, err := store.NewWorkspace(opt.Dir)
	if err != nil {
		if errors.Is(err, restore.ErrNotEmpty) {
			err = snapshot.WithHint(err, "choose a directory that is missing or empty")
		}
		return w, err
	}
	var undo undoing
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.all())
		}
	}()
	if missing {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return w, fmt.Errorf("workspace: %w", err)
		}
		undo.add(func() error { return os.Remove(dir) })
	}
	fork := opt.Thread != ""
	if fork {
		if _, err := store.Thread(ctx, opt.Thread); err == nil {
			fork = false
		} else if !errors.Is(err, index.ErrThreadNotFound) {
			return w, err
		}
	}
	w = snapshot.InstantWorkspace{ID: snapshot.NewWorkspaceID(), Thread: opt.Thread, Made: missing, Boot: disk.BootID()}
	w.SetMountpoint(dir)
	if w.Namespace, err = snapshot.MountNamespace(); err != nil {
		return w, err
	}
	if err := place(store, &w, opt.Layer); err != nil {
		return w, err
	}
	cp, err := store.Resolve(ctx, ref)
	if err != nil {
		return w, err
	}
	rec, err := store.Record(ctx, cp)
	if err != nil {
		return w, err
	}
	if err := store.MakeWorkspaceFolder(w.ID); err != nil {
		return w, err
	}
	undo.add(func() error { return store.DropWorkspace(w.ID) })
	release, err := store.LockWorkspace(w.ID)
	if err != nil {
		return w, err
	}
	defer release()
	undo.add(func() error { return removeLayer(w) })
	if err := makeLayer(ctx, store, w, rec); err != nil {
		return w, err
	}
	// Last, so that what is registered is whole.
	if w, err = store.AddWorkspace(ctx, cp.ID, w); err != nil {
		return w, err
	}
	if err := attach(ctx, store, w, rec, opt.Start, &undo); err != nil {
		return w, err
	}
	if fork {
		_, err = store.Fork(ctx, w.Checkpoint, snapshot.ForkOptions{Thread: opt.Thread})
	}
	return w, err
}

// undoing is what takes back what was done, the last first.
type undoing struct{ steps []func() error }

func (u *undoing) add(step func() error) { u.steps = append(u.steps, step) }

func (u *undoing) all() error {
	var errs []error
	for i := range u.steps {
		errs = append(errs, u.steps[len(u.steps)-1-i]())
	}
	return errors.Join(errs...)
}

// mayMount refuses who is not root.
func mayMount(ref, dir string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return snapshot.WithHint(fmt.Errorf("only root can make an instant workspace: %w", snapshot.ErrForbidden),
		"snapfs restore %s %s copies the files instead", tree.QuoteShell(ref), tree.QuoteShell(dir))
}

// place decides where the layer of a new workspace lies.
func place(store *snapshot.Store, w *snapshot.InstantWorkspace, layer string) error {
	if layer == "" {
		w.SetLayer(store.OwnLayer(w.ID))
		return nil
	}
	real, missing, err := store.NewWorkspace(layer)
	if err != nil {
		return fmt.Errorf("the layer for changes: %w", err)
	}
	if dir := w.Mountpoint(); snapshot.Within(real, dir) || snapshot.Within(dir, real) {
		err := fmt.Errorf("the workspace %s and its layer for changes %s lie inside one another: %w", tree.Quote(dir), tree.Quote(real), snapshot.ErrRefused)
		return snapshot.WithHint(err, "choose a directory beside it")
	}
	w.SetLayer(real)
	w.Outside, w.LayerMade = true, missing
	return nil
}

// record reads the record of the checkpoint below a workspace, deleted or not.
func record(ctx context.Context, store *snapshot.Store, w snapshot.InstantWorkspace) (index.Record, error) {
	return store.Record(ctx, snapshot.Checkpoint{ID: w.Checkpoint, Record: w.Record})
}

// attach has the checkpoint served, and mounts the workspace.
func attach(ctx context.Context, store *snapshot.Store, w snapshot.InstantWorkspace, rec index.Record, start func() error, undo *undoing) error {
	hash, err := cas.ParseHash(w.Record)
	if err != nil {
		return err
	}
	// While a server is started the packs can be looked for that it needs in any case.
	var packs []cas.PackID
	var looking errgroup.Group
	conn, err := Connect(ctx, store.Dir(), func() error {
		looking.Go(func() (err error) {
			packs, err = store.PacksOf(ctx, rec, hash)
			return err
		})
		return start()
	})
	if err := errors.Join(err, looking.Wait()); err != nil {
		return err
	}
	defer conn.Close()
	lower, err := serve(ctx, store, conn, w, rec, packs)
	if err != nil {
		return err
	}
	undo.add(func() error { return giveUp(context.WithoutCancel(ctx), store, w) })
	if err := mountOverlay(w, lower); err != nil {
		return err
	}
	undo.add(func() error { return unix.Unmount(w.Mountpoint(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	return nil
}

// serve has the server of lower layers show the checkpoint of a workspace. A pack that is
// rewritten meanwhile is looked for again.
func serve(ctx context.Context, store *snapshot.Store, conn *Conn, w snapshot.InstantWorkspace, rec index.Record, packs []cas.PackID) (lower fs.Lower, err error) {
	hash, err := cas.ParseHash(w.Record)
	if err != nil {
		return lower, err
	}
	lower, err = conn.add(w.ID, hash, packs, w.XAttrs)
	const tries = 5
	for try := 1; try <= tries && (errors.Is(err, errNeedPacks) || errors.Is(err, iofs.ErrNotExist)); try++ {
		if packs, err = store.PacksOf(ctx, rec, hash); err == nil {
			lower, err = conn.add(w.ID, hash, packs, w.XAttrs)
		}
	}
	if err != nil {
		err = fmt.Errorf("serve checkpoint %s: %w", tree.Quote(w.Checkpoint), err)
	}
	return lower, err
}

// giveUp tells the server, if there is one, that a workspace is gone.
func giveUp(ctx context.Context, store *snapshot.Store, w snapshot.InstantWorkspace) error {
	conn, err := dial(ctx, store.Dir(), w.Namespace) // which may be over but for it
	if errors.Is(err, ErrNoServer) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(conn.release(w.ID), conn.Close())
}

// A State says what can be done with an instant workspace.
type State string

// The states.
const (
	Mounted   State = "mounted"
	Unmounted State = "unmounted" // repair mounts it again, with all that was changed
	Broken    State = "broken"    // mounted, and what lies below it is served no more: repair mends it
	Elsewhere State = "elsewhere" // in another mount namespace
	Copied    State = "copied"    // registered by a copy of the store: it is the other one's
)

// Status is an instant workspace as users see it.
type Status struct {
	snapshot.InstantWorkspace
	State State `json:"state"`
	// Unsaved tells whether it has something that its last checkpoint does not have, and
	// Changes how many entries lie in its upper layer and how long the files among them
	// are, in bytes; only from [Show].
	Unsaved *bool    `json:"unsaved,omitempty"`
	Changes *Changes `json:"changes,omitempty"`
}

// Changes counts what lies in an upper layer.
type Changes struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// List tells the states of all instant workspaces, newest first.
func List(ctx context.Context, store *snapshot.Store) ([]Status, error) {
	all, err := store.Workspaces()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return []Status{}, nil
	}
	served, err := servedHere(ctx, store)
	if err != nil {
		return nil, err
	}
	list := make([]Status, 0, len(all))
	for _, w := range all {
		state, err := stateOf(store, w, served)
		if err != nil {
			return nil, err
		}
		list = append(list, Status{InstantWorkspace: w, State: state})
	}
	slices.SortStableFunc(list, func(a, b Status) int { return b.Created.Compare(a.Created) })
	return list, nil
}

// servedHere returns the ids of the workspaces that the server in this mount namespace
// knows; none without one.
func servedHere(ctx context.Context, store *snapshot.Store) (map[string]bool, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("instant workspaces are root's: %w", snapshot.ErrForbidden)
	}
	conn, err := Connect(ctx, store.Dir(), nil)
	if errors.Is(err, ErrNoServer) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.workspaces()
}

// stateOf finds the state of a workspace.
func stateOf(store *snapshot.Store, w snapshot.InstantWorkspace, served map[string]bool) (State, error) {
	at, mounted, err := store.WorkspaceAt(w.Mountpoint())
	if err != nil && !errors.Is(err, snapshot.ErrNoWorkspace) {
		return "", err
	}
	switch {
	case store.Copied(w):
		return Copied, nil
	case store.Elsewhere(w): // even if a copy of its mount is here
		return Elsewhere, nil
	case err == nil && at.ID == w.ID && mounted && served[w.ID]:
		return Mounted, nil
	case err == nil && at.ID == w.ID && mounted:
		return Broken, nil
	}
	return Unmounted, nil
}

// find returns the workspace of a directory as users name it, and its state.
func find(ctx context.Context, store *snapshot.Store, dir string) (Status, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Status{}, err
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil { // the directory itself may be missing, or a mount that does not answer
		abs = filepath.Join(parent, filepath.Base(abs))
	}
	if to, err := filepath.EvalSymlinks(abs); err == nil {
		abs = to
	}
	all, err := List(ctx, store)
	if err != nil {
		return Status{}, err
	}
	var found *Status
	for i, w := range all {
		if w.Mountpoint() == abs && (found == nil || found.State == Elsewhere) {
			found = &all[i]
		}
	}
	if found == nil {
		return Status{}, snapshot.WithHint(fmt.Errorf("%s: %w", tree.Quote(dir), snapshot.ErrNoWorkspace), "snapfs workspace list has those of this store")
	}
	return *found, nil
}

// Show tells all about the instant workspace of a directory.
func Show(ctx context.Context, store *snapshot.Store, dir string) (Status, error) {
	s, err := find(ctx, store, dir)
	if err != nil || s.State == Elsewhere {
		return s, err
	}
	if s.State == Copied {
		return s, nil
	}
	if s.Changes, err = changes(s.Upper()); err != nil {
		return s, err
	}
	unsaved, err := store.Unsaved(ctx, s.InstantWorkspace)
	if err == nil {
		s.Unsaved = &unsaved
	} else if s.State == Mounted {
		return s, err
	}
	return s, nil
}

// changes counts what lies in an upper layer.
func changes(upper string) (*Changes, error) {
	var c Changes
	err := filepath.WalkDir(upper, func(path string, d iofs.DirEntry, err error) error {
		if errors.Is(err, iofs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil || path == upper {
			return err
		}
		c.Entries++
		if d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				c.Bytes += info.Size()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count what was changed: %w", err)
	}
	return &c, nil
}

// Remove takes an instant workspace away, with all that was changed in it. It fails with
// [snapshot.ErrWorkspaceState] while it is used, here or in another mount namespace, or has
// something that was not saved, unless it is forced. Of one that was copied with its store,
// what the copy has is removed.
func Remove(ctx context.Context, store *snapshot.Store, dir string, force bool) error {
	s, err := find(ctx, store, dir)
	if err == nil {
		err = mayChange(store, s)
	}
	if err != nil {
		return err
	}
	w := s.InstantWorkspace
	release, err := store.LockWorkspace(w.ID)
	if err != nil {
		return err
	}
	defer release()
	if s.State == Copied {
		if !force {
			return copied(w)
		}
		if w.Outside {
			return store.DropWorkspace(w.ID) // the layer is the other one's
		}
		return errors.Join(removeLayer(w), store.DropWorkspace(w.ID))
	}
	var before string
	if !force {
		if before, err = fingerprint(w.Upper()); err != nil {
			return err
		}
		unsaved, err := store.Unsaved(ctx, w)
		if err != nil {
			return snapshot.WithHint(err, "what is not saved in it is unknown: snapfs workspace remove --force %s removes it all the same", tree.QuoteShell(dir))
		}
		if unsaved {
			err := fmt.Errorf("%s has changes that were not saved: %w", tree.Quote(dir), snapshot.ErrWorkspaceState)
			return snapshot.WithHint(err, "snapfs save %s keeps them; snapfs workspace remove --force %s throws them away", tree.QuoteShell(dir), tree.QuoteShell(dir))
		}
	}
	if err := unmount(w, force); err != nil {
		return err
	}
	if !force {
		if err := stillUsed(w, before); err != nil {
			return errors.Join(err, putBack(ctx, store, w, s.State))
		}
	}
	if err := giveUp(ctx, store, w); err != nil {
		return err
	}
	if err := removeLayer(w); err != nil {
		return fmt.Errorf("remove what was changed in %s: %w", tree.Quote(dir), err)
	}
	if err := store.DropWorkspace(w.ID); err != nil {
		return err
	}
	if w.Made {
		_ = os.Remove(w.Mountpoint()) // unless somebody has put something there
	}
	return nil
}

// stillUsed fails when a workspace that was unmounted here is still used, or has been changed
// since it looked as before.
func stillUsed(w snapshot.InstantWorkspace, before string) error {
	hint := "end what uses it, or add --force"
	at, err := mountedStill(w.Source())
	if err != nil {
		return err
	}
	if at != "" {
		return snapshot.WithHint(fmt.Errorf("%s is also mounted %s: %w", tree.Quote(w.Mountpoint()), at, snapshot.ErrWorkspaceState), "%s", hint)
	}
	after, err := fingerprint(w.Upper())
	if err == nil && after != before {
		err = snapshot.WithHint(fmt.Errorf("%s was changed meanwhile: %w", tree.Quote(w.Mountpoint()), snapshot.ErrWorkspaceState), "%s", hint)
	}
	return err
}

// putBack mounts a workspace that is not to be removed after all.
func putBack(ctx context.Context, store *snapshot.Store, w snapshot.InstantWorkspace, state State) error {
	if state != Mounted {
		return nil
	}
	rec, err := record(ctx, store, w)
	if err != nil {
		return err
	}
	var undo undoing
	return attach(ctx, store, w, rec, func() error { return ErrNoServer }, &undo)
}

// mayChange refuses to touch a workspace that is not this process's to change.
func mayChange(store *snapshot.Store, s Status) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can change instant workspaces: %w", snapshot.ErrForbidden)
	}
	if err := store.MayHaveWorkspaces(); err != nil {
		return err
	}
	if s.State == Elsewhere {
		err := fmt.Errorf("%s is mounted in another mount namespace: %w", tree.Quote(s.Mountpoint()), snapshot.ErrWorkspaceState)
		return snapshot.WithHint(err, "do it there, or end what runs there first")
	}
	return nil
}

// copied says that a workspace is not this store's.
func copied(w snapshot.InstantWorkspace) error {
	err := fmt.Errorf("%s came with a copy of a store, whose workspace it is: %w", tree.Quote(w.Mountpoint()), snapshot.ErrWorkspaceState)
	return snapshot.WithHint(err, "snapfs workspace remove --force %s removes what the copy has of it, and leaves the workspace alone", tree.QuoteShell(w.Mountpoint()))
}

// unmount takes the mounts of a workspace away, also one that was mounted over itself, and
// nothing else that somebody has mounted there.
func unmount(w snapshot.InstantWorkspace, force bool) error {
	for {
		n, top, err := mountsOf(w)
		if err != nil || n == 0 {
			return err
		}
		if !top {
			err := fmt.Errorf("something else is mounted over %s: %w: %w", tree.Quote(w.Mountpoint()), snapshot.ErrMountBusy, snapshot.ErrWorkspaceState)
			return snapshot.WithHint(err, "umount %s", tree.QuoteShell(w.Mountpoint()))
		}
		if err := fs.Unmount(w.Mountpoint(), force); err != nil {
			if errors.Is(err, snapshot.ErrMountBusy) {
				return snapshot.WithHint(fmt.Errorf("%w: %w", err, snapshot.ErrWorkspaceState), "close what uses it, or add --force")
			}
			return err
		}
	}
}

// mountsOf counts the mounts of a workspace at its place. top tells whether the one that is
// seen there is one of them.
func mountsOf(w snapshot.InstantWorkspace) (n int, top bool, err error) {
	table, err := snapshot.MountTable()
	if err != nil {
		return 0, false, fmt.Errorf("read the mount table: %w", err)
	}
	for _, e := range table {
		if e.Mountpoint != w.Mountpoint() {
			continue
		}
		if top = e.Type == snapshot.OverlayType && e.Source == w.Source(); top {
			n++
		}
	}
	return n, top, nil
}

// Repair mounts an instant workspace again, with all that was changed in it: after the
// server of lower layers was killed, or the machine started anew. One that is well is left
// alone. Processes that still use the old mount keep it, and should be ended: what they
// have open of the checkpoint fails.
func Repair(ctx context.Context, store *snapshot.Store, dir string, start func() error) (Status, error) {
	s, err := find(ctx, store, dir)
	if err == nil {
		err = mayChange(store, s)
	}
	if err == nil && s.State == Copied {
		err = copied(s.InstantWorkspace)
	}
	if err != nil || s.State == Mounted {
		return s, err
	}
	w := s.InstantWorkspace
	release, err := store.LockWorkspace(w.ID)
	if err != nil {
		return s, err
	}
	defer release()
	if err := unmount(w, true); err != nil {
		return s, err
	}
	at := w.Mountpoint()
	missing, err := restore.CheckEmpty(at)
	if err != nil {
		return s, snapshot.WithHint(fmt.Errorf("mount over %s: %w", tree.Quote(at), err), "move away what was put there while the workspace was not mounted")
	}
	if missing {
		if err := os.Mkdir(at, 0o755); err != nil {
			return s, fmt.Errorf("workspace: %w", err)
		}
	}
	rec, err := record(ctx, store, w)
	if err != nil {
		return s, err
	}
	if here, err := snapshot.MountNamespace(); err == nil && w.Namespace != here {
		if err := giveUp(ctx, store, w); err != nil { // nobody lives there but its server
			return s, err
		}
	}
	var undo undoing
	if err := attach(ctx, store, w, rec, start, &undo); err != nil {
		return s, errors.Join(err, undo.all())
	}
	w.Boot = disk.BootID()
	if w.Namespace, err = snapshot.MountNamespace(); err == nil {
		err = store.PutWorkspace(w)
	}
	s.InstantWorkspace, s.State = w, Mounted
	return s, err
}
