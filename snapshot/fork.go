package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// ForkOptions of [Store.Fork].
type ForkOptions struct {
	Thread string // the new thread
	ID     string // of its first checkpoint; empty: made from the time
	Lease  string // token of the caller's lease of the new thread; empty: it has none
}

// Fork starts a new thread with the content of a checkpoint and returns its
// first checkpoint. It costs one small record, whatever the content's size, and
// another list of secrets if there were some in the message or the labels, which a fork
// does not have. It fails with [ErrThreadNotEmpty] when the thread has checkpoints, and
// with [index.ErrWriterConflict] and [index.ErrWriterLost] as a save does.
func (s *Store) Fork(ctx context.Context, ref string, opt ForkOptions) (Checkpoint, error) {
	if opt.Thread == "" {
		return Checkpoint{}, fmt.Errorf("fork: the new thread has no id: %w", index.ErrInvalid)
	}
	// The session comes first: what it finds afterwards stays in the store.
	session, err := s.holder.Begin(ctx, BeginRequest{Thread: opt.Thread, ID: opt.ID, PID: os.Getpid(), Empty: true, Lease: opt.Lease})
	if errors.Is(err, index.ErrWriterConflict) {
		err = WithHint(err, "--lease TOKEN if it is yours, or another thread; snapfs lease show %s tells whose it is", quoted(opt.Thread))
	}
	if err != nil {
		return Checkpoint{}, lostHint(err, opt.Thread)
	}
	defer session.Close()
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return Checkpoint{}, err
	}
	w, end, err := s.newWriter(ctx, session, local.Auto)
	if err != nil {
		return Checkpoint{}, err
	}
	defer end()
	artifacts, err := readArtifacts(ctx, s.blobs, rec)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	if err := s.ownSecretsOut(ctx, w, &rec); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	now := s.now()
	rec.ID, rec.Thread, rec.Parent = opt.ID, opt.Thread, ""
	if rec.ID == "" {
		rec.ID = newID(now)
	}
	rec.Origin = &index.Origin{Thread: cp.Thread, Checkpoint: cp.ID}
	rec.Reason, rec.Run, rec.Message, rec.Labels = index.Forked, "", "", nil
	rec.Creator, rec.Created = creator(), now.UnixNano()
	made, err := publish(ctx, session, w, rec, PublishRequest{Artifacts: newArtifacts(artifacts)})
	if errors.Is(err, index.ErrStaleHead) {
		return Checkpoint{}, fmt.Errorf("thread %s: %w", quoted(opt.Thread), ErrThreadNotEmpty)
	}
	return made, err
}

// ownSecretsOut takes what was found in a record's own texts out of its list of secrets.
// Only who has such texts, or is a fork of who had, can have that in it.
func (s *Store) ownSecretsOut(ctx context.Context, w cas.Writer, rec *index.Record) error {
	if rec.Secrets.IsZero() || rec.Message == "" && len(rec.Labels) == 0 && rec.Origin == nil {
		return nil
	}
	list, err := s.secrets(ctx, *rec)
	if err != nil {
		return err
	}
	own := func(f FoundSecrets) bool { return f.Place == InRecord }
	if !slices.ContainsFunc(list, own) {
		return nil
	}
	found := secretsFound{list: slices.DeleteFunc(list, own)}
	rec.Secrets = index.Blob{}
	return found.putList(ctx, w, rec)
}
