package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/snapfs/snapfs/index"
)

// An entry of the journal has room for so much of artifacts, in bytes, and a lot more: what
// comes on top of names, ids and types is counted in full.
const (
	artifactsMost  = 512 << 10
	artifactExtras = 128
)

// arrivingArtifacts tells which artifacts a thread gets with each checkpoint that is sent:
// those that came to it with the checkpoint, and that it still has where it comes from. One
// that was removed where it goes stays removed.
type arrivingArtifacts struct {
	source *Store
	now    map[string]bool  // ids that the thread has where it comes from
	theirs map[string]bool  // and where it goes
	before map[string]bool  // that the checkpoint before held
	list   index.Blob       // that was read last
	held   []index.Artifact // what is in it
}

func (t *transfer) artifactsOf(ctx context.Context, thread string, last *listed) (*arrivingArtifacts, error) {
	g := &arrivingArtifacts{source: t.from, before: map[string]bool{}}
	var err error
	if g.now, err = artifactIDs(ctx, t.from, thread); err != nil || len(g.now) == 0 {
		return g, err
	}
	if g.theirs, err = artifactIDs(ctx, t.to, thread); err != nil || last == nil {
		return g, err
	}
	rec, err := t.from.Record(ctx, Checkpoint{ID: last.id, Record: last.record})
	if err == nil {
		err = g.read(ctx, rec)
	}
	if err != nil {
		return g, t.lacks(ctx, last.id, &sourceError{err})
	}
	g.gave(nil)
	return g, nil
}

func artifactIDs(ctx context.Context, s *Store, thread string) (map[string]bool, error) {
	list, err := s.holder.Artifacts(ctx, thread)
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return nil, err
	}
	ids := map[string]bool{}
	for _, a := range list {
		ids[a.ID] = true
	}
	return ids, nil
}

// read reads what a checkpoint holds.
func (g *arrivingArtifacts) read(ctx context.Context, rec index.Record) (err error) {
	if rec.Artifacts == g.list {
		return nil
	}
	g.held, err = readArtifacts(ctx, g.source.blobs, rec)
	g.list = rec.Artifacts
	if err != nil {
		g.list = index.Blob{}
	}
	return err
}

// with returns what the thread gets with a checkpoint.
func (g *arrivingArtifacts) with(ctx context.Context, rec index.Record) (gets []index.Artifact, err error) {
	if len(g.now) == 0 {
		return nil, nil
	}
	if err := g.read(ctx, rec); err != nil {
		return nil, err
	}
	for _, a := range g.held {
		if g.now[a.ID] && !g.before[a.ID] && !g.theirs[a.ID] {
			gets = append(gets, a)
		}
	}
	return gets, nil
}

// gave notes that the checkpoint whose list was read last is there, or will be.
func (g *arrivingArtifacts) gave(gets []index.Artifact) {
	g.before = map[string]bool{}
	for _, a := range g.held {
		g.before[a.ID] = true
	}
	for _, a := range gets {
		g.theirs[a.ID] = true
	}
}

// splitArtifacts tells what has to go before, so that the rest fits into one step.
func splitArtifacts(all []index.Artifact) (early, with []index.Artifact) {
	size := 0
	for i, a := range all {
		if size += len(a.ID) + len(a.Name) + len(a.MediaType) + artifactExtras; size > artifactsMost {
			return all[i:], all[:i]
		}
	}
	return nil, all
}

// loose sends those artifacts of a thread that no checkpoint of it holds.
func (t *transfer) loose(ctx context.Context, th sending) error {
	docs, err := t.from.holder.Artifacts(ctx, th.thread)
	if errors.Is(err, index.ErrThreadNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil || len(docs) == 0 {
		return err
	}
	theirs, err := artifactIDs(ctx, t.to, th.thread)
	if err != nil {
		return err
	}
	docs = slices.DeleteFunc(docs, func(a Artifact) bool { return theirs[a.ID] })
	looked := map[index.Blob]bool{}
	for i := len(th.all) - 1; i >= 0 && len(docs) > 0; i-- {
		cp := th.all[i]
		if !cp.ready {
			continue
		}
		rec, err := t.from.Record(ctx, Checkpoint{ID: cp.id, Record: cp.record})
		if err == nil && !looked[rec.Artifacts] {
			var held []index.Artifact
			held, err = readArtifacts(ctx, t.from.blobs, rec)
			looked[rec.Artifacts] = err == nil
			docs = slices.DeleteFunc(docs, func(a Artifact) bool {
				return slices.ContainsFunc(held, func(h index.Artifact) bool { return h.ID == a.ID })
			})
		}
		if err != nil {
			return t.lacks(ctx, cp.id, asSource(err))
		}
	}
	if len(docs) == 0 {
		return nil
	}
	artifacts, err := indexArtifacts(docs)
	if err != nil {
		return err
	}
	if err := t.open(ctx, th.thread); err != nil {
		return err
	}
	if err := t.all(ctx, func() error { return t.reach.artifacts(ctx, artifacts) }); err != nil {
		return fmt.Errorf("artifacts of thread %s: %w", quoted(th.thread), err)
	}
	if err := t.w.Flush(ctx); err != nil {
		return err
	}
	session, err := t.to.holder.Begin(ctx, BeginRequest{Thread: th.thread, PID: os.Getpid(), Beside: true})
	if err != nil {
		return err
	}
	defer session.Close()
	return t.give(ctx, session, docs)
}

// give gives a session's thread artifacts of which all was put and flushed.
func (t *transfer) give(ctx context.Context, session Session, docs []Artifact) error {
	for _, a := range docs {
		err := session.AddArtifact(ctx, a)
		if errors.Is(err, index.ErrDuplicateID) {
			continue // another transfer was faster
		}
		if err != nil {
			return err
		}
		t.res.Artifacts++
	}
	return nil
}
