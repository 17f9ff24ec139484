package snapshot

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// RepairRequest names the packs that were found damaged.
type RepairRequest struct {
	Packs []string `json:"packs"` // ids
}

func newRepairRequest(packs []cas.PackID) RepairRequest {
	req := RepairRequest{Packs: []string{}}
	for _, id := range packs {
		req.Packs = append(req.Packs, id.String())
	}
	return req
}

// RepairResult is what a repair did.
type RepairResult struct {
	Dir      string `json:"dir"`      // where the damaged packs lie now
	Moved    int    `json:"moved"`    // packs
	Copied   int    `json:"copied"`   // objects that could be read
	Lost     int    `json:"lost"`     // objects that could not
	Restored int    `json:"restored"` // records of checkpoints that the index still had
}

// Add counts what another repair did.
func (r *RepairResult) Add(other RepairResult) {
	r.Dir = other.Dir
	r.Moved, r.Copied = r.Moved+other.Moved, r.Copied+other.Copied
	r.Lost, r.Restored = r.Lost+other.Lost, r.Restored+other.Restored
}

// Repair moves damaged packs to damaged/, so that the rest works. For each of
// them: what the index places there and can be read is copied into a new pack; the
// copies count; what cannot be read, the index forgets; the pack goes out of the
// way. What lies in packs that are gone is forgotten, too. A checkpoint's record is
// written anew from the index, which has its bytes.
//
// After each of these steps the store is whole but for what was lost before, so it
// may be broken off anywhere and begun again. Beside it go on:
//
//   - Collections: no, they wait (collecting).
//   - Readers: the copies are durable and known before the pack is moved. Who finds
//     it gone asks the index anew; who has it open reads on.
//   - Saves that asked before whether they may rely on an object that is lost: it
//     was damaged by then, and the checkpoint would have been, too. The next save
//     puts it: the object is nowhere, and what the workspace's last save found (see
//     [knownFor]) is no good once a pack was moved.
//   - Saves that put a lost object anew: their place stays, since only what still
//     lies in the damaged pack is forgotten, under the lock that they take to tell
//     their places (places).
func (h *localHolder) Repair(ctx context.Context, req RepairRequest) (RepairResult, error) {
	var res RepairResult
	if h.packs == nil {
		return res, nil
	}
	h.collecting.Lock()
	defer h.collecting.Unlock()
	problems, err := h.Check(ctx)
	if err != nil {
		return res, fmt.Errorf("repair: check the index: %w", err)
	}
	if len(problems) > 0 {
		return res, fmt.Errorf("repair: nothing is moved while the index is wrong: %s: %w", problems[0], index.ErrCorrupt)
	}
	r := repairer{h: h, ctx: ctx, said: map[cas.PackID][]cas.Located{}, gone: map[cas.PackID]bool{}, res: &res}
	res.Dir = filepath.Join(h.dir, local.DamagedDir)
	var ids []cas.PackID
	for _, name := range req.Packs {
		id, err := cas.ParsePackID(name)
		if err != nil {
			return res, fmt.Errorf("repair: %w: %w", err, index.ErrInvalid)
		}
		if _, twice := r.said[id]; !twice {
			r.said[id], ids = nil, append(ids, id)
		}
	}
	if err := r.gather(); err != nil {
		return res, fmt.Errorf("repair: %w", err)
	}
	for _, id := range ids {
		if err := r.pack(id); err != nil {
			return res, fmt.Errorf("repair pack %s: %w", id, err)
		}
	}
	if err := r.replace(nil, r.missing); err != nil {
		return res, fmt.Errorf("repair: %w", err)
	}
	return res, nil
}

type repairer struct {
	h       *localHolder
	ctx     context.Context
	said    map[cas.PackID][]cas.Located // what the index places in the packs
	gone    map[cas.PackID]bool          // packs that were looked for
	missing []cas.Located                // what it places in packs that are gone
	res     *RepairResult
}

// gather asks the index what lies in the packs.
func (r *repairer) gather() error {
	for o, err := range r.h.index.Locations(r.ctx) {
		if err != nil {
			return err
		}
		id := o.Location.Pack
		if _, ok := r.said[id]; ok {
			r.said[id] = append(r.said[id], o)
			continue
		}
		gone, ok := r.gone[id]
		if !ok {
			_, err := local.PackSize(r.h.dir, id)
			gone = errors.Is(err, iofs.ErrNotExist)
			r.gone[id] = gone
		}
		if gone {
			r.missing = append(r.missing, o)
		}
	}
	return nil
}

// pack sets one pack aside, if anything is wrong with it.
func (r *repairer) pack(id cas.PackID) error {
	said := r.said[id]
	report, err := local.VerifyPack(r.ctx, r.h.dir, id, said...)
	if errors.Is(err, iofs.ErrNotExist) {
		r.missing = append(r.missing, said...)
		return nil
	}
	if err != nil || len(report.Problems) == 0 {
		return err
	}
	whole := make(map[cas.Located]bool, len(report.Whole))
	for _, o := range report.Whole {
		whole[o] = true
	}
	var live, lost []cas.Located
	for _, o := range said {
		if whole[o] {
			live = append(live, o)
		} else {
			lost = append(lost, o)
		}
	}
	if err := r.replace(live, lost); err != nil {
		return err
	}
	if err := r.h.at("dropped"); err != nil {
		return err
	}
	if err := r.h.packs.SetAside(id); err != nil {
		return err
	}
	r.res.Moved++
	r.h.log.Info("a damaged pack was set aside", "pack", id.String(), "copied", len(live), "lost", len(lost))
	return nil
}

// replace gives objects that can be read other places, and has those forgotten that
// cannot.
func (r *repairer) replace(live, lost []cas.Located) error {
	records, err := r.h.recordsOf(r.ctx, lost)
	if err != nil {
		return err
	}
	for first := true; first && len(records) > 0 || len(live) > 0; first = false {
		group, n, bytes := live, 0, int64(0)
		if first {
			for _, o := range records {
				bytes += local.RecordSize(cas.Location{Stored: uint32(len(o.Data))})
			}
		}
		for n < len(live) && bytes+local.RecordSize(live[n].Location) <= local.PackRoom {
			bytes += local.RecordSize(live[n].Location)
			n++
		}
		group, live = live[:n], live[n:]
		free, err := local.FreeSpace(r.h.dir)
		if err == nil && bytes > free-spare {
			err = fmt.Errorf("no room to copy %d bytes that can be read: %w", bytes, cas.ErrNoSpace)
		}
		if err != nil {
			return err
		}
		more := records
		if !first {
			more = nil
		}
		moved, err := r.h.packs.Rewrite(r.ctx, group, more...)
		if err == nil {
			err = r.h.at("copied")
		}
		if err == nil {
			err = r.h.index.MoveLocations(r.ctx, moved)
		}
		if err == nil {
			err = r.h.trustAgain(moved)
		}
		if err == nil {
			err = r.h.at("moved")
		}
		if err != nil {
			return err
		}
		r.res.Copied, r.res.Restored = r.res.Copied+len(group), r.res.Restored+len(more)
	}
	n, err := r.h.forget(r.ctx, lost)
	r.res.Lost += n
	return err
}

// forget drops the places of objects that are lost, unless they have others now.
func (h *localHolder) forget(ctx context.Context, lost []cas.Located) (int, error) {
	if len(lost) == 0 {
		return 0, nil
	}
	keys := make([]cas.Key, len(lost))
	for i, o := range lost {
		keys[i] = o.Key
	}
	h.places.Lock()
	defer h.places.Unlock()
	at, err := h.index.Locate(ctx, keys)
	if err != nil {
		return 0, err
	}
	var dropped []cas.Located
	var gone []cas.Key
	for i, o := range lost {
		if at[i] == o.Location {
			dropped, gone = append(dropped, o), append(gone, o.Key)
		}
	}
	if err := h.index.DropLocations(ctx, gone); err != nil {
		return 0, err
	}
	h.mu.Lock()
	for _, key := range gone {
		delete(h.condemned, key)
	}
	h.mu.Unlock()
	return len(gone), h.trustAgain(dropped) // what is nowhere needs no distrust
}

// recordsOf returns the records among lost objects, from the index.
func (h *localHolder) recordsOf(ctx context.Context, lost []cas.Located) ([]cas.Object, error) {
	want := map[cas.Hash]bool{}
	for _, o := range lost {
		if o.Key.NS == cas.Records {
			want[o.Key.Hash] = true
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	orgs, err := h.index.Organizations(ctx)
	if err != nil {
		return nil, err
	}
	var found []cas.Object
	for _, org := range orgs {
		for t, err := range h.index.Threads(ctx, org, index.Page{}) {
			if err != nil {
				return nil, err
			}
			for cp, err := range h.index.Checkpoints(ctx, org, t.ID, index.Page{}) {
				if err != nil {
					return nil, err
				}
				if !want[cp.RecordHash] {
					continue
				}
				data, err := index.Encode(cp.Record)
				if err != nil {
					continue // it never was one
				}
				if obj := cas.NewObject(cas.Records, cas.Data, data); obj.Key.Hash == cp.RecordHash {
					found = append(found, obj)
					delete(want, cp.RecordHash)
				}
			}
		}
	}
	return found, nil
}

// at is called between the steps of a repair; a test may end it there.
func (h *localHolder) at(step string) error {
	if h.steps == nil {
		return nil
	}
	return h.steps(step)
}
