package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
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
	files, screen, err := opt.compile()
	if err != nil {
		return PrepareResult{}, err
	}
	if opt.Thread == "" {
		return PrepareResult{}, fmt.Errorf("run: no thread is named: %w", index.ErrInvalid)
	}
	opt.ID, opt.Settings.Secrets = opt.id(), screen.Mode
	if err := opt.check(opt.rules(files)); err != nil {
		return PrepareResult{}, err
	}
	if opt.ArtifactsDir != "" {
		if info, err := os.Stat(opt.ArtifactsDir); err == nil && !info.IsDir() {
			return PrepareResult{}, fmt.Errorf("artifacts: %s is not a directory: %w", quoted(opt.ArtifactsDir), ErrRefused)
		}
		if _, err := s.outside(opt.ArtifactsDir); err != nil {
			return PrepareResult{}, fmt.Errorf("artifacts: %w", err)
		}
	}
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
		_, err := os.Stat(dir) // a link to nothing
		return res, err
	}
	res.RestoreResult, err = s.Restore(ctx, res.Head, RestoreOptions{Dir: opt.Workspace})
	var unfinished *restore.UnfinishedError
	switch {
	case errors.Is(err, restore.ErrNotEmpty):
		return res, nil
	case errors.As(err, &unfinished) && unfinished.Living: // and over soon
		return res, WithHint(fmt.Errorf("%w: %w", err, ErrBusy), "--wait 2m waits until that is over")
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

// compile makes ready what decides about files and their contents.
func (opt SaveOptions) compile() (files *policy.Files, screen capture.Screen, err error) {
	if files, err = policy.CompileFiles(opt.Files); err == nil {
		screen, err = opt.Secrets.screen(opt.Settings.Secrets)
	}
	return files, screen, err
}

// rules are those in force, as they are recorded.
func (opt SaveOptions) rules(files *policy.Files) policy.Recorded {
	rules := files.Record(opt.Settings)
	rules.Allowed, rules.Redacted = opt.Secrets.Allowed, opt.Secrets.Sources
	return rules
}

// check refuses texts that no record can have, and those with declared secrets where these
// cannot be overwritten.
func (opt SaveOptions) check(rules policy.Recorded) error {
	declared := opt.Secrets.Declared
	err := refuse(declared, "thread id", opt.Thread, "run id", opt.Run, "id", opt.ID, "name", opt.Name, "policy", string(rules.Encode()))
	if err != nil {
		return err
	}
	labels := map[string]string{}
	for key, value := range opt.Labels {
		if err := refuse(declared, "label", key); err != nil {
			return err
		}
		labels[key] = declared.Mask(value)
	}
	rec := index.Record{
		ID: opt.ID, Thread: opt.Thread, Reason: index.Manual, Run: opt.Run, Message: declared.Mask(opt.Message), Labels: labels,
		Root: index.Root{Tree: cas.Hash{1}}, // there is one in the end
	}
	if rec.ID == "" {
		rec.ID = "not made yet"
	}
	return rec.Validate()
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
