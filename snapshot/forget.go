package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// ForgetOptions say what [Store.Forget] drops.
type ForgetOptions struct {
	Thread string            // one; empty: every one, each by itself
	Labels map[string]string // only checkpoints with all of these are looked at; the others stay and do not count
	Rules  policy.Retention  // what stays; there must be one
	DryRun bool              // only tell
}

// ForgetResult is what was looked at and what became of it.
type ForgetResult struct {
	Threads int          // that were looked at
	Kept    int          // checkpoints that stay
	Dropped []Checkpoint // as they were, thread by thread, newest first
	Failed  []ForgetFailure
}

// ForgetFailure is what could not be dropped, or not whole.
type ForgetFailure struct {
	Thread      string
	Checkpoints []string // ids; none: the thread could not be listed
	Err         error
}

// Forget deletes the checkpoints that no rule keeps. What has a name and heads stay, also
// if that became so meanwhile. What cannot be deleted does not keep it from the rest.
// Interrupted it returns what it did so far.
func (s *Store) Forget(ctx context.Context, opt ForgetOptions) (ForgetResult, error) {
	var res ForgetResult
	if err := opt.Rules.Validate(); err != nil {
		return res, fmt.Errorf("forget: %w", err)
	}
	ids := []string{opt.Thread}
	if opt.Thread == "" {
		threads, err := s.Threads(ctx, Page{})
		if err != nil {
			return res, fmt.Errorf("forget: %w", err)
		}
		ids = ids[:0]
		for _, t := range threads {
			ids = append(ids, t.ID)
		}
	}
	for _, thread := range ids {
		err := s.forgetIn(ctx, thread, opt, &res)
		switch {
		case err == nil:
			res.Threads++
		case ctx.Err() != nil:
			return res, fmt.Errorf("forget: %w", context.Cause(ctx))
		case opt.Thread != "":
			return res, fmt.Errorf("forget: %w", err)
		case errors.Is(err, index.ErrThreadNotFound): // deleted meanwhile
		default:
			res.Failed = append(res.Failed, ForgetFailure{Thread: thread, Err: err})
		}
	}
	return res, nil
}

// forgetIn is Forget in one thread.
func (s *Store) forgetIn(ctx context.Context, thread string, opt ForgetOptions, res *ForgetResult) error {
	listed, err := s.Checkpoints(ctx, thread, Page{})
	if err != nil {
		return err
	}
	stays, drops := retain(listed, opt)
	if opt.DryRun {
		res.Kept, res.Dropped = res.Kept+stays, append(res.Dropped, drops...)
		return nil
	}
	res.Kept += stays
	for some := range slices.Chunk(drops, index.MaxForget) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.forgetSome(ctx, thread, some, res); err != nil {
			return err
		}
	}
	return nil
}

// retain divides a thread's checkpoints: how many of those that are looked at stay, and
// which do not.
func retain(listed []Checkpoint, opt ForgetOptions) (stays int, drops []Checkpoint) {
	head := slices.IndexFunc(listed, func(cp Checkpoint) bool { return cp.Status == string(index.Ready) })
	var looked []Checkpoint
	var versions []policy.Version
	for i, cp := range listed {
		if cp.Status == string(index.Ready) && cp.Labelled(opt.Labels) {
			looked = append(looked, cp)
			versions = append(versions, policy.Version{Created: cp.Created, Named: cp.Name != "", Head: i == head})
		}
	}
	for i, keep := range opt.Rules.Keep(versions) {
		if keep {
			stays++
		} else {
			drops = append(drops, looked[i])
		}
	}
	return stays, drops
}

// forgetSome drops at most [index.MaxForget] checkpoints.
func (s *Store) forgetSome(ctx context.Context, thread string, some []Checkpoint, res *ForgetResult) error {
	req := ForgetSome{Thread: thread}
	for _, cp := range some {
		req.Checkpoints = append(req.Checkpoints, cp.ID)
	}
	got, err := s.holder.Forget(ctx, req)
	if errors.Is(err, index.ErrThreadNotFound) || err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		res.Failed = append(res.Failed, ForgetFailure{thread, req.Checkpoints, err})
		return nil
	}
	if len(got.Failed) > 0 {
		res.Failed = append(res.Failed, ForgetFailure{thread, got.Failed, errors.New(got.Reason)})
	}
	for _, cp := range some {
		if slices.Contains(got.Deleted, cp.ID) {
			res.Dropped = append(res.Dropped, cp)
		} else if !slices.Contains(got.Failed, cp.ID) {
			if now, err := s.Resolve(ctx, cp.ID); err == nil && now.ID == cp.ID {
				res.Kept++ // it has got a name, or is the head by now
			}
		}
	}
	return nil
}
