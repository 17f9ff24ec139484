package snapshot

import (
	"errors"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// tree searches everything below a root, first the contents that were not searched yet,
// then it tells the paths that hold a value.
func (sc *scrubber) tree(sub *subject, root cas.Hash) error {
	if sc.objects[root] {
		return nil
	}
	err := sc.contents(func(search func(cas.Namespace, cas.Blob)) error { return sc.walk(root, search) })
	if err != nil {
		return err
	}
	before := sub.hits
	_, err = sc.tell(sub, before, "", root)
	if errors.Is(err, errUnlisted) {
		sc.res.Unlisted++
		return nil
	}
	return err
}

// walk has the contents searched of all objects that were not walked before.
func (sc *scrubber) walk(root cas.Hash, search func(cas.Namespace, cas.Blob)) error {
	todo := []cas.Hash{root}
	for len(todo) > 0 {
		if err := sc.ctx.Err(); err != nil {
			return err
		}
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, walked := sc.objects[h]; walked {
			continue
		}
		sc.objects[h] = false
		p, err := sc.s.trees.Part(sc.ctx, h)
		if err != nil {
			if sc.ctx.Err() != nil || !isFinding(err) {
				return err
			}
			sc.lost[h] = err
			continue
		}
		sc.meter.Add(1, 0)
		todo = append(todo, p.Segments...)
		for _, e := range p.Entries {
			switch e.Kind {
			case tree.Dir:
				todo = append(todo, e.Hash)
			case tree.File:
				search(cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
			}
		}
	}
	return nil
}

// tell reports what is in and below an object of the directory dir that was walked, and
// whether that is nothing.
func (sc *scrubber) tell(sub *subject, before int, dir string, h cas.Hash) (clean bool, err error) {
	if sc.objects[h] {
		return true, nil
	}
	if err := sc.ctx.Err(); err != nil {
		return false, err
	}
	where := dir
	if where == "" {
		where = "."
	}
	if err := sc.lost[h]; err != nil {
		return false, sc.fault(sub, where, err)
	}
	p, err := sc.s.trees.Part(sc.ctx, h)
	if err != nil {
		return false, sc.fault(sub, where, err)
	}
	clean = true
	for _, segment := range p.Segments {
		below, err := sc.tell(sub, before, dir, segment)
		if err != nil {
			return false, err
		}
		clean = clean && below
	}
	names := sc.named(p.Entries)
	for i := range p.Entries {
		hits, faults := sub.hits, sub.faults
		below, err := sc.entry(sub, before, dir, &p.Entries[i], names)
		if err != nil {
			return false, err
		}
		clean = clean && below && sub.hits == hits && sub.faults == faults
		if sub.hits-before > maxListed {
			return false, errUnlisted
		}
	}
	sc.objects[h] = clean
	return clean, nil
}

// named reports whether names or targets of entries may hold a value: one search for all.
func (sc *scrubber) named(entries []tree.Entry) bool {
	buf, back := sc.borrow()
	defer back()
	b := (*buf)[:0]
	for i := range entries {
		b = append(append(b, entries[i].Name...), 0)
		b = append(append(b, entries[i].Target...), 0)
	}
	*buf = b
	return sc.set.Count(b) > 0
}

// entry tells of one entry and what is below it; names says that its name or its target
// may hold a value.
func (sc *scrubber) entry(sub *subject, before int, dir string, e *tree.Entry, names bool) (clean bool, err error) {
	path := e.Name
	if dir != "" {
		path = dir + "/" + e.Name
	}
	if len(path) > tree.MaxPath {
		return false, sc.fault(sub, dir, cas.ErrCorrupt)
	}
	if names {
		if err := sc.hit(sub, HitName, path, sc.set.Count([]byte(e.Name))); err != nil {
			return false, err
		}
		if err := sc.hit(sub, HitLink, path, sc.set.Count([]byte(e.Target))); err != nil {
			return false, err
		}
	}
	if !e.XAttrs.IsZero() {
		if err := sc.attributes(sub, path, e.XAttrs); err != nil {
			return false, err
		}
	}
	switch e.Kind {
	case tree.Dir:
		return sc.tell(sub, before, path, e.Hash)
	case tree.File:
		return true, sc.held(sub, HitFile, path, cas.Key{NS: cas.Files, Hash: e.Hash})
	}
	return true, nil
}

// held tells of a content that was searched.
func (sc *scrubber) held(sub *subject, in, path string, key cas.Key) error {
	if err := sc.faults[key]; err != nil {
		return sc.fault(sub, path, err)
	}
	return sc.hit(sub, in, path, sc.hits[key])
}

// setFound is what was found in a set of extended attributes.
type setFound struct {
	values int
	err    error
}

// attributes searches a set of extended attributes.
func (sc *scrubber) attributes(sub *subject, path string, h cas.Hash) error {
	found, ok := sc.sets[h]
	if !ok {
		set, err := sc.s.trees.XAttrs(sc.ctx, h)
		if err != nil && (sc.ctx.Err() != nil || !isFinding(err)) {
			return err
		}
		found.err = err
		for _, x := range set {
			found.values += sc.set.Count([]byte(x.Name)) + sc.set.Count(x.Value)
		}
		sc.sets[h] = found
	}
	if found.err != nil {
		return sc.fault(sub, path, found.err)
	}
	return sc.hit(sub, HitAttribute, path, found.values)
}

// others counts the checkpoints of other threads that share a content or a directory
// that holds a value. Contents that only they have are not read.
func (sc *scrubber) others() error {
	threads, err := sc.s.Threads(sc.ctx, Page{})
	if err != nil {
		return err
	}
	shared := map[cas.Hash]bool{}
	for _, t := range threads {
		if t.ID == sc.opt.Thread {
			continue
		}
		cps, err := sc.s.Checkpoints(sc.ctx, t.ID, Page{})
		if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
			return err
		}
		for _, cp := range cps {
			if does, err := sc.sharesAny(cp, shared); err != nil {
				return err
			} else if does {
				sc.res.Others++
			}
		}
	}
	return sc.ctx.Err()
}

// sharesAny reports whether a checkpoint has something in which a value was found.
func (sc *scrubber) sharesAny(cp Checkpoint, known map[cas.Hash]bool) (bool, error) {
	rec, _, err := sc.record(cp)
	if err != nil {
		return false, sc.ctx.Err() // it is told when that thread is searched
	}
	if sc.sets[rec.Root.XAttrs].values > 0 || sc.shares(rec.Root.Tree, known) {
		return true, nil
	}
	list, err := readArtifacts(sc.ctx, sc.s.blobs, rec)
	if err != nil {
		return false, sc.ctx.Err()
	}
	return slices.ContainsFunc(list, func(a index.Artifact) bool {
		return sc.hits[cas.Key{NS: cas.Artifacts, Hash: a.Blob.Hash}] > 0
	}), nil
}

// shares reports whether a tree has something in which a value was found.
func (sc *scrubber) shares(h cas.Hash, known map[cas.Hash]bool) bool {
	if does, ok := known[h]; ok {
		return does
	}
	if sc.objects[h] || sc.ctx.Err() != nil {
		return false
	}
	known[h] = false
	p, err := sc.s.trees.Part(sc.ctx, h)
	if err != nil {
		return false // it is told when that thread is searched
	}
	does := slices.ContainsFunc(p.Segments, func(s cas.Hash) bool { return sc.shares(s, known) }) ||
		len(p.Entries) > 0 && sc.named(p.Entries) ||
		slices.ContainsFunc(p.Entries, func(e tree.Entry) bool {
			return sc.sets[e.XAttrs].values > 0 || e.Kind == tree.Dir && sc.shares(e.Hash, known) || e.Kind == tree.File && sc.hits[cas.Key{NS: cas.Files, Hash: e.Hash}] > 0
		})
	known[h] = does
	return does
}
