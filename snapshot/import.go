package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// ImportOptions of [Store.Import]. Only Thread is needed.
type ImportOptions struct {
	Thread      string
	ID          string            // of the new checkpoint; empty: made from the time
	Name        string            // optional
	Message     string            // instead of the archive's; empty: that one
	Labels      map[string]string // besides the archive's, and instead of those with the same keys
	MaxSize     int64             // bytes that all contents together may have; 0: any
	Compression local.Compression
	// Lease is the token of the caller's lease of the thread; empty: it has none.
	Lease string
	// Wait is how long to wait for a save into the thread, or somebody else's lease of it,
	// to end; 0: it fails at once.
	Wait time.Duration

	sortRun int // bytes that are sorted at a time; 0: as many as usual
}

// ImportResult is what an import made.
type ImportResult struct {
	Checkpoint Checkpoint `json:"checkpoint"`
	Special    int        `json:"special"`    // FIFOs and devices, which no checkpoint has, and their hard links
	Setuid     int        `json:"setuid"`     // entries whose setuid or setgid bit was dropped
	Attributes int        `json:"attributes"` // ACLs and other attributes that no entry of their kind can have
}

// Import stores an archive as a new checkpoint and makes it the thread's head: one that
// [Store.Export] made, with all that is in it, or any other tar as the files that it has;
// either may be packed with zstd or gzip. It reads r once, from its beginning to its end.
// What is no archive, is not whole, or has what no checkpoint can is an [ErrBadArchive],
// and nothing is published then. Else it fails as [Store.Save] does.
func (s *Store) Import(ctx context.Context, r io.Reader, opt ImportOptions) (ImportResult, error) {
	save := SaveOptions{Thread: opt.Thread, ID: opt.ID, Name: opt.Name, Message: opt.Message, Labels: opt.Labels, Lease: opt.Lease}
	if err := save.check(noPolicy()); err != nil {
		return ImportResult{}, err
	}
	begin, err := s.beginRequest(ctx, save)
	if err != nil {
		return ImportResult{}, err
	}
	session, err := s.begin(ctx, begin, opt.Wait)
	if err != nil {
		return ImportResult{}, err
	}
	defer session.Close()
	w, end, err := s.newWriter(ctx, session, opt.Compression)
	if err != nil {
		return ImportResult{}, err
	}
	defer end()
	i := &importer{
		Store: s, ctx: ctx, w: w, opt: opt, meter: progress.From(ctx),
		entries: &entrySorter{ctx: ctx, store: s, most: cmp.Or(opt.sortRun, sortRun)},
		root:    tree.Entry{Kind: tree.Dir, Mode: missingMode}, owners: map[owner]int{},
	}
	defer i.entries.close()
	if err := i.readAll(r); err != nil {
		return ImportResult{}, fmt.Errorf("import: %w", err)
	}
	rec, added, err := i.record(session.Head())
	if err != nil {
		return ImportResult{}, fmt.Errorf("import: %w", err)
	}
	cp, err := publish(ctx, session, w, rec, PublishRequest{Name: opt.Name, Artifacts: added})
	return ImportResult{Checkpoint: cp, Special: i.special, Setuid: i.setuid, Attributes: i.attributes}, err
}

// noPolicy is what is recorded for a tar: no rule was in force, and nobody looked for
// secrets.
func noPolicy() policy.Recorded { return policy.Recorded{Files: policy.FilesOptions{NoDefaults: true}} }

// importer is the state of one import.
type importer struct {
	*Store
	ctx   context.Context
	w     cas.Writer
	opt   ImportOptions
	meter *progress.Meter

	own     *ownArchive // nil: a tar that something else made
	entries *entrySorter
	seq     uint64
	links   importLinks
	root    tree.Entry // owner as in the archive
	rooted  bool       // the archive has it
	owners  map[owner]int
	size    int64 // of all contents
	batch   *importBatch
	full    []*importBatch // to be stored
	packing packing

	left                        []capture.Omission
	special, setuid, attributes int
}

// owner is whom an entry belongs to.
type owner struct{ uid, gid uint32 }

// maxOwners bounds how many owners are counted to find the most common.
const maxOwners = 1024

// badEntry refuses an archive for one of its entries.
func badEntry(name, format string, args ...any) error {
	err := fmt.Errorf("entry %s: %s: %w", quoted(name), fmt.Sprintf(format, args...), ErrBadArchive)
	return WithHint(err, "nothing was imported: unpack it with a program that you trust with it, and snapfs save what comes out")
}

// omit notes what is not in the checkpoint as it is in the archive.
func (i *importer) omit(count *int, path, why string) error {
	if *count++; len(i.left) == maxOmissions {
		return fmt.Errorf("more than %d entries that no checkpoint can have: %w", maxOmissions, cas.ErrTooLarge)
	}
	i.left = append(i.left, capture.Omission{Path: path, Why: why})
	return nil
}

// record makes the tree, and the record of the new checkpoint.
func (i *importer) record(head string) (rec index.Record, added []Artifact, err error) {
	groups, err := i.links.resolve(i.entries, func(path, why string) error { return i.omit(&i.special, path, why) })
	if err != nil {
		return rec, nil, err
	}
	i.links = importLinks{}
	if !i.rooted {
		i.root.UID, i.root.GID = i.commonOwner()
	}
	maker := &treeMaker{ctx: i.ctx, w: i.w, root: i.root}
	if i.own != nil {
		maker.check = i.own.entered
	}
	if err := i.entries.each(maker.put); err != nil {
		return rec, nil, err
	}
	rec = index.Record{Consistency: index.PerFile}
	if i.own != nil {
		rec = i.own.rec
		rec.Origin = &index.Origin{Thread: rec.Thread, Checkpoint: rec.ID}
	}
	if rec.Root, rec.Totals, err = maker.done(); err != nil {
		return rec, nil, err
	}
	if rec.Links, err = i.putLinks(groups); err != nil {
		return rec, nil, err
	}
	var artifacts []index.Artifact
	if i.own != nil {
		if err := i.own.same(rec); err != nil {
			return rec, nil, err
		}
		artifacts = i.own.artifacts
	} else if err := i.describe(&rec); err != nil {
		return rec, nil, err
	}
	now := i.now()
	rec.ID, rec.Thread, rec.Parent = i.opt.ID, i.opt.Thread, head
	if rec.ID == "" {
		rec.ID = newID(now)
	}
	rec.Reason, rec.Creator, rec.Created = index.Imported, creator(), now.UnixNano()
	if err := i.texts(&rec); err != nil {
		return rec, nil, err
	}
	if added, err = i.artifactsOf(&rec, artifacts, now); err != nil {
		return rec, nil, err
	}
	return rec, added, rec.Validate()
}

// commonOwner is the owner of most entries, the lowest of several.
func (i *importer) commonOwner() (uid, gid uint32) {
	var best owner
	most := 0
	for o, n := range i.owners {
		if n > most || n == most && (o.uid < best.uid || o.uid == best.uid && o.gid < best.gid) {
			best, most = o, n
		}
	}
	return best.uid, best.gid
}

// putLinks stores the list of hard links.
func (i *importer) putLinks(groups [][]string) (index.Blob, error) {
	if len(groups) == 0 {
		return index.Blob{}, nil
	}
	data, err := tree.EncodeLinks(groups)
	if err != nil {
		return index.Blob{}, fmt.Errorf("list hard links: %w", err)
	}
	blob, err := cas.WriteBlob(i.ctx, i.w, cas.Trees, bytes.NewReader(data))
	return blobRef(blob), err
}

// describe stores what the record of a tar names: that no policy was in force, and what
// was left out.
func (i *importer) describe(rec *index.Record) (err error) {
	if rec.Policy, err = putSmall(i.ctx, i.w, noPolicy().Encode()); err != nil || len(i.left) == 0 {
		return err
	}
	slices.SortStableFunc(i.left, func(a, b capture.Omission) int { return strings.Compare(a.Path, b.Path) })
	list, err := encodeOmissions(i.left)
	if err != nil {
		return err
	}
	rec.OmissionCount = uint64(len(i.left))
	rec.Omissions, err = putSmall(i.ctx, i.w, list)
	return err
}

// texts puts the caller's message and labels in their places. What was found of secrets
// in those that were there goes with them.
func (i *importer) texts(rec *index.Record) error {
	gone := map[string]bool{"message": i.opt.Message != ""}
	if i.opt.Message != "" {
		rec.Message = i.opt.Message
	}
	if len(i.opt.Labels) > 0 {
		labels := maps.Clone(rec.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		for key, value := range i.opt.Labels {
			labels[key], gone["label "+key] = value, true
		}
		rec.Labels = labels
	}
	if i.own == nil {
		return nil
	}
	found := secretsFound{list: slices.DeleteFunc(i.own.secrets, func(f FoundSecrets) bool { return f.Place == InRecord && gone[f.Path] })}
	rec.Secrets = index.Blob{}
	return found.putList(i.ctx, i.w, rec)
}

// artifactsOf has the thread get the archive's artifacts that it does not have, with ids
// of their own in the same order, and the checkpoint hold all that the thread has then.
func (i *importer) artifactsOf(rec *index.Record, list []index.Artifact, now time.Time) (added []Artifact, err error) {
	all, err := i.holder.Artifacts(i.ctx, i.opt.Thread)
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return nil, err
	}
	type what struct{ name, mediaType, hash string }
	has := map[what]int{}
	for _, a := range all {
		has[what{a.Name, a.MediaType, a.Hash}]++
	}
	for _, a := range newArtifacts(list) {
		if w := (what{a.Name, a.MediaType, a.Hash}); has[w] > 0 {
			has[w]--
			continue
		}
		added = append(added, a)
	}
	base := newID(now)
	for n := range added {
		added[n].ID = fmt.Sprintf("%s-%06d", base, n+1)
	}
	rec.Artifacts, rec.ArtifactCount = index.Blob{}, 0
	if all = append(all, added...); len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b Artifact) int { return strings.Compare(a.ID, b.ID) })
	entries, err := indexArtifacts(all)
	if err != nil {
		return nil, err
	}
	data, err := encodeArtifacts(entries)
	if err != nil {
		return nil, err
	}
	rec.Artifacts, err = putSmall(i.ctx, i.w, data)
	rec.ArtifactCount = uint64(len(all))
	return added, err
}
