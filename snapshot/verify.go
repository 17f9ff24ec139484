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
// every checkpoint's record, tree and lists decode, they and the threads'
// artifacts name only objects that lie whole in a pack, and the index agrees with
// itself. With Data, every record
// of every pack is read and hashed too. Findings are not errors: an error says
// that Verify itself could not go on. What is found damaged is no longer relied
// on: the next save of the same content stores it anew.
func (s *Store) Verify(ctx context.Context, opt VerifyOptions, report func(problem string) error) (VerifyResult, error) {
	// Packs that are open and objects that are decoded already would hide what
	// has become of their files.
	fresh, end := s.uncached()
	defer end()
	v := &verifier{s: fresh, ctx: ctx, report: report, meter: progress.From(ctx), lies: map[cas.Key]bool{}, checked: map[cas.Key]bool{}}
	if err := v.run(opt); err != nil {
		return VerifyResult{}, err
	}
	return v.counts, nil
}

// uncached returns the store with nothing open and nothing decoded yet. end
// frees what it opens.
func (s *Store) uncached() (fresh *Store, end func()) {
	if s.dir == "" {
		return s, func() {}
	}
	packs := local.New(s.dir, readOnly{s.holder}, local.Options{})
	fresh = &Store{dir: s.dir, holder: s.holder, blobs: packs, trees: tree.NewReader(packs, treeCache), log: s.log}
	return fresh, func() { _ = packs.Close() }
}

type verifier struct {
	s       *Store
	ctx     context.Context
	report  func(string) error
	counts  VerifyResult
	meter   *progress.Meter  // objects that were found, and bytes of packs that were read
	lies    map[cas.Key]bool // objects that a pack's footer lists
	checked map[cas.Key]bool // blobs and directory objects that were looked at
}

func (v *verifier) run(opt VerifyOptions) error {
	// The checkpoints before the packs: what is published meanwhile has packs
	// that were not seen.
	threads, cps, err := v.subjects(opt.Ref)
	if err != nil {
		return err
	}
	if err := v.packs(opt.Data); err != nil {
		return err
	}
	if opt.Ref == "" {
		problems, err := v.s.holder.Check(v.ctx)
		if err != nil {
			return err
		}
		for _, p := range problems {
			if err := v.report("index: " + p); err != nil {
				return err
			}
		}
	}
	for _, cp := range cps {
		if err := v.checkpoint(cp); err != nil {
			return err
		}
	}
	for _, t := range threads {
		if err := v.artifacts(t.artifacts, v.bad("thread "+quoted(t.id))); err != nil {
			return err
		}
	}
	return nil
}

// threadArtifacts are what a thread has now, for its next checkpoint.
type threadArtifacts struct {
	id        string
	artifacts []index.Artifact
}

// subjects returns the checkpoint that is asked for, or all of them and what the
// threads have.
func (v *verifier) subjects(ref string) ([]threadArtifacts, []Checkpoint, error) {
	if ref != "" {
		cp, err := v.s.Resolve(v.ctx, ref)
		return nil, []Checkpoint{cp}, err
	}
	threads, err := v.s.Threads(v.ctx, Page{})
	if err != nil {
		return nil, nil, err
	}
	var has []threadArtifacts
	var all []Checkpoint
	for _, t := range threads {
		cps, err := v.s.Checkpoints(v.ctx, t.ID, Page{})
		if err == nil {
			all = append(all, cps...)
			var docs []Artifact
			if docs, err = v.s.holder.Artifacts(v.ctx, t.ID); err == nil {
				var list []index.Artifact
				list, err = indexArtifacts(docs)
				has = append(has, threadArtifacts{id: t.ID, artifacts: list})
			}
		}
		if err != nil && !errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
			return nil, nil, err
		}
	}
	return has, all, nil
}

// bad returns a function that reports a finding about a subject, unless the
// whole check was called off.
func (v *verifier) bad(subject string) func(what string, err error) error {
	return func(what string, err error) error {
		if v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		return v.report(fmt.Sprintf("%s: %s: %v", subject, what, err))
	}
}

// packs reads the footers, or every byte, of all packs.
func (v *verifier) packs(data bool) error {
	if v.s.dir == "" {
		return nil // what is in memory proves itself when it is read
	}
	if data {
		_, bytes, err := local.Size(v.s.dir)
		if err != nil {
			return fmt.Errorf("list packs: %w", err)
		}
		v.meter.Expect(0, bytes)
	}
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
		problems, damaged, err := local.VerifyPack(v.ctx, v.s.dir, id)
		if err == nil && len(damaged) > 0 {
			err = v.s.holder.Distrust(v.ctx, damaged)
		}
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
	bad := v.bad("checkpoint " + quoted(cp.ID))
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
		{"conversation", cas.Conversations, rec.Conversation},
		{"policy", cas.Records, rec.Policy},
		{"omissions", cas.Records, rec.Omissions},
	}
	links := map[string]int{} // path -> group
	for _, l := range lists {
		data, err := v.s.small(v.ctx, l.ns, l.blob)
		if err == nil && l.what == "hard links" && len(data) > 0 {
			var groups [][]string
			groups, err = tree.DecodeLinks(data)
			for i, group := range groups {
				for _, path := range group {
					links[path] = i
				}
			}
		}
		if err == nil && l.what == "omissions" && len(data) > 0 {
			_, err = decodeOmissions(data)
		}
		if err != nil {
			if err := bad(l.what, err); err != nil {
				return err
			}
		}
	}
	artifacts, err := readArtifacts(v.ctx, v.s.blobs, rec)
	if err != nil {
		err = bad("artifacts", err)
	} else {
		err = v.artifacts(artifacts, bad)
	}
	if err != nil {
		return err
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
	return v.files(rec, links, bad)
}

// artifacts looks for the content of every artifact.
func (v *verifier) artifacts(list []index.Artifact, bad func(string, error) error) error {
	for _, a := range list {
		if err := v.blob(cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}); err != nil {
			if err := bad("artifact "+quoted(a.ID), err); err != nil {
				return err
			}
		}
	}
	return nil
}

// files looks for the content of every file of a tree, and whether the paths
// that are hard links of one file can be that.
func (v *verifier) files(rec index.Record, links map[string]int, bad func(string, error) error) error {
	totals := tree.Totals{}
	seen := map[int]tree.Entry{} // by group: one member's entry without its name
	err := v.s.walkFiles(v.ctx, rec.Root.Tree, &totals, func(path string, e tree.Entry) error {
		if err := v.blob(cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}); err != nil {
			return bad(quoted(path), err)
		}
		group, ok := links[path]
		if !ok {
			return nil
		}
		delete(links, path)
		e.Name = ""
		if first, ok := seen[group]; !ok {
			seen[group] = e
		} else if first != e {
			return bad(quoted(path), fmt.Errorf("differs from another hard link of the same file: %w", cas.ErrCorrupt))
		}
		return nil
	})
	if err != nil {
		return bad("tree", err)
	}
	for _, path := range slices.Sorted(maps.Keys(links)) {
		if err := bad("hard links", fmt.Errorf("%s is no file of the tree: %w", quoted(path), cas.ErrCorrupt)); err != nil {
			return err
		}
	}
	if totals.Files != rec.Totals.Files || totals.Dirs != rec.Totals.Dirs || totals.Bytes != rec.Totals.Bytes {
		return bad("record", fmt.Errorf("its counts are not those of its tree: %w", cas.ErrCorrupt))
	}
	return nil
}

// walkFiles calls fn for every regular file of a tree and counts entries.
func (s *Store) walkFiles(ctx context.Context, root cas.Hash, totals *tree.Totals, fn func(path string, e tree.Entry) error) error {
	return tree.Walk(ctx, s.trees, root, func(path string, e tree.Entry) error {
		switch e.Kind {
		case tree.Dir:
			totals.Dirs++
		case tree.File:
			totals.Files++
			totals.Bytes += e.Size
			return fn(path, e)
		default:
			totals.Files++
		}
		return nil
	})
}

// blob looks for a blob's objects once.
func (v *verifier) blob(ns cas.Namespace, b cas.Blob) error {
	key := cas.Key{NS: ns, Hash: b.Hash}
	if v.checked[key] {
		return nil
	}
	chunks, err := cas.Chunks(v.ctx, v.s.blobs, ns, b)
	if err != nil {
		return err
	}
	var keys []cas.Key
	for _, c := range chunks {
		if !c.Zeros() {
			keys = append(keys, cas.Key{NS: ns, Hash: c.Hash})
		}
	}
	has, err := v.s.blobs.Has(v.ctx, keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !has[i] || (v.s.dir != "" && !v.lies[k]) {
			return fmt.Errorf("%s: %w", k, cas.ErrNotFound)
		}
	}
	v.checked[key] = true
	v.meter.Add(1, 0)
	return nil
}
