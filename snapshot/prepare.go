package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
)

// PrepareResult is what [Store.Prepare] found and did.
type PrepareResult struct {
	Head     string // id of the thread's newest checkpoint; empty: it has none
	Restored bool   // the workspace was new and has the files of Head now
	RestoreResult
}

// Prepare readies a workspace for a run that [Store.Save] is to store with the same
// options. It refuses what that save would refuse before it reads anything: a workspace that
// is none, a bad pattern, a run or a name that the thread has already. A workspace that is
// missing or empty then gets the files of the thread's newest checkpoint, or where there is
// none is made; one with content is left alone.
func (s *Store) Prepare(ctx context.Context, opt SaveOptions) (PrepareResult, error) {
	if _, err := policy.CompileFiles(opt.Files); err != nil {
		return PrepareResult{}, err
	}
	if opt.Thread == "" {
		return PrepareResult{}, fmt.Errorf("run: no thread is named: %w", index.ErrInvalid)
	}
	opt.ID = opt.id()
	dir, err := s.outside(opt.Workspace)
	if err != nil {
		return PrepareResult{}, err
	}
	if _, err = os.Stat(dir); err == nil {
		_, err = checkWorkspace(s.dir, dir, opt.Force)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return PrepareResult{}, err
	}
	begin, err := s.beginRequest(ctx, opt)
	if err != nil {
		return PrepareResult{}, err
	}
	if err := s.checkWriter(ctx, opt.Thread, opt.Lease); err != nil {
		return PrepareResult{}, err
	}
	begin.Beside = true // who saves now may be done before the run is
	session, err := s.holder.Begin(ctx, begin)
	if err != nil {
		return PrepareResult{}, err
	}
	defer session.Close()
	res := PrepareResult{Head: session.Head()}
	if res.Head == "" {
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return res, fmt.Errorf("workspace: %w", err)
		}
		return res, nil
	}
	res.RestoreResult, err = s.Restore(ctx, res.Head, RestoreOptions{Dir: opt.Workspace})
	if errors.Is(err, restore.ErrNotEmpty) {
		return res, nil
	}
	res.Restored = err == nil
	return res, err
}

// checkWriter looks whether a thread is free for the owner of a lease, which it renews, or
// for somebody without one.
func (s *Store) checkWriter(ctx context.Context, thread, token string) error {
	if token != "" {
		_, err := s.RenewWriter(ctx, thread, token)
		return err
	}
	lease, err := s.Writer(ctx, thread)
	switch {
	case errors.Is(err, index.ErrNoWriter):
		return nil
	case err != nil:
		return err
	}
	return waitHint(fmt.Errorf("thread %s is leased to %s until %s: %w", quoted(thread), quoted(lease.Owner), lease.Expires.Format(time.RFC3339), index.ErrWriterConflict), thread)
}

// beginRequest is how a save with these options begins.
func (s *Store) beginRequest(ctx context.Context, opt SaveOptions) (BeginRequest, error) {
	begin := BeginRequest{Thread: opt.Thread, ID: opt.ID, Name: opt.Name, PID: os.Getpid(), Lease: opt.Lease}
	if opt.Parent == "" {
		return begin, nil
	}
	parent, err := s.Resolve(ctx, opt.Parent)
	begin.Parent = parent.ID
	return begin, err
}

// id is that of the new checkpoint, where it is not made from the time.
func (opt SaveOptions) id() string {
	if opt.ID == "" && opt.Run != "" {
		return "checkpoint-" + opt.Run
	}
	return opt.ID
}
