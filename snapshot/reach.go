package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// A reach follows everything that checkpoints need: each object once, however many
// checkpoints share it, and what an object names before the object itself.
type reach struct {
	source cas.Source
	seen   map[cas.Key]struct{}
	// claim, unless it is nil, decides instead of seen what is reached for the first time.
	claim func(key cas.Key) bool
	// found is told of objects when they are reached for the first time. read says that
	// the source had them: they were read to learn what they name.
	found func(ctx context.Context, read bool, objs ...needed) error
	fresh []cas.Key // seen since the last mark, if that was called
	marks bool
	buf   []byte
}

// needed is an object that a checkpoint needs.
type needed struct {
	cas.Key
	kind cas.Kind
}

// mark begins what undo takes back.
func (r *reach) mark() { r.fresh, r.marks = r.fresh[:0], true }

// undo forgets what was seen since the last mark: it is followed again.
func (r *reach) undo() {
	for _, key := range r.fresh {
		delete(r.seen, key)
	}
	r.fresh = r.fresh[:0]
}

// first reports whether a key is reached for the first time.
func (r *reach) first(key cas.Key) bool {
	if r.claim != nil {
		return r.claim(key)
	}
	if _, ok := r.seen[key]; ok {
		return false
	}
	r.seen[key] = struct{}{}
	if r.marks {
		r.fresh = append(r.fresh, key)
	}
	return true
}

// checkpoint follows one checkpoint, of whose record hash is the name, and returns the
// artifacts that it holds.
func (r *reach) checkpoint(ctx context.Context, rec index.Record, hash cas.Hash) ([]index.Artifact, error) {
	for _, b := range []struct {
		ns   cas.Namespace
		blob index.Blob
	}{
		{cas.Trees, rec.Links}, {cas.Records, rec.Artifacts}, {cas.Conversations, rec.Conversation},
		{cas.Records, rec.Policy}, {cas.Records, rec.Omissions}, {cas.Records, rec.Secrets},
	} {
		if !b.blob.IsZero() {
			if err := r.blob(ctx, b.ns, cas.Blob{Hash: b.blob.Hash, Size: int64(b.blob.Size)}); err != nil {
				return nil, err
			}
		}
	}
	list, err := readArtifacts(ctx, r.source, rec)
	if err == nil {
		err = r.artifacts(ctx, list)
	}
	if err == nil && !rec.Root.XAttrs.IsZero() {
		err = r.tree(ctx, cas.Key{NS: cas.Trees, Hash: rec.Root.XAttrs})
	}
	if err == nil {
		err = r.tree(ctx, cas.Key{NS: cas.Trees, Hash: rec.Root.Tree})
	}
	if err != nil {
		return nil, err
	}
	return list, r.leaves(ctx, needed{cas.Key{NS: cas.Records, Hash: hash}, cas.Data})
}

// artifacts follows the contents of artifacts.
func (r *reach) artifacts(ctx context.Context, artifacts []index.Artifact) error {
	for _, a := range artifacts {
		if err := r.blob(ctx, cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}); err != nil {
			return err
		}
	}
	return nil
}

// leaves reaches objects that lead nowhere further.
func (r *reach) leaves(ctx context.Context, objs ...needed) error {
	fresh := objs[:0]
	for _, o := range objs {
		if r.first(o.Key) {
			fresh = append(fresh, o)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return r.found(ctx, false, fresh...)
}

// blob reaches a blob: its one object, or its chunks and its list.
func (r *reach) blob(ctx context.Context, ns cas.Namespace, b cas.Blob) error {
	key := cas.Key{NS: ns, Hash: b.Hash}
	if !b.Chunked() {
		return r.leaves(ctx, needed{key, cas.Data})
	}
	if !r.first(key) {
		return nil
	}
	chunks, err := cas.Chunks(ctx, r.source, ns, b)
	if err != nil {
		return err
	}
	var objs []needed
	for _, c := range chunks {
		if !c.Zeros() {
			objs = append(objs, needed{cas.Key{NS: ns, Hash: c.Hash}, cas.Data})
		}
	}
	if err := r.leaves(ctx, objs...); err != nil {
		return err
	}
	return r.found(ctx, true, needed{key, cas.List})
}

// tree follows an object of the trees namespace and all below it.
func (r *reach) tree(ctx context.Context, root cas.Key) error {
	type step struct {
		key  cas.Key
		done bool // all below it was followed
	}
	todo := []step{{key: root}}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if at.done {
			if err := r.found(ctx, true, needed{at.key, cas.Data}); err != nil {
				return err
			}
			continue
		}
		if !r.first(at.key) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := r.source.Read(ctx, at.key, r.buf[:0])
		if err != nil {
			return err
		}
		r.buf = data
		refs, err := tree.Refs(data)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", at.key, err, cas.ErrCorrupt)
		}
		todo = append(todo, step{at.key, true})
		var small []needed
		for _, ref := range refs {
			if ref.Key.NS == cas.Trees {
				todo = append(todo, step{key: ref.Key})
				continue
			}
			if b := (cas.Blob{Hash: ref.Key.Hash, Size: int64(ref.Size)}); b.Chunked() {
				if err := r.blob(ctx, ref.Key.NS, b); err != nil {
					return err
				}
				continue
			}
			small = append(small, needed{ref.Key, cas.Data})
		}
		if err := r.leaves(ctx, small...); err != nil {
			return fmt.Errorf("in directory %s: %w", at.key.Hash, err)
		}
	}
	return nil
}
