package workspace

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

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
