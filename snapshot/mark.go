package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/tree"
)

// A marker follows everything that checkpoints need. It may be asked again for
// what was published since; what it followed once costs nothing then.
type marker struct {
	reach
	h *localHolder
	// newest is the number of the newest checkpoint that was followed, of each
	// thread, by organization and id: a thread may get one while the next is looked
	// at.
	newest map[[2]string]uint64
	meter  *progress.Meter
	sizes  map[cas.PackID]int64 // of packs that were looked at; 0: not there
}

func newMarker(h *localHolder, meter *progress.Meter) *marker {
	m := &marker{h: h, meter: meter, newest: map[[2]string]uint64{}, sizes: map[cas.PackID]int64{}}
	m.reach = reach{source: h.objects, seen: map[cas.Key]struct{}{}, found: m.there}
	return m
}

// all follows every checkpoint that is newer than those followed before, and
// every thread's artifacts. An object that is missing is an error: what it leads
// to would be taken for garbage.
func (m *marker) all(ctx context.Context) error {
	orgs, err := m.h.index.Organizations(ctx)
	if err != nil {
		return err
	}
	for _, org := range orgs {
		for t, err := range m.h.index.Threads(ctx, org, index.Page{}) {
			if err != nil {
				return err
			}
			thread := [2]string{org, t.ID}
			followed := m.newest[thread]
			for cp, err := range m.h.index.Checkpoints(ctx, org, t.ID, index.Page{}) {
				if errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
					break
				}
				if err != nil {
					return err
				}
				if cp.Seq <= followed {
					break // newest first
				}
				m.newest[thread] = max(m.newest[thread], cp.Seq)
				if err := m.checkpoint(ctx, cp); err != nil {
					return lacking(fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err), "snapfs delete "+tree.QuoteShell(cp.ID))
				}
			}
			artifacts, err := m.h.index.Artifacts(ctx, org, t.ID)
			if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
				return err
			}
			if err := m.artifacts(ctx, artifacts); err != nil {
				return lacking(fmt.Errorf("artifacts of thread %s: %w", quoted(t.ID), err), "snapfs artifact remove")
			}
		}
	}
	return pinned(ctx, m.h, &m.reach)
}

// lacking says what can be done where an object is missing.
func lacking(err error, remove string) error {
	if !errors.Is(err, cas.ErrNotFound) && !errors.Is(err, cas.ErrCorrupt) {
		return err
	}
	return WithHint(err, "snapfs verify --data names all that is lost: save the same content again, or give it up with %s", remove)
}

// checkpoint follows one checkpoint. One whose record is lost needs nothing that
// could be found.
func (m *marker) checkpoint(ctx context.Context, cp index.Checkpoint) error {
	if cp.Status != index.Ready {
		return nil
	}
	_, err := m.reach.checkpoint(ctx, cp.Record, cp.RecordHash)
	return err
}

// there fails when an object is missing that was not read.
func (m *marker) there(ctx context.Context, read bool, objs ...needed) error {
	m.meter.Add(int64(len(objs)), 0)
	if read {
		return nil
	}
	keys := make([]cas.Key, len(objs))
	for i, o := range objs {
		keys[i] = o.Key
	}
	has, err := m.has(ctx, keys)
	if err != nil {
		return err
	}
	for i, ok := range has {
		if !ok {
			return fmt.Errorf("%s: %w", keys[i], cas.ErrNotFound)
		}
	}
	return nil
}

// has reports, key by key, whether the object is there: known, and in a pack that
// is there and long enough.
func (m *marker) has(ctx context.Context, keys []cas.Key) ([]bool, error) {
	if m.h.packs == nil {
		return m.h.objects.Has(ctx, keys)
	}
	locs, err := m.h.index.Locate(ctx, keys)
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(keys))
	for i, l := range locs {
		has[i] = !l.IsZero() && lies(m.h.dir, l, m.sizes)
	}
	return has, nil
}

// lies reports whether an object's pack is there and long enough to hold it. It
// looks at each pack once, and remembers its size.
func lies(dir string, at cas.Location, sizes map[cas.PackID]int64) bool {
	size, looked := sizes[at.Pack]
	if !looked {
		// What cannot be looked at is not there.
		size, _ = local.PackSize(dir, at.Pack)
		sizes[at.Pack] = size
	}
	return local.RecordEnd(at) <= size
}

// readArtifacts reads the list of a record's artifacts: CBOR, see
// [index.Artifact].
func readArtifacts(ctx context.Context, s cas.Source, rec index.Record) ([]index.Artifact, error) {
	data, err := readSmall(ctx, s, cas.Records, rec.Artifacts, maxList)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return decodeArtifacts(data)
}
