package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// VerifyOptions of [Store.Verify].
type VerifyOptions struct {
	Ref  string // one checkpoint; empty: the whole store
	Data bool   // every byte, not only the structure
}

// VerifyResult counts what was looked at.
type VerifyResult struct {
	Checkpoints int
	Packs       int
	Objects     int
}

// Verify looks for damage and calls report for each finding. The structure is:
// every checkpoint's record, tree and lists decode and name only objects that
// lie whole in a pack, and the index agrees with itself. With Data, every record
// of every pack is read and hashed too. Findings are not errors: an error says
// that Verify itself could not go on.
func (s *Store) Verify(ctx context.Context, opt VerifyOptions, report func(problem string) error) (VerifyResult, error) {
	v := &verifier{s: s, ctx: ctx, report: report, lies: map[cas.Key]bool{}, checked: map[cas.Key]bool{}}
	if err := v.run(opt); err != nil {
		return VerifyResult{}, err
	}
	return v.counts, nil
}

type verifier struct {
	s       *Store
	ctx     context.Context
	report  func(string) error
	counts  VerifyResult
	lies    map[cas.Key]bool // objects that a pack's footer lists
	checked map[cas.Key]bool // blobs and directory objects that were looked at
}

func (v *verifier) run(opt VerifyOptions) error {
	if err := v.packs(opt.Data); err != nil {
		return err
	}
	if opt.Ref != "" {
		cp, err := v.s.Resolve(v.ctx, opt.Ref)
		if err != nil {
			return err
		}
		return v.checkpoint(cp)
	}
	problems, err := v.s.holder.Check(v.ctx)
	if err != nil {
		return err
	}
	for _, p := range problems {
		if err := v.report("index: " + p); err != nil {
			return err
		}
	}
	threads, err := v.s.Threads(v.ctx, Page{})
	if err != nil {
		return err
	}
	for _, t := range threads {
		cps, err := v.s.Checkpoints(v.ctx, t.ID, Page{})
		if errors.Is(err, index.ErrThreadNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		for _, cp := range cps {
			if err := v.checkpoint(cp); err != nil {
				return err
			}
		}
	}
	return nil
}

// packs reads the footers, or every byte, of all packs.
func (v *verifier) packs(data bool) error {
	for id, err := range local.Packs(v.s.dir) {
		if err != nil {
			return fmt.Errorf("list packs: %w", err)
		}
		v.counts.Packs++
		objects, err := local.Footer(v.s.dir, id)
		if err != nil {
			if err := v.report(err.Error()); err != nil {
				return err
			}
			continue
		}
		v.counts.Objects += len(objects)
		for _, o := range objects {
			v.lies[o.Key] = true
		}
		if !data {
			continue
		}
		problems, err := local.VerifyPack(v.ctx, v.s.dir, id)
		if err != nil {
			return err
		}
		for _, p := range problems {
			if err := v.report(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoint follows everything that a checkpoint needs.
func (v *verifier) checkpoint(cp Checkpoint) error {
	v.counts.Checkpoints++
	bad := func(what string, err error) error {
		if v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		return v.report(fmt.Sprintf("checkpoint %s: %s: %v", quoted(cp.ID), what, err))
	}
	rec, err := v.s.Record(v.ctx, cp)
	if err != nil {
		return bad("record", err)
	}
	lists := []struct {
		what string
		ns   cas.Namespace
		blob index.Blob
	}{
		{"hard links", cas.Trees, rec.Links},
		{"artifacts", cas.Records, rec.Artifacts},
		{"conversation", cas.Conversations, rec.Conversation},
		{"policy", cas.Records, rec.Policy},
		{"omissions", cas.Records, rec.Omissions},
	}
	for _, l := range lists {
		data, err := v.s.small(v.ctx, l.ns, l.blob)
		if err == nil && l.what == "hard links" && len(data) > 0 {
			_, err = tree.DecodeLinks(data)
		}
		if err != nil {
			if err := bad(l.what, err); err != nil {
				return err
			}
		}
	}
	if !rec.Root.XAttrs.IsZero() {
		if _, err := v.s.trees.XAttrs(v.ctx, rec.Root.XAttrs); err != nil {
			if err := bad("extended attributes of the root", err); err != nil {
				return err
			}
		}
	}
	if err := tree.Verify(v.ctx, v.s.trees, rec.Root.Tree); err != nil {
		return bad("tree", err)
	}
	return v.files(rec, bad)
}

// files looks for the content of every file of a tree.
func (v *verifier) files(rec index.Record, bad func(string, error) error) error {
	totals := tree.Totals{}
	err := v.s.walkFiles(v.ctx, rec.Root.Tree, &totals, func(path string, b cas.Blob) error {
		if err := v.blob(b); err != nil {
			return bad(quoted(path), err)
		}
		return nil
	})
	if err != nil {
		return bad("tree", err)
	}
	if totals.Files != rec.Totals.Files || totals.Dirs != rec.Totals.Dirs || totals.Bytes != rec.Totals.Bytes {
		return bad("record", fmt.Errorf("its counts are not those of its tree: %w", cas.ErrCorrupt))
	}
	return nil
}

// walkFiles calls fn for every regular file of a tree and counts entries.
func (s *Store) walkFiles(ctx context.Context, root cas.Hash, totals *tree.Totals, fn func(path string, b cas.Blob) error) error {
	return tree.Walk(ctx, s.trees, root, func(path string, e tree.Entry) error {
		switch e.Kind {
		case tree.Dir:
			totals.Dirs++
		case tree.File:
			totals.Files++
			totals.Bytes += e.Size
			return fn(path, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
		default:
			totals.Files++
		}
		return nil
	})
}

// blob looks for a file's objects once.
func (v *verifier) blob(b cas.Blob) error {
	key := cas.Key{NS: cas.Files, Hash: b.Hash}
	if v.checked[key] {
		return nil
	}
	chunks, err := cas.Chunks(v.ctx, v.s.blobs, cas.Files, b)
	if err != nil {
		return err
	}
	var keys []cas.Key
	for _, c := range chunks {
		if !c.Zeros() {
			keys = append(keys, cas.Key{NS: cas.Files, Hash: c.Hash})
		}
	}
	has, err := v.s.blobs.Has(v.ctx, keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !has[i] || !v.lies[k] {
			return fmt.Errorf("%s: %w", k, cas.ErrNotFound)
		}
	}
	v.checked[key] = true
	return nil
}
