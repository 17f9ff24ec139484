package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/secrets"
)

// What a [ScrubHit] is in.
const (
	HitFile         = "file"      // the content of a file
	HitName         = "name"      // the name of a file, a directory or a symlink
	HitLink         = "link"      // the target of a symlink
	HitAttribute    = "attribute" // an extended attribute of an entry, or its name
	HitArtifact     = "artifact"  // an artifact's content, name, media type or id
	HitConversation = "conversation"
	HitRecord       = "record" // what the checkpoint says of itself; the path is the field
	HitPolicy       = "policy"
	HitOmission     = "omission" // what was left out of the checkpoint, or why
)

// A ScrubHit is one place that holds a declared value. No text in it has the value: there
// are stars.
type ScrubHit struct {
	Checkpoint string `json:"checkpoint,omitempty"` // empty: it is the thread's own
	Thread     string `json:"thread"`
	In         string `json:"in"`
	// Path is of the entry, the artifact's name, or the record's field.
	Path
	Artifact string `json:"artifact,omitempty"` // its id
	Values   int    `json:"values"`             // stretches of bytes that values take
}

// A ScrubFault is something that could not be searched. Its texts have no value either.
type ScrubFault struct {
	Checkpoint string // empty: it is the thread's own
	Thread     string
	What       string // a path, or the part of the checkpoint
	Err        error
}

// ScrubOptions of [Store.Scrub].
type ScrubOptions struct {
	Thread string // only this one; empty: all
	// Delete deletes the checkpoints and the threads' artifacts that hold a value, once
	// all are known, and has the next collection leave nothing of them. What could not
	// be searched whole is not deleted.
	Delete bool
	// Fault is told of what could not be searched, Deleted of what was deleted: a
	// checkpoint, or an artifact of a thread. Either may be nil.
	Fault   func(ScrubFault) error
	Deleted func(ScrubHit) error
}

// ScrubResult counts what was searched, found and deleted.
type ScrubResult struct {
	Checkpoints int   // that were searched
	Bytes       int64 // that were read
	Hits        int
	Faults      int
	Unlisted    int // checkpoints with so many hits that not all are named
	Others      int // checkpoints of other threads that share what holds a value; only with a thread
	Deleted     int // checkpoints
	Removed     int // artifacts of threads
	// Kept says what holds a value and could not be deleted, and why.
	Kept []string
	// Threads counts those whose id is a value, which goes only with the thread.
	Threads int
}

// Scrub searches checkpoints, and what threads have besides them, for declared values,
// and calls found for each place that holds one: contents of files, names, targets of
// symlinks, extended attributes, artifacts, the conversation, the record with all of its
// texts, the policy and the omissions. Each object is read once, however many
// checkpoints share it, and remembered by its hash. What is published meanwhile is
// searched, too; a save under way is not.
func (s *Store) Scrub(ctx context.Context, set *secrets.Set, opt ScrubOptions, found func(ScrubHit) error) (ScrubResult, error) {
	if set.Longest() == 0 {
		return ScrubResult{}, fmt.Errorf("scrub: no value to look for: %w", ErrRefused)
	}
	sc := newScrubber(ctx, s, set, opt, found)
	err := sc.run()
	sc.res.Bytes = sc.bytes.Load()
	if err != nil {
		err = &maskedError{set: set, err: err}
	}
	return sc.res, err
}

// maskedError is an error the text of which may have a value.
type maskedError struct {
	set *secrets.Set
	err error
}

// Error has stars for the value.
func (e *maskedError) Error() string { return e.set.Mask(e.err.Error()) }

// Unwrap returns the error itself.
func (e *maskedError) Unwrap() error { return e.err }

// subject is a checkpoint, or without an id a thread with its own artifacts, that is
// searched.
type subject struct {
	id, thread string
	artifact   string // what is to be removed of a thread
	hits       int
	faults     int
	there      bool // it was there after the first fault
}

// errUnlisted ends the listing of one checkpoint's tree.
var errUnlisted = errors.New("enough was listed")

// maxListed bounds the hits of one tree that are named: a few objects can stand for any
// number of paths.
const maxListed = 100_000

func (sc *scrubber) run() error {
	if sc.opt.Thread != "" {
		if _, err := sc.s.Thread(sc.ctx, sc.opt.Thread); err != nil {
			return err
		}
	}
	var todo []subject // what is to be deleted
	for fresh := true; fresh; {
		fresh = false
		threads, err := sc.threads()
		if err != nil {
			return err
		}
		for _, id := range threads {
			cps, err := sc.s.Checkpoints(sc.ctx, id, Page{})
			if err == nil {
				var own []subject
				own, err = sc.ownArtifacts(id)
				todo = append(todo, own...)
			}
			if errors.Is(err, index.ErrThreadNotFound) {
				continue // deleted meanwhile
			}
			if err != nil {
				return err
			}
			for _, cp := range cps {
				if sc.searched[cp.Record] || cp.Record == "" {
					continue
				}
				sc.searched[cp.Record], fresh = true, true
				sub, err := sc.checkpoint(cp)
				if err != nil {
					return err
				}
				if sub.hits > 0 {
					todo = append(todo, sub)
				}
			}
		}
	}
	if sc.opt.Thread != "" && sc.res.Hits > 0 {
		if err := sc.others(); err != nil {
			return err
		}
	}
	if !sc.opt.Delete || len(todo) == 0 {
		return nil
	}
	return sc.delete(todo)
}

// threads lists the threads to search.
func (sc *scrubber) threads() ([]string, error) {
	if sc.opt.Thread != "" {
		return []string{sc.opt.Thread}, nil
	}
	threads, err := sc.s.Threads(sc.ctx, Page{})
	ids := make([]string, len(threads))
	for i, t := range threads {
		ids[i] = t.ID
	}
	return ids, err
}

// delete deletes what holds a value.
func (sc *scrubber) delete(todo []subject) error {
	if err := sc.s.RequestPurge(); err != nil {
		return err
	}
	for _, sub := range todo {
		if err := sc.ctx.Err(); err != nil {
			return err
		}
		what := fmt.Sprintf("checkpoint %s of thread %s", sc.quoted(sub.id), sc.quoted(sub.thread))
		if sub.id == "" {
			what = fmt.Sprintf("artifact %s of thread %s", sc.quoted(sub.artifact), sc.quoted(sub.thread))
		}
		if sub.faults > 0 {
			sc.res.Kept = append(sc.res.Kept, what+": it could not be searched whole")
			continue
		}
		var err error
		if sub.id != "" {
			_, err = sc.s.holder.Delete(sc.ctx, sub.id, DeleteOptions{})
		} else {
			err = sc.s.holder.RemoveArtifact(sc.ctx, sub.thread, sub.artifact)
		}
		switch {
		case errors.Is(err, index.ErrCheckpointNotFound), errors.Is(err, index.ErrArtifactNotFound), errors.Is(err, index.ErrThreadNotFound):
			// It is gone: by somebody else, or by a daemon that ended before it said so.
		case err != nil && sc.ctx.Err() != nil:
			return err
		case err != nil:
			sc.res.Kept = append(sc.res.Kept, what+": "+sc.set.Mask(err.Error()))
			continue
		}
		hit := ScrubHit{Checkpoint: sc.set.Mask(sub.id), Thread: sc.set.Mask(sub.thread), Artifact: sc.set.Mask(sub.artifact), Values: sub.hits}
		if sub.id != "" {
			sc.res.Deleted++
		} else {
			sc.res.Removed++
		}
		if sc.opt.Deleted != nil {
			if err := sc.opt.Deleted(hit); err != nil {
				return err
			}
		}
	}
	return nil
}

// quoted is an id in a message, without the value.
func (sc *scrubber) quoted(id string) string { return quoted(sc.set.Mask(id)) }

// A scrubber searches a store.
type scrubber struct {
	s     *Store
	ctx   context.Context
	set   *secrets.Set
	opt   ScrubOptions
	found func(ScrubHit) error
	res   ScrubResult
	meter *progress.Meter

	searched map[string]bool // checkpoints, by their record's hash
	own      map[[2]string]bool
	told     map[string]bool // threads, their ids
	parts    map[cas.Key]partFound
	objects  map[cas.Hash]bool  // of trees: whether nothing is in and below it
	lost     map[cas.Hash]error // of trees, that cannot be read
	sets     map[cas.Hash]setFound
	scrubbed
}

func newScrubber(ctx context.Context, s *Store, set *secrets.Set, opt ScrubOptions, found func(ScrubHit) error) *scrubber {
	return &scrubber{
		s: s, ctx: ctx, set: set, opt: opt, found: found, meter: progress.From(ctx),
		searched: map[string]bool{}, own: map[[2]string]bool{}, told: map[string]bool{}, parts: map[cas.Key]partFound{},
		objects: map[cas.Hash]bool{}, lost: map[cas.Hash]error{}, sets: map[cas.Hash]setFound{},
		scrubbed: scrubbed{
			seen: map[cas.Key]struct{}{}, hits: map[cas.Key]int{}, faults: map[cas.Key]error{}, clean: map[cas.Key]struct{}{},
			borders: map[[2]cas.Hash]struct{}{}, buffers: sync.Pool{New: func() any { return new([]byte) }},
		},
	}
}

// hit reports one place of a subject.
func (sc *scrubber) hit(sub *subject, in, path string, values int) error {
	if values == 0 {
		return nil
	}
	sub.hits++
	sc.res.Hits++
	return sc.found(ScrubHit{
		Checkpoint: sc.set.Mask(sub.id), Thread: sc.set.Mask(sub.thread), Artifact: sc.set.Mask(sub.artifact),
		In: in, Path: NewPath(sc.set.Mask(path)), Values: values,
	})
}

// fault reports that a part of a subject cannot be searched. A checkpoint that was
// deleted meanwhile is [errGone]; what keeps the store from being read ends all.
func (sc *scrubber) fault(sub *subject, what string, err error) error {
	if sc.ctx.Err() != nil || !isFinding(err) {
		return err
	}
	if !sub.there {
		var rerr error
		if sub.there, rerr = sc.isThere(sub); rerr != nil {
			return rerr
		}
		if !sub.there {
			return errGone // and gc may have freed what it had
		}
	}
	sub.faults++
	sc.res.Faults++
	if sc.opt.Fault == nil {
		return nil
	}
	return sc.opt.Fault(ScrubFault{
		Checkpoint: sc.set.Mask(sub.id), Thread: sc.set.Mask(sub.thread), What: sc.set.Mask(what), Err: &maskedError{sc.set, err},
	})
}

// isThere looks whether somebody has deleted a subject meanwhile.
func (sc *scrubber) isThere(sub *subject) (bool, error) {
	if sub.id != "" {
		now, err := sc.s.Resolve(sc.ctx, sub.id)
		if errors.Is(err, index.ErrCheckpointNotFound) {
			return false, nil
		}
		return now.ID == sub.id, err
	}
	list, err := sc.s.holder.Artifacts(sc.ctx, sub.thread)
	if errors.Is(err, index.ErrThreadNotFound) {
		return false, nil
	}
	return slices.ContainsFunc(list, func(a Artifact) bool { return a.ID == sub.artifact }), err
}

// doubt forgets what could not be searched of a checkpoint that is gone: what gc took may
// be there again for another one.
func (sc *scrubber) doubt() {
	for key := range sc.faults {
		delete(sc.seen, key)
	}
	clear(sc.faults)
	clear(sc.lost)
	maps.DeleteFunc(sc.objects, func(_ cas.Hash, clean bool) bool { return !clean })
	maps.DeleteFunc(sc.parts, func(_ cas.Key, p partFound) bool { return p.err != nil })
	maps.DeleteFunc(sc.sets, func(_ cas.Hash, s setFound) bool { return s.err != nil })
}
