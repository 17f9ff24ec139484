package snapshot

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"slices"
	"strings"

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
	// Repair moves damaged packs aside (see [Holder.Repair]) once all is known. It
	// implies Data, and no Ref goes with it.
	Repair bool
}

// VerifyResult counts what was looked at.
type VerifyResult struct {
	Checkpoints int
	Packs       int
	Objects     int
	Repaired    RepairResult
}

// Verify looks for damage and calls report for each finding. The structure is:
// every checkpoint's record, tree and lists decode, they and the threads'
// artifacts name only objects that lie whole in a pack, and the index agrees with
// itself. With Data, every record of every pack is read and hashed too. A finding
// names a pack, or the checkpoint and the path that suffer. Each object is looked
// at once, however many checkpoints need it; paths are looked for only where there
// is damage. Findings are not errors: an error says that Verify itself could not go
// on. What is found damaged is no longer relied on: the next save of the same
// content stores it anew.
func (s *Store) Verify(ctx context.Context, opt VerifyOptions, report func(problem string) error) (VerifyResult, error) {
	if opt.Repair {
		if opt.Ref != "" {
			return VerifyResult{}, fmt.Errorf("repair is of the whole store, not of one checkpoint: %w", ErrRefused)
		}
		opt.Data = true
	}
	// Packs that are open and objects that are decoded already would hide what
	// has become of their files.
	fresh, end := s.uncached()
	defer end()
	v := newVerifier(ctx, fresh, opt, report)
	if err := v.run(); err != nil {
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
	blobs := packNamer{packs, s.holder}
	fresh = &Store{dir: s.dir, holder: s.holder, blobs: blobs, trees: tree.NewReader(blobs, treeCache), log: s.log}
	return fresh, func() { _ = packs.Close() }
}

// packNamer has every error about damage name the pack.
type packNamer struct {
	cas.Store
	holder Holder
}

// Read implements [cas.Store].
func (p packNamer) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	out, err := p.Store.Read(ctx, key, dst)
	if errors.Is(err, cas.ErrCorrupt) {
		at, lerr := p.holder.Locate(ctx, []cas.Key{key})
		if lerr == nil && !at[0].IsZero() && !strings.Contains(err.Error(), at[0].Pack.String()) {
			err = fmt.Errorf("%w (pack %s)", err, at[0].Pack)
		}
	}
	return out, err
}

type verifier struct {
	s      *Store
	ctx    context.Context
	opt    VerifyOptions
	report func(string) error
	counts VerifyResult
	meter  *progress.Meter // objects that were found, and bytes of packs that were read

	places  *objectPlaces
	damaged []cas.PackID // packs with anything wrong
	trees   *tree.Checker
	sound   map[content]struct{} // contents that were looked at
	broken  map[content]error
	parts   map[part]error // of records, that were looked at
	lists   map[index.Blob]struct{}
	links   linkList // of the checkpoint before
	files   redactedFiles
}

func newVerifier(ctx context.Context, s *Store, opt VerifyOptions, report func(string) error) *verifier {
	v := &verifier{
		s: s, ctx: ctx, opt: opt, report: report, meter: progress.From(ctx),
		sound: map[content]struct{}{}, broken: map[content]error{}, parts: map[part]error{}, lists: map[index.Blob]struct{}{},
	}
	v.places = newObjectPlaces(s, v.pack)
	v.trees = tree.NewChecker(s.trees, v)
	return v
}

func (v *verifier) run() error {
	// The checkpoints before the packs: what is published meanwhile needs packs
	// that were not seen. What gc moves meanwhile is looked for where it is then.
	threads, cps, err := v.subjects(v.opt.Ref)
	if err != nil {
		return err
	}
	if err := v.packs(); err != nil {
		return err
	}
	if v.opt.Ref == "" {
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
	if err := v.distrust(slices.Collect(maps.Keys(v.places.unsound))); err != nil {
		return err
	}
	if v.opt.Repair {
		v.counts.Repaired, err = v.s.holder.Repair(v.ctx, newRepairRequest(v.damaged))
	}
	return err
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
// whole check was called off, or cannot go on.
func (v *verifier) bad(subject string) func(what string, err error) error {
	return func(what string, err error) error {
		if v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		if !isFinding(err) {
			return err
		}
		return v.report(fmt.Sprintf("%s: %s: %v", subject, what, err))
	}
}

// isFinding tells what is wrong with a store from what keeps it from being looked
// at.
func isFinding(err error) bool {
	var path *iofs.PathError
	for _, is := range []error{cas.ErrNotFound, cas.ErrCorrupt, cas.ErrTooLarge, tree.ErrInvalid} {
		if errors.Is(err, is) {
			return true
		}
	}
	return errors.As(err, &path)
}

// packs reads the footers, or every byte, of all packs.
func (v *verifier) packs() error {
	if v.s.dir == "" {
		return nil // what is in memory proves itself when it is read
	}
	if v.opt.Data {
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
		if err := v.places.see(id); err != nil {
			return err
		}
	}
	return nil
}

// pack looks at one pack and tells what lies in it. known says that this is all
// that can.
func (v *verifier) pack(id cas.PackID) (there []cas.Located, damaged []local.Damage, known bool, err error) {
	var report local.Report
	if v.opt.Data {
		report, err = local.VerifyPack(v.ctx, v.s.dir, id)
	} else {
		report.Whole, err = local.ReadFooter(v.s.dir, id)
		if known = err == nil; errors.Is(err, cas.ErrCorrupt) {
			report.Problems = []string{err.Error()}
			if report.Whole, err = local.Footer(v.s.dir, id); errors.Is(err, cas.ErrCorrupt) {
				err = nil // which was said
			}
		}
	}
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil, false, nil // rewritten meanwhile, or lost: who needs it is told
	}
	if err != nil && (v.ctx.Err() != nil || !isFinding(err)) {
		return nil, nil, false, err
	}
	if err != nil {
		report.Problems = append(report.Problems, err.Error())
	}
	v.counts.Packs++
	v.counts.Objects += len(report.Whole) + len(report.Damaged)
	if len(report.Problems) > 0 {
		v.damaged = append(v.damaged, id)
	}
	for _, p := range report.Problems {
		if err := v.report(p); err != nil {
			return nil, nil, false, err
		}
	}
	bad := make([]cas.Located, len(report.Damaged))
	for i, d := range report.Damaged {
		bad[i] = d.Located
	}
	return report.Whole, report.Damaged, known || len(report.Problems) == 0, v.distrust(bad)
}

// distrust has saves store objects anew that are damaged where they should lie.
func (v *verifier) distrust(objects []cas.Located) error {
	if len(objects) == 0 {
		return nil
	}
	keys := make([]cas.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	at, err := v.s.holder.Locate(local.Fresh(v.ctx), keys)
	if err != nil {
		return err
	}
	var counting []cas.Located
	for i, o := range objects {
		if at[i] == o.Location {
			counting = append(counting, o)
		}
	}
	if len(counting) == 0 {
		return nil
	}
	return v.s.holder.Distrust(v.ctx, counting)
}
