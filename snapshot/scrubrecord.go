package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// partFound is what was found in a list or a text that records name.
type partFound struct {
	places []placeFound
	err    error
}

// placeFound is one place in it.
type placeFound struct {
	path   string
	values int
}

// checkpoint searches one checkpoint.
func (sc *scrubber) checkpoint(cp Checkpoint) (subject, error) {
	sub := subject{id: cp.ID, thread: cp.Thread}
	err := sc.search(&sub, cp)
	if errors.Is(err, errGone) {
		sc.doubt()
		return subject{}, nil
	}
	sc.res.Checkpoints++
	return sub, err
}

// search searches all parts of a checkpoint.
func (sc *scrubber) search(sub *subject, cp Checkpoint) error {
	if cp.Status != string(index.Ready) {
		return sc.fault(sub, "record", &statusError{cp.StatusMessage})
	}
	if err := sc.hit(sub, HitRecord, "name", sc.set.Count([]byte(cp.Name))); err != nil {
		return err
	}
	rec, values, err := sc.record(cp)
	if err != nil {
		return sc.fault(sub, "record", err)
	}
	if values > 0 {
		if err := sc.texts(sub, rec, values); err != nil {
			return err
		}
	}
	if err := sc.part(sub, HitConversation, "conversation", part{ns: cas.Conversations, blob: rec.Conversation, most: MaxConversation}, sc.inMessages); err != nil {
		return err
	}
	for _, p := range []struct {
		in, what string
		part     part
		find     func(data []byte) ([]placeFound, error)
	}{
		{HitPolicy, "policy", part{ns: cas.Records, blob: rec.Policy, most: maxPolicy}, sc.inText},
		{HitRecord, "secrets", part{ns: cas.Records, blob: rec.Secrets, most: maxList}, sc.inText},
		{HitOmission, "omissions", part{ns: cas.Records, blob: rec.Omissions, most: maxList}, sc.inOmissions},
		{HitName, "hard links", part{ns: cas.Trees, blob: rec.Links, most: tree.MaxLinkList}, sc.inLinks},
	} {
		if err := sc.part(sub, p.in, p.what, p.part, sc.whole(p.find)); err != nil {
			return err
		}
	}
	list, err := readArtifacts(sc.ctx, sc.s.blobs, rec)
	if err != nil {
		err = sc.fault(sub, "artifacts", err)
	} else {
		err = sc.artifacts(sub, list)
	}
	if err == nil && !rec.Root.XAttrs.IsZero() {
		err = sc.attributes(sub, ".", rec.Root.XAttrs)
	}
	if err != nil {
		return err
	}
	return sc.tree(sub, rec.Root.Tree)
}

// statusError is why a checkpoint has no record.
type statusError struct{ why string }

// Error tells it.
func (e *statusError) Error() string { return "it is lost: " + e.why }

// Is makes it damage.
func (e *statusError) Is(err error) bool { return err == cas.ErrCorrupt }

// record reads a checkpoint's record and searches it, also what this version does not
// know of it.
func (sc *scrubber) record(cp Checkpoint) (rec index.Record, values int, err error) {
	hash, err := cas.ParseHash(cp.Record)
	if err != nil {
		return rec, 0, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	data, err := sc.s.blobs.Read(sc.ctx, cas.Key{NS: cas.Records, Hash: hash}, nil)
	if err != nil {
		return rec, 0, err
	}
	sc.bytes.Add(int64(len(data)))
	if rec, err = index.DecodeRecord(data); err != nil {
		err = fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	return rec, sc.set.Count(data), err
}

// texts tells which texts of a record hold a value; that one does is known.
func (sc *scrubber) texts(sub *subject, rec index.Record, values int) error {
	before := sub.hits
	for _, f := range recordTexts(rec) {
		if err := sc.hit(sub, HitRecord, f.path, sc.set.Count([]byte(f.text))); err != nil {
			return err
		}
	}
	if sub.hits > before {
		return nil
	}
	return sc.hit(sub, HitRecord, "", values)
}

type recordText struct{ path, text string }

// recordTexts are all texts of a record by the names that users know.
func recordTexts(rec index.Record) []recordText {
	texts := []recordText{
		{"id", rec.ID}, {"thread", rec.Thread}, {"parent", rec.Parent}, {"reason", string(rec.Reason)}, {"run", rec.Run},
		{"message", rec.Message}, {"creator", rec.Creator.User}, {"creator", rec.Creator.Org}, {"consistency", rec.Consistency},
	}
	if rec.Origin != nil {
		texts = append(texts, recordText{"origin", rec.Origin.Thread}, recordText{"origin", rec.Origin.Checkpoint})
	}
	for _, key := range slices.Sorted(maps.Keys(rec.Labels)) {
		texts = append(texts, recordText{"label " + key, key}, recordText{"label " + key, rec.Labels[key]})
	}
	for _, n := range slices.Sorted(maps.Keys(rec.Extra)) {
		texts = append(texts, recordText{"", string(rec.Extra[n])})
	}
	return texts
}

// part searches a list, a text or the conversation, once.
func (sc *scrubber) part(sub *subject, in, what string, p part, find func(part) ([]placeFound, error)) error {
	if p.blob.IsZero() {
		return nil
	}
	key := cas.Key{NS: p.ns, Hash: p.blob.Hash}
	got, ok := sc.parts[key]
	if !ok {
		var err error
		got.places, err = find(p)
		if err != nil && (sc.ctx.Err() != nil || !isFinding(err)) {
			return err
		}
		got.err = err
		sc.parts[key] = got
	}
	for _, place := range got.places {
		if err := sc.hit(sub, in, place.path, place.values); err != nil {
			return err
		}
	}
	if got.err != nil {
		return sc.fault(sub, what, got.err)
	}
	return nil
}

// whole makes a search of a part of one of its bytes.
func (sc *scrubber) whole(find func(data []byte) ([]placeFound, error)) func(part) ([]placeFound, error) {
	return func(p part) ([]placeFound, error) {
		data, err := sc.s.small(sc.ctx, p.ns, p.blob, p.most)
		if err != nil {
			return nil, err
		}
		sc.bytes.Add(int64(len(data)))
		sc.meter.Add(1, int64(len(data)))
		return find(data)
	}
}

// inMessages searches a conversation as it comes.
func (sc *scrubber) inMessages(p part) ([]placeFound, error) {
	search := sc.set.SearchJSON()
	if err := sc.s.copyPart(sc.ctx, search, p.ns, p.blob, p.most); err != nil {
		return nil, err
	}
	sc.bytes.Add(int64(p.blob.Size))
	sc.meter.Add(1, int64(p.blob.Size))
	return []placeFound{{values: search.Count()}}, nil
}

func (sc *scrubber) inText(data []byte) ([]placeFound, error) {
	return []placeFound{{values: sc.set.Count(data)}}, nil
}

func (sc *scrubber) inOmissions(data []byte) (places []placeFound, err error) {
	list, err := decodeOmissions(data)
	if sc.set.Count(data) == 0 || err != nil {
		return nil, err
	}
	for _, o := range list {
		if n := sc.set.Count([]byte(o.Path)) + sc.set.Count([]byte(o.Why)); n > 0 && len(places) < maxListed {
			places = append(places, placeFound{o.Path, n})
		}
	}
	return places, nil
}

// inLinks finds paths in the list of hard links that hold a value which no name in them
// has by itself: those are told with the names.
func (sc *scrubber) inLinks(data []byte) (places []placeFound, err error) {
	groups, err := tree.DecodeLinks(data)
	if sc.set.Count(data) == 0 || err != nil {
		return nil, err
	}
	for _, group := range groups {
		for _, path := range group {
			whole := slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool { return sc.set.Count([]byte(name)) > 0 })
			if n := sc.set.Count([]byte(path)); n > 0 && !whole && len(places) < maxListed {
				places = append(places, placeFound{path, n})
			}
		}
	}
	return places, nil
}

// artifacts searches artifacts, their contents first.
func (sc *scrubber) artifacts(sub *subject, list []index.Artifact) error {
	err := sc.contents(func(search func(cas.Namespace, cas.Blob)) error {
		for _, a := range list {
			search(cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, a := range list {
		sub.artifact = a.ID
		err := sc.hit(sub, HitArtifact, a.Name, sc.set.Count([]byte(a.ID))+sc.set.Count([]byte(a.Name))+sc.set.Count([]byte(a.MediaType)))
		if err == nil {
			err = sc.held(sub, HitArtifact, a.Name, cas.Key{NS: cas.Artifacts, Hash: a.Blob.Hash})
		}
		sub.artifact = ""
		if err != nil {
			return err
		}
	}
	return nil
}

// ownArtifacts searches what a thread has besides its checkpoints: its id, and the
// artifacts that it has now. It returns those that hold a value.
func (sc *scrubber) ownArtifacts(thread string) (held []subject, err error) {
	if !sc.told[thread] {
		sc.told[thread] = true
		sub := subject{thread: thread}
		if err := sc.hit(&sub, HitRecord, "thread", sc.set.Count([]byte(thread))); err != nil {
			return nil, err
		}
		sc.res.Threads += sub.hits
	}
	docs, err := sc.s.holder.Artifacts(sc.ctx, thread)
	if err != nil {
		return nil, err
	}
	list, err := indexArtifacts(docs)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if key := [2]string{thread, a.ID}; !sc.own[key] {
			sc.own[key] = true
			sub := subject{thread: thread}
			err := sc.artifacts(&sub, []index.Artifact{a})
			if errors.Is(err, errGone) {
				sc.doubt()
				continue
			}
			if err != nil {
				return nil, err
			}
			if sub.artifact = a.ID; sub.hits > 0 {
				held = append(held, sub)
			}
		}
	}
	return held, nil
}
