package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/badger"
	"github.com/snapfs/snapfs/index/journal"
)

// repairFile keeps, in the store, what a repair has still to do.
const repairFile = "repair.json"

// knownState is what an index says of all that can change.
type knownState struct {
	Applied     uint64                      // the last entry of the journal in it
	Checkpoints map[string]knownCheckpoint  // by id
	Artifacts   map[string][]index.Artifact // by thread: every thread is here
}

type knownCheckpoint struct {
	Thread, Name, Parent string
	Record               string // hash
	Seq                  uint64 // of the journal's entry that published it
	Created              int64  // Unix time in ns
	Received             index.Received
}

// pendingKnown is what a repair that was interrupted knew; nil: there was none.
func pendingKnown(h *localHolder) (*knownState, error) {
	path := filepath.Join(h.dir, repairFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	var k knownState
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil {
		return nil, WithHint(fmt.Errorf("%s: %w: %w", repairFile, err, cas.ErrCorrupt), "delete %s: what only it knows is lost then", quoted(path))
	}
	return &k, nil
}

// refusePending fails while there is a repair to be ended.
func refusePending(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, repairFile)); errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return WithHint(fmt.Errorf("open store %s: a repair of it was interrupted: %w", quoted(dir), index.ErrCorrupt), "end it with snapfs repair --reindex")
}

// keep notes what is known for a repair that is interrupted.
func (k *knownState) keep(h *localHolder) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return writeFile(h.fsys, h.dir, filepath.Join(h.dir, repairFile), data)
}

// forget ends a repair.
func (k *knownState) forget(h *localHolder) error {
	if err := h.fsys.Remove(filepath.Join(h.dir, repairFile)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return h.fsys.SyncDir(h.dir)
}

// fill tells which checkpoints were published in a gap.
func (k *knownState) fill(g journal.Gap, kept []journal.Entry) (entries []journal.Entry) {
	published := publishedIn(kept)
	ids := slices.SortedFunc(maps.Keys(k.Checkpoints), func(a, b string) int {
		return cmp.Compare(k.Checkpoints[a].Seq, k.Checkpoints[b].Seq)
	})
	for _, id := range ids {
		cp := k.Checkpoints[id]
		hash, err := cas.ParseHash(cp.Record)
		if err != nil || published[id] || cp.Seq < g.First || cp.Seq > g.Last {
			continue
		}
		entries = append(entries, publishAgain(id, cp.Thread, cp.Parent, hash, cp.Created, cp.Received))
	}
	return entries
}

// lastKnown is the state by the index that there is, if that can be trusted; else nil.
// Its error says that it could not be looked at just now: then nothing may be changed.
func lastKnown(ctx context.Context, h *localHolder) (_ *knownState, err error) {
	ix, err := badger.Open(ctx, filepath.Join(h.dir, indexDir), badger.Options{Tables: true, Logger: h.log, FS: h.fsys, BootID: h.bootID})
	if errors.Is(err, index.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer ix.Close()
	problems, err := collect(ix.Check(ctx), func(s string) string { return s })
	if len(problems) > 0 || errors.Is(err, index.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := readState(ctx, ix)
	if err != nil {
		return nil, err
	}
	k.Applied = ix.Applied()
	return k, nil
}

// readState reads everything that can change.
func readState(ctx context.Context, ix index.Index) (*knownState, error) {
	k := &knownState{Checkpoints: map[string]knownCheckpoint{}, Artifacts: map[string][]index.Artifact{}}
	threads, err := collect(ix.Threads(ctx, defaultOrg, index.Page{}), newThread)
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		if k.Artifacts[t.ID], err = ix.Artifacts(ctx, defaultOrg, t.ID); err != nil {
			return nil, err
		}
		for cp, err := range ix.Checkpoints(ctx, defaultOrg, t.ID, index.Page{}) {
			if err != nil {
				return nil, err
			}
			k.Checkpoints[cp.ID] = knownCheckpoint{
				Thread: t.ID, Name: cp.Name, Parent: cp.Parent, Record: cp.RecordHash.String(), Seq: cp.Seq, Created: cp.Created, Received: cp.Received,
			}
		}
	}
	return k, nil
}

// restore makes everything as it is known, by changes like any others. What cannot be
// is reported.
func (k *knownState) restore(ctx context.Context, h *localHolder, report func(string) error) error {
	now, err := readState(ctx, h.index)
	if err != nil {
		return err
	}
	changed := 0
	do := func(err error) error {
		if err == nil {
			changed++
		}
		return err
	}
	for _, thread := range slices.Sorted(maps.Keys(now.Artifacts)) {
		if _, ok := k.Artifacts[thread]; !ok {
			if err := do(h.index.DeleteThread(ctx, defaultOrg, thread)); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now.Checkpoints)) {
		cp := now.Checkpoints[id]
		was, ok := k.Checkpoints[id]
		var err error
		if _, thread := k.Artifacts[cp.Thread]; !thread {
			continue
		}
		if !ok {
			_, _, err = h.index.Delete(ctx, defaultOrg, id)
			err = do(err)
		} else if cp.Name != was.Name && was.Name == "" {
			_, err = h.index.Rename(ctx, defaultOrg, id, "")
			err = do(err)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.Checkpoints)) {
		was := k.Checkpoints[id]
		cp, ok := now.Checkpoints[id]
		if !ok {
			if err := report(fmt.Sprintf("checkpoint %s of thread %s is lost: its record is not in the packs", quoted(id), quoted(was.Thread))); err != nil {
				return err
			}
		} else if cp.Name != was.Name && was.Name != "" {
			if _, err := h.index.Rename(ctx, defaultOrg, id, was.Name); do(err) != nil {
				return err
			}
		}
	}
	for _, thread := range slices.Sorted(maps.Keys(k.Artifacts)) {
		if err := k.artifactsOf(ctx, h, thread, now.Artifacts[thread], do); err != nil {
			return err
		}
	}
	if changed > 0 {
		return report(fmt.Sprintf("%d changes that the journal had lost were known to the old index and are there again", changed))
	}
	return nil
}

// artifactsOf makes a thread's artifacts those that are known.
func (k *knownState) artifactsOf(ctx context.Context, h *localHolder, thread string, now []index.Artifact, do func(error) error) error {
	for _, a := range now {
		if !slices.Contains(k.Artifacts[thread], a) {
			if err := do(h.index.RemoveArtifact(ctx, defaultOrg, thread, a.ID)); err != nil && !errors.Is(err, index.ErrArtifactNotFound) {
				return err
			}
		}
	}
	for _, a := range k.Artifacts[thread] {
		if !slices.Contains(now, a) {
			if err := do(h.index.AddArtifact(ctx, defaultOrg, thread, a)); err != nil {
				return err
			}
		}
	}
	return nil
}
