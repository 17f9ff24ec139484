package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// OpenBoth opens two stores as [Open] does, to send from one to the other. Processes that
// open the same two take them in the same order, whichever way they send, so that none
// waits for another that waits for it. The one that is sent to is made if it is missing and
// look, which gets the other one alone, finds nothing wrong; nil: it does not look. It fails
// with [snapshot.ErrRefused] when both are one.
func OpenBoth(ctx context.Context, fromDir, toDir string, opt snapshot.Options, onWait func(*snapshot.LockedError), look func(from *snapshot.Store) error) (from, to *snapshot.Store, err error) {
	fromID, err := snapshot.StoreID(fromDir)
	if err != nil {
		return nil, nil, snapshot.Forbidden(fromDir, err)
	}
	if err := refuseNested(fromDir, toDir); err != nil {
		return nil, nil, err
	}
	opt.Create = false
	toID, err := snapshot.StoreID(toDir)
	if errors.Is(err, snapshot.ErrNoStore) {
		if look != nil {
			if from, err = Open(ctx, fromDir, opt, onWait); err != nil {
				return nil, nil, err
			}
			if err := errors.Join(look(from), from.Close()); err != nil {
				return nil, nil, err
			}
		}
		err = snapshot.Create(toDir)
		if errors.Is(err, snapshot.ErrLocked) { // somebody else makes it
			opt.Create, err = true, nil
		}
		if err == nil {
			toID, _ = snapshot.StoreID(toDir) // not there yet: then it comes first
		}
	}
	if err != nil {
		return nil, nil, snapshot.Forbidden(toDir, err)
	}
	first, second := &from, &to
	firstDir, secondDir := fromDir, toDir
	if before(toID, toDir, fromID, fromDir) {
		first, second = second, first
		firstDir, secondDir = secondDir, firstDir
	}
	if *first, err = Open(ctx, firstDir, opt, onWait); err != nil {
		return nil, nil, err
	}
	if *second, err = Open(ctx, secondDir, opt, onWait); err != nil {
		return nil, nil, errors.Join(err, (*first).Close())
	}
	return from, to, nil
}

// before tells which of two stores is opened first. A copy has the id of its original.
func before(aID, aDir, bID, bDir string) bool {
	if aID != bID {
		return aID < bID
	}
	return strings.Compare(realDir(aDir), realDir(bDir)) < 0
}

// realDir is the path of a directory without links, as far as there is one.
func realDir(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return path
	}
	return filepath.Clean(dir)
}

// refuseNested refuses to send from a store to itself, or into a directory inside of it, or
// from one that is inside of where it is sent to.
func refuseNested(fromDir, toDir string) error {
	if snapshot.SameStore(fromDir, toDir) {
		return snapshot.WithHint(fmt.Errorf("the store %s is on both sides: %w", tree.Quote(fromDir), snapshot.ErrRefused), "name another store")
	}
	a, b := realDir(fromDir), realDir(toDir)
	if snapshot.Within(b, a) || snapshot.Within(a, b) {
		return snapshot.WithHint(fmt.Errorf("the stores %s and %s lie inside one another: %w", tree.Quote(fromDir), tree.Quote(toDir), snapshot.ErrRefused), "name another store")
	}
	return nil
}
