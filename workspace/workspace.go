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
	if w, err = store.AddWorkspace(ctx, cp, rec, w); err != nil {
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
