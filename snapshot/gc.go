package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
)

// GCRequest asks for a collection.
type GCRequest struct {
	DryRun bool `json:"dryRun,omitempty"` // only count
	// Purge leaves no byte of what was deleted, at whatever cost. What has to wait is
	// asked for until it is done; [Store.RequestPurge] asks the same of the next
	// collection.
	Purge bool `json:"purge,omitempty"`
}

// GCResult is what a collection found and did.
type GCResult struct {
	Objects   int   `json:"objects"`   // that nothing refers to
	Bytes     int64 `json:"bytes"`     // what they take in packs
	Freed     int64 `json:"freed"`     // bytes by which the packs became less
	Removed   int   `json:"removed"`   // packs deleted whole
	Rewritten int   `json:"rewritten"` // packs whose rest moved to others
	Waiting   int   `json:"waiting"`   // saves under way that kept it from freeing all: run it again later
	// Purged: it left nothing of what was deleted, as it was asked to.
	Purged bool `json:"purged,omitempty"`
	// Left tells why it did leave something: the request stays.
	Left []string `json:"left,omitempty"`
	// Aside are files of the store that may have some of what was deleted, and that no
	// collection touches: packs and journals that were damaged, a daemon's log. They are
	// told of when a purge was asked for.
	Aside []string `json:"aside,omitempty"`
}

// A pack is rewritten when more than a deadShare of its bytes is dead, or, with
// others alike, when it is smaller than smallPack.
const (
	deadShare = 0.12
	smallPack = 8 << 20
)

// GC frees what nothing refers to. First it marks what every checkpoint needs.
// What was not reached is condemned: readable, but a save puts it anew instead
// of relying on it. Saves that began before that may rely on it still: what they
// may rely on is left to the next collection. Then it marks once more what was
// published meanwhile, and sweeps the rest: dead packs are deleted, half-dead and
// small ones rewritten, each new pack in place and known before an old one goes.
// A missing object ends it before anything is freed, and so does a damaged index:
// what it no longer names would be taken for dead.
func (h *localHolder) GC(ctx context.Context, req GCRequest) (GCResult, error) {
	h.collecting.Lock()
	defer h.collecting.Unlock()
	if h.packs == nil {
		return h.gcMemory(ctx, req)
	}
	problems, err := h.Check(ctx)
	if err != nil {
		return GCResult{}, fmt.Errorf("gc: check the index: %w", err)
	}
	if len(problems) > 0 {
		err := fmt.Errorf("gc: nothing is freed while the index is wrong: %s: %w", problems[0], index.ErrCorrupt)
		return GCResult{}, WithHint(err, "snapfs repair --reindex makes it anew")
	}
	purge, err := h.newPurge(ctx, req)
	if err != nil {
		return GCResult{}, fmt.Errorf("gc: %w", err)
	}
	if !req.DryRun {
		if err := local.SweepAll(h.fsys, h.dir); err != nil {
			return GCResult{}, err
		}
	}
	m := newMarker(h, progress.From(ctx))
	if err := m.all(ctx); err != nil {
		return GCResult{}, fmt.Errorf("gc: mark: %w", err)
	}
	var packs []cas.PackID
	for id, err := range local.Packs(h.dir) {
		if err != nil {
			return GCResult{}, fmt.Errorf("gc: %w", err)
		}
		packs = append(packs, id)
	}
	var res GCResult
	dead := map[cas.Key]struct{}{}
	for o, err := range h.index.Locations(ctx) {
		if err != nil {
			return GCResult{}, fmt.Errorf("gc: %w", err)
		}
		if _, ok := m.seen[o.Key]; !ok {
			dead[o.Key] = struct{}{}
			res.Objects++
			res.Bytes += local.RecordSize(o.Location)
		}
	}
	if req.DryRun {
		return res, nil
	}
	sw := &sweeper{h: h, res: &res, purge: purge}
	sw.before, res.Waiting = h.condemn(dead)
	if err := m.all(ctx); err != nil {
		return res, fmt.Errorf("gc: mark again: %w", err)
	}
	h.pardon(m.seen)
	if err := purge.pinned(ctx); err != nil {
		return res, fmt.Errorf("gc: %w", err)
	}
	if err := errors.Join(sw.run(ctx, packs), sw.stuck()); err != nil {
		return res, fmt.Errorf("gc: sweep: %w", err)
	}
	if err := purge.end(ctx, &res); err != nil {
		return res, fmt.Errorf("gc: %w", err)
	}
	return res, nil
}

// condemn makes objects unfit to rely on. What was condemned before the oldest
// save under way began may be swept: no save relies on it. It returns that
// bound, and how many saves kept objects from being swept.
func (h *localHolder) condemn(dead map[cas.Key]struct{}) (before uint64, waiting int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	condemned := make(map[cas.Key]uint64, len(dead))
	newest := uint64(0)
	for key := range dead {
		at, already := h.condemned[key]
		if !already {
			at = h.sessions
		}
		condemned[key] = at
		newest = max(newest, at)
	}
	h.condemned = condemned
	before = h.sessions + 1
	for s := range h.live {
		before = min(before, s.began)
		if len(dead) > 0 && s.began <= newest {
			waiting++
		}
	}
	return before, waiting
}

// pardon takes what is needed after all from the condemned.
func (h *localHolder) pardon(reached map[cas.Key]struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.condemned, func(key cas.Key, _ uint64) bool {
		_, ok := reached[key]
		return ok
	})
}

// isCondemned reports, key by key, whether the object was condemned when fewer
// than before saves had begun.
func (h *localHolder) isCondemned(keys []cas.Key, before uint64) []bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]bool, len(keys))
	for i, k := range keys {
		at, ok := h.condemned[k]
		out[i] = ok && at < before
	}
	return out
}

// adopt takes over a save's pack and enters it into the index: a sweep sees both
// done or none.
func (h *localHolder) adopt(ctx context.Context, id cas.PackID) error {
	h.places.Lock()
	defer h.places.Unlock()
	if h.limit > 0 {
		size, err := local.UnfinishedSize(h.dir, id)
		if err == nil {
			err = h.checkLimit(size)
		}
		if err != nil {
			return err
		}
	}
	objects, err := h.packs.Adopt(id)
	if err != nil {
		return err
	}
	// A save puts what it could not rely on: condemned and damaged objects, and
	// those whose pack is lost. From now on the new place counts.
	h.mu.Lock()
	for _, o := range objects {
		delete(h.condemned, o.Key)
	}
	h.mu.Unlock()
	if err := h.index.MoveLocations(ctx, objects); err != nil {
		return err
	}
	return h.trustAgain(objects)
}

// sweeper frees packs.
type sweeper struct {
	h      *localHolder
	res    *GCResult
	before uint64 // what was condemned by then goes
	group  []worn // to be rewritten together
	bytes  int64  // of the group's live records
	later  []worn // for which there was no room
	purge  *purge // nil: some of what is dead may stay
	// damaged tells which packs stay, since something in them cannot be read.
	damaged []error
}

// worn is a pack and what is left of it.
type worn struct {
	id   cas.PackID
	size int64
	live []cas.Located
	dead []cas.Key // whose place is still in this pack
}

func (s *sweeper) run(ctx context.Context, packs []cas.PackID) error {
	var small []worn
	meter := progress.From(ctx)
	if _, bytes, err := local.Size(s.h.dir); err == nil {
		meter.Expect(0, bytes)
	}
	for _, id := range packs {
		if err := ctx.Err(); err != nil {
			return err
		}
		w, bytes, err := s.look(ctx, id)
		if errors.Is(err, cas.ErrCorrupt) {
			s.h.log.Error("gc leaves a damaged pack alone", "pack", id.String(), "error", err)
			s.purge.keep("pack %s is damaged: snapfs verify --repair sets it aside", id)
			continue
		}
		if err != nil {
			return err
		}
		meter.Add(0, w.size)
		switch {
		case len(w.live) == 0:
			if err := s.remove(ctx, w); err != nil {
				return err
			}
			s.res.Removed++
		case s.purge != nil && w.size > local.WholeSize(bytes),
			float64(w.size-bytes) > deadShare*float64(w.size) && w.size-bytes > 4096:
			if err := s.add(ctx, w, bytes); err != nil {
				return err
			}
		case w.size < smallPack:
			small = append(small, w)
		}
	}
	// Small ones are merged for order's sake, and only while there is room.
	if len(small)+len(s.group) > 1 && local.CheckSpace(s.h.dir) == nil {
		for _, w := range small {
			if err := s.add(ctx, w, recordBytes(w.live)); err != nil {
				return err
			}
		}
	}
	// As long as some go, there may be room for others.
	for err := s.flush(ctx); ; err = s.flush(ctx) {
		if err != nil || len(s.later) == 0 {
			return err
		}
		before, again := s.res.Rewritten, s.later
		s.later = nil
		for _, w := range again {
			if err := s.add(ctx, w, recordBytes(w.live)); err != nil {
				return err
			}
		}
		if len(s.group) == 0 && s.res.Rewritten == before {
			return s.noRoom()
		}
	}
}

// noRoom ends a collection that cannot rewrite what is left. It is no failure if
// it freed something.
func (s *sweeper) noRoom() error {
	s.purge.keep("there is no room to rewrite %d packs", len(s.later))
	if s.res.Freed > 0 {
		s.h.log.Warn("gc: no room to rewrite all packs: run it again when there is more", "packs", len(s.later))
		return nil
	}
	least := int64(local.PackRoom)
	for _, w := range s.later {
		least = min(least, recordBytes(w.live))
	}
	err := fmt.Errorf("no room to rewrite %d packs: %w", len(s.later), cas.ErrNoSpace)
	return WithHint(err, "what is alive in one of them is copied before the pack goes: make room for %d bytes more", least)
}

func recordBytes(objects []cas.Located) (n int64) {
	for _, o := range objects {
		n += local.RecordSize(o.Location)
	}
	return n
}

// look sorts a pack's records into those that count and the others.
func (s *sweeper) look(ctx context.Context, id cas.PackID) (w worn, live int64, err error) {
	w.id = id
	if w.size, err = local.PackSize(s.h.dir, id); err != nil {
		return w, 0, err
	}
	objects, err := local.ReadFooter(s.h.dir, id) // what a search finds may not be all that is needed
	if err != nil {
		return w, 0, err
	}
	keys := make([]cas.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	s.h.places.Lock()
	defer s.h.places.Unlock()
	at, err := s.h.index.Locate(ctx, keys)
	if err != nil {
		return w, 0, err
	}
	condemned := s.h.isCondemned(keys, s.before)
	for i, o := range objects {
		switch {
		case at[i] != o.Location: // another copy counts, or none
		case condemned[i]:
			w.dead = append(w.dead, o.Key)
		default:
			w.live = append(w.live, o)
			live += local.RecordSize(o.Location)
		}
	}
	return w, live, nil
}

// add puts a pack into the group that is rewritten together. The group is as large
// as one new pack may be, or as there is room for; a pack for which there is none
// is left for later, when others have gone.
func (s *sweeper) add(ctx context.Context, w worn, bytes int64) error {
	room, err := s.room()
	if err == nil && s.bytes+bytes > room && len(s.group) > 0 {
		if err = s.flush(ctx); err == nil {
			room, err = s.room()
		}
	}
	if err != nil {
		return err
	}
	if bytes > room {
		s.later = append(s.later, w)
		return nil
	}
	s.group, s.bytes = append(s.group, w), s.bytes+bytes
	return nil
}

// spare is what a rewrite leaves free for the index and the journal, in bytes.
const spare = 1 << 20

// room is how many bytes of records can be rewritten at once.
func (s *sweeper) room() (int64, error) {
	free, err := local.FreeSpace(s.h.dir)
	return min(local.PackRoom, max(0, free-spare)), err
}

// flush rewrites the group: the new pack, then the places, then the old packs go.
func (s *sweeper) flush(ctx context.Context) error {
	group := s.group
	s.group, s.bytes = nil, 0
	if len(group) == 0 {
		return nil
	}
	var live []cas.Located
	for _, w := range group {
		live = append(live, w.live...)
	}
	moved, err := s.h.packs.Rewrite(ctx, live)
	if errors.Is(err, cas.ErrCorrupt) {
		return s.oneByOne(ctx, group, err)
	}
	if err != nil {
		return err
	}
	if err := s.h.index.MoveLocations(ctx, moved); err != nil {
		return err
	}
	size, err := local.PackSize(s.h.dir, moved[0].Location.Pack)
	if err != nil {
		return err
	}
	s.res.Freed -= size
	for _, w := range group {
		if err := s.remove(ctx, w); err != nil {
			return err
		}
		s.res.Rewritten++
	}
	return nil
}

// oneByOne rewrites the packs of a group in which something is damaged, but for that pack.
func (s *sweeper) oneByOne(ctx context.Context, group []worn, err error) error {
	if len(group) == 1 {
		s.damaged = append(s.damaged, fmt.Errorf("pack %s: %w", group[0].id, err))
		s.purge.keep("pack %s is damaged: snapfs verify --repair sets it aside", group[0].id)
		return nil
	}
	for _, w := range group {
		s.group, s.bytes = []worn{w}, recordBytes(w.live)
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stuck tells of packs that could not be rewritten; all else was freed.
func (s *sweeper) stuck() error {
	if len(s.damaged) == 0 {
		return nil
	}
	err := fmt.Errorf("all was freed but what is in packs with damaged objects, of which there are %d: %w", len(s.damaged), s.damaged[0])
	return WithHint(err, "snapfs verify --data names what is lost, and with --repair it sets such packs aside")
}

// remove deletes a pack in which nothing counts any more.
func (s *sweeper) remove(ctx context.Context, w worn) error {
	s.h.places.Lock()
	defer s.h.places.Unlock()
	// A save may have put a condemned object anew meanwhile.
	at, err := s.h.index.Locate(ctx, w.dead)
	if err != nil {
		return err
	}
	gone := slices.Clone(w.dead)[:0]
	for i, key := range w.dead {
		if at[i].Pack == w.id {
			gone = append(gone, key)
		}
	}
	if err := s.h.index.DropLocations(ctx, gone); err != nil {
		return err
	}
	s.h.mu.Lock()
	for _, key := range gone {
		delete(s.h.condemned, key)
	}
	s.h.mu.Unlock()
	if err := s.h.packs.RemovePack(w.id); err != nil {
		return err
	}
	s.res.Freed += w.size
	return nil
}
