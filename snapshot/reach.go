package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// A reacher goes from what checkpoints name down to the last object that they need. It is
// not for concurrent use.
type reacher struct {
	objects cas.Source
	// first reports whether what lies below an object, which was reached just now, is to
	// be reached from here too; else that was done before.
	first func(key cas.Key) bool
	// leaf is given what leads nowhere further, and was reached for the first time; nil:
	// nobody wants to know.
	leaf func(ctx context.Context, keys []cas.Key) error
	buf  []byte
}

// record reaches a checkpoint's record, which has the hash, and all that it names.
func (r *reacher) record(ctx context.Context, hash cas.Hash, rec index.Record) error {
	if err := r.leaves(ctx, cas.Key{NS: cas.Records, Hash: hash}); err != nil {
		return err
	}
	for _, b := range []struct {
		ns   cas.Namespace
		blob index.Blob
	}{
		{cas.Trees, rec.Links}, {cas.Records, rec.Artifacts}, {cas.Conversations, rec.Conversation},
		{cas.Records, rec.Policy}, {cas.Records, rec.Omissions}, {cas.Records, rec.Secrets},
	} {
		if !b.blob.IsZero() {
			if err := r.blob(ctx, b.ns, cas.Blob{Hash: b.blob.Hash, Size: int64(b.blob.Size)}); err != nil {
				return err
			}
		}
	}
	list, err := readArtifacts(ctx, r.objects, rec)
	if err == nil {
		err = r.artifacts(ctx, list)
	}
	if err == nil && !rec.Root.XAttrs.IsZero() {
		err = r.tree(ctx, rec.Root.XAttrs)
	}
	if err != nil {
		return err
	}
	return r.tree(ctx, rec.Root.Tree)
}

func (r *reacher) artifacts(ctx context.Context, artifacts []index.Artifact) error {
	for _, a := range artifacts {
		if err := r.blob(ctx, cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}); err != nil {
			return err
		}
	}
	return nil
}

// leaves reaches objects that lead nowhere further.
func (r *reacher) leaves(ctx context.Context, keys ...cas.Key) error {
	fresh := keys[:0]
	for _, k := range keys {
		if r.first(k) {
			fresh = append(fresh, k)
		}
	}
	if r.leaf == nil || len(fresh) == 0 {
		return nil
	}
	return r.leaf(ctx, fresh)
}

// blob reaches a blob: its one object, or its list and its chunks.
func (r *reacher) blob(ctx context.Context, ns cas.Namespace, b cas.Blob) error {
	key := cas.Key{NS: ns, Hash: b.Hash}
	if !b.Chunked() {
		return r.leaves(ctx, key)
	}
	if !r.first(key) {
		return nil
	}
	chunks, err := cas.Chunks(ctx, r.objects, ns, b)
	if err != nil {
		return err
	}
	var keys []cas.Key
	for _, c := range chunks {
		if !c.Zeros() {
			keys = append(keys, cas.Key{NS: ns, Hash: c.Hash})
		}
	}
	return r.leaves(ctx, keys...)
}

// tree reaches an object of the trees namespace and all below it.
func (r *reacher) tree(ctx context.Context, root cas.Hash) error {
	todo := []cas.Key{{NS: cas.Trees, Hash: root}}
	for len(todo) > 0 {
		key := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !r.first(key) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := r.objects.Read(ctx, key, r.buf[:0])
		if err != nil {
			return err
		}
		r.buf = data
		refs, err := tree.Refs(data)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", key, err, cas.ErrCorrupt)
		}
		var small []cas.Key
		for _, ref := range refs {
			if ref.Key.NS == cas.Trees {
				todo = append(todo, ref.Key)
				continue
			}
			if b := (cas.Blob{Hash: ref.Key.Hash, Size: int64(ref.Size)}); b.Chunked() {
				if err := r.blob(ctx, ref.Key.NS, b); err != nil {
					return err
				}
				continue
			}
			small = append(small, ref.Key)
		}
		if err := r.leaves(ctx, small...); err != nil {
			return fmt.Errorf("in directory %s: %w", key.Hash, err)
		}
	}
	return nil
}
