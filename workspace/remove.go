package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

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
