package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// errGone ends the check of a checkpoint that was deleted meanwhile.
var errGone = errors.New("the checkpoint is gone")

// part is a list or a text that records name, and what it is to them.
type part struct {
	what string
	ns   cas.Namespace
	blob index.Blob
	most int64 // how long it may be, in bytes
}

// checkpoint follows everything that a checkpoint needs.
func (v *verifier) checkpoint(cp Checkpoint) error {
	v.counts.Checkpoints++
	say := v.bad("checkpoint " + quoted(cp.ID))
	there := false
	err := v.follow(cp, func(what string, err error) error {
		if !there && isFinding(err) {
			now, err := v.s.Resolve(v.ctx, cp.ID)
			if err == nil && now.ID != cp.ID || errors.Is(err, index.ErrCheckpointNotFound) {
				return errGone // and gc may have freed what it had
			}
			if err != nil {
				return err
			}
			there = true
		}
		return say(what, err)
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

func (v *verifier) follow(cp Checkpoint, bad func(what string, err error) error) error {
	rec, err := v.record(cp)
	if err != nil {
		return bad("record", err)
	}
	for _, p := range []struct {
		part
		decode func(data []byte) error
	}{
		{part{"conversation", cas.Conversations, rec.Conversation, MaxConversation}, nil},
		{part{"policy", cas.Records, rec.Policy, maxPolicy}, nil},
		{part{"omissions", cas.Records, rec.Omissions, maxList}, func(data []byte) error { _, err := decodeOmissions(data); return err }},
		{part{"secrets", cas.Records, rec.Secrets, maxList}, func(data []byte) error { _, err := decodeSecrets(data); return err }},
	} {
		if err := v.part(p.part, p.decode); err != nil {
			if err := bad(p.what, err); err != nil {
				return err
			}
		}
	}
	if err := v.artifactList(rec, bad); err != nil {
		return err
	}
	if !rec.Root.XAttrs.IsZero() {
		if _, err := v.s.trees.XAttrs(v.ctx, rec.Root.XAttrs); err != nil {
			if err := bad("extended attributes of the root", err); err != nil {
				return err
			}
		}
	}
	checked, err := v.trees.Check(v.ctx, rec.Root.Tree, func(path string, err error) error {
		if path == "" {
			return bad("tree", err)
		}
		return bad(quoted(path), err)
	})
	if err != nil {
		return err
	}
	if checked.Known && rec.Totals != index.Totals(checked.Totals) {
		if err := bad("record", fmt.Errorf("its counts are not those of its tree: %w", cas.ErrCorrupt)); err != nil {
			return err
		}
	}
	if err := v.redacted(rec, checked.Known, checked.Sound, bad); err != nil {
		return err
	}
	return v.hardLinks(rec, checked.Sound, bad)
}

// record reads a checkpoint's record.
func (v *verifier) record(cp Checkpoint) (index.Record, error) {
	hash, err := cas.ParseHash(cp.Record)
	if err != nil {
		return index.Record{}, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	data, err := v.s.blobs.Read(v.ctx, cas.Key{NS: cas.Records, Hash: hash}, nil)
	if err != nil {
		return index.Record{}, err
	}
	rec, err := index.DecodeRecord(data)
	if err != nil {
		err = fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	return rec, err
}

// part looks at a list or a text, once. Where all bytes are read anyway, only what
// is to be decoded is read.
func (v *verifier) part(p part, decode func(data []byte) error) error {
	if p.blob.IsZero() {
		return nil
	}
	if err, ok := v.parts[p]; ok {
		return err
	}
	c := content{p.ns, cas.Blob{Hash: p.blob.Hash, Size: int64(p.blob.Size)}}
	if err := v.look(v.ctx, c); err != nil {
		return err
	}
	err := v.broken[c]
	if err == nil && p.blob.Size > uint64(p.most) {
		err = fmt.Errorf("%d bytes, at most %d can be: %w", p.blob.Size, p.most, cas.ErrCorrupt)
	}
	if err == nil && (decode != nil || !v.opt.Data) {
		if decode == nil {
			err = v.s.copyPart(v.ctx, io.Discard, p.ns, p.blob, p.most)
		} else {
			var data []byte
			if data, err = v.s.small(v.ctx, p.ns, p.blob, p.most); err == nil {
				err = decode(data)
			}
		}
	}
	if err == nil || isFinding(err) {
		v.parts[p] = err
	}
	return err
}

// artifactList looks at the artifacts that a checkpoint holds. A list of which all
// is well is looked at once.
func (v *verifier) artifactList(rec index.Record, bad func(string, error) error) error {
	if _, ok := v.lists[rec.Artifacts]; ok || rec.Artifacts.IsZero() {
		return nil
	}
	var list []index.Artifact
	if err := v.part(part{"artifacts", cas.Records, rec.Artifacts, maxList}, nil); err != nil {
		return bad("artifacts", err)
	}
	list, err := readArtifacts(v.ctx, v.s.blobs, rec)
	if err != nil {
		return bad("artifacts", err)
	}
	sound := true
	err = v.artifacts(list, func(what string, err error) error {
		sound = false
		return bad(what, err)
	})
	if err == nil && sound {
		v.lists[rec.Artifacts] = struct{}{}
	}
	return err
}

// artifacts looks for the content of every artifact.
func (v *verifier) artifacts(list []index.Artifact, bad func(string, error) error) error {
	contents := make([]content, len(list))
	for i, a := range list {
		contents[i] = content{cas.Artifacts, cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}}
	}
	if err := v.look(v.ctx, contents...); err != nil {
		return err
	}
	for i, a := range list {
		if err := v.broken[contents[i]]; err != nil {
			if err := bad("artifact "+quoted(a.ID), err); err != nil {
				return err
			}
		}
	}
	return nil
}

// A linkList is a list of hard links, and a tree in which they were found to be
// right.
type linkList struct {
	blob   index.Blob
	groups [][]string
	of     map[string]int // path -> group
	root   cas.Hash       // zero: no tree is known to have them right
}

// comparedChanges is how many changes of a tree are looked at before all hard links
// are: two trees of few objects can differ in more paths than anybody can count.
const comparedChanges = 1 << 16

var errLong = errors.New("the trees differ too much")

// hardLinks looks whether the paths that are hard links of one file can be that. A
// checkpoint that has the list of the one before is looked at where the trees
// differ.
func (v *verifier) hardLinks(rec index.Record, sound bool, bad func(string, error) error) error {
	if rec.Links.IsZero() {
		return nil
	}
	if v.links.blob != rec.Links {
		v.links = linkList{of: map[string]int{}}
		data, err := v.s.small(v.ctx, cas.Trees, rec.Links, tree.MaxLinkList)
		if err == nil {
			v.links.groups, err = tree.DecodeLinks(data)
		}
		if err != nil {
			return bad("hard links", err)
		}
		v.links.blob = rec.Links
		for i, group := range v.links.groups {
			for _, path := range group {
				v.links.of[path] = i
			}
		}
	}
	l := &v.links
	ask := l.groups
	if sound && !l.root.IsZero() {
		ask = nil
		touched := map[int]bool{}
		err := v.differing(l.root, rec.Root.Tree, func(path string) {
			if i, ok := l.of[path]; ok && !touched[i] {
				touched[i] = true
				ask = append(ask, l.groups[i])
			}
		})
		switch {
		case errors.Is(err, errLong):
			ask = l.groups
		case err != nil:
			return bad("hard links", err)
		}
	}
	right := true
	for _, group := range ask {
		err := v.hardLink(rec.Root.Tree, group, func(what string, err error) error {
			right = false
			return bad(what, err)
		})
		if err != nil {
			return err
		}
	}
	l.root = cas.Hash{}
	if sound && right {
		l.root = rec.Root.Tree
	}
	return nil
}

// hardLink looks whether paths of a tree can be one file. What lies in a directory
// that is lost is not known.
func (v *verifier) hardLink(root cas.Hash, group []string, bad func(string, error) error) error {
	var first *tree.Entry
	for _, path := range group {
		e, err := v.s.trees.Find(v.ctx, root, path)
		switch {
		case err == nil && e.Kind != tree.File || errors.Is(err, tree.ErrNotFound):
			err = bad("hard links", fmt.Errorf("%s is no file of the tree: %w", quoted(path), cas.ErrCorrupt))
		case err != nil && isFinding(err):
			err = nil
		case err == nil:
			if e.Name = ""; first == nil {
				first = &e
			} else if *first != e {
				err = bad(quoted(path), fmt.Errorf("differs from another hard link of the same file: %w", cas.ErrCorrupt))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
