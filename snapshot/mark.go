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
	h       *localHolder
	reached map[cas.Key]struct{}
	// newest is the number of the newest checkpoint that was followed, of each
	// thread, by organization and id: a thread may get one while the next is looked
	// at.
	newest map[[2]string]uint64
	buf    []byte
	meter  *progress.Meter
	sizes  map[cas.PackID]int64 // of packs that were looked at; 0: not there
}

func newMarker(h *localHolder, meter *progress.Meter) *marker {
	return &marker{h: h, meter: meter, reached: map[cas.Key]struct{}{}, newest: map[[2]string]uint64{}, sizes: map[cas.PackID]int64{}}
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
			if err != nil {
				return err
			}
			if err := m.artifacts(ctx, artifacts); err != nil {
				return lacking(fmt.Errorf("artifacts of thread %s: %w", quoted(t.ID), err), "snapfs artifact remove")
			}
		}
	}
	return nil
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
	if err := m.leaves(ctx, cas.Key{NS: cas.Records, Hash: cp.RecordHash}); err != nil {
		return err
	}
	for _, b := range []struct {
		ns   cas.Namespace
		blob index.Blob
	}{
		{cas.Trees, cp.Links}, {cas.Records, cp.Record.Artifacts}, {cas.Conversations, cp.Conversation},
		{cas.Records, cp.Policy}, {cas.Records, cp.Omissions}, {cas.Records, cp.Record.Secrets},
	} {
		if !b.blob.IsZero() {
			if err := m.blob(ctx, b.ns, cas.Blob{Hash: b.blob.Hash, Size: int64(b.blob.Size)}); err != nil {
				return err
			}
		}
	}
	list, err := m.h.artifactList(ctx, cp.Record)
	if err == nil {
		err = m.artifacts(ctx, list)
	}
	if err == nil && !cp.Root.XAttrs.IsZero() {
		err = m.tree(ctx, cas.Key{NS: cas.Trees, Hash: cp.Root.XAttrs})
	}
	if err != nil {
		return err
	}
	return m.tree(ctx, cas.Key{NS: cas.Trees, Hash: cp.Root.Tree})
}

func (m *marker) artifacts(ctx context.Context, artifacts []index.Artifact) error {
	for _, a := range artifacts {
		if err := m.blob(ctx, cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}); err != nil {
			return err
		}
	}
	return nil
}

// first reports whether a key is reached for the first time.
func (m *marker) first(key cas.Key) bool {
	if _, ok := m.reached[key]; ok {
		return false
	}
	m.reached[key] = struct{}{}
	m.meter.Add(1, 0)
	return true
}

// leaves reaches objects that lead nowhere further, and looks whether they are
// there.
func (m *marker) leaves(ctx context.Context, keys ...cas.Key) error {
	fresh := keys[:0]
	for _, k := range keys {
		if m.first(k) {
			fresh = append(fresh, k)
		}
	}
	has, err := m.has(ctx, fresh)
	if err != nil {
		return err
	}
	for i, ok := range has {
		if !ok {
			return fmt.Errorf("%s: %w", fresh[i], cas.ErrNotFound)
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

// blob reaches a blob: its one object, or its list and its chunks.
func (m *marker) blob(ctx context.Context, ns cas.Namespace, b cas.Blob) error {
	key := cas.Key{NS: ns, Hash: b.Hash}
	if !b.Chunked() {
		return m.leaves(ctx, key)
	}
	if !m.first(key) {
		return nil
	}
	chunks, err := cas.Chunks(ctx, m.h.objects, ns, b)
	if err != nil {
		return err
	}
	var keys []cas.Key
	for _, c := range chunks {
		if !c.Zeros() {
			keys = append(keys, cas.Key{NS: ns, Hash: c.Hash})
		}
	}
	return m.leaves(ctx, keys...)
}

// tree follows an object of the trees namespace and all below it.
func (m *marker) tree(ctx context.Context, root cas.Key) error {
	todo := []cas.Key{root}
	for len(todo) > 0 {
		key := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !m.first(key) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := m.h.objects.Read(ctx, key, m.buf[:0])
		if err != nil {
			return err
		}
		m.buf = data
		refs, err := tree.Refs(data)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", key, err, cas.ErrCorrupt)
		}
		var small []cas.Key
		for _, r := range refs {
			if r.Key.NS == cas.Trees {
				todo = append(todo, r.Key)
				continue
			}
			if b := (cas.Blob{Hash: r.Key.Hash, Size: int64(r.Size)}); b.Chunked() {
				if err := m.blob(ctx, r.Key.NS, b); err != nil {
					return err
				}
				continue
			}
			small = append(small, r.Key)
		}
		if err := m.leaves(ctx, small...); err != nil {
			return fmt.Errorf("in directory %s: %w", key.Hash, err)
		}
	}
	return nil
}

// artifactList reads the artifacts that a checkpoint holds.
func (h *localHolder) artifactList(ctx context.Context, rec index.Record) ([]index.Artifact, error) {
	return readArtifacts(ctx, h.objects, rec)
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
