package snapshot

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// What the record of an archive of ours and its lists say must be true of what is in the
// archive, as it is of every checkpoint that a save made: nothing that [Store.Verify] would
// find gets into a store, nor lists of what is not there.

// checkOmissions refuses what no walk leaves out.
func checkOmissions(left []capture.Omission) error {
	for _, o := range left {
		if o.Why == "" {
			return fmt.Errorf("%s: no reason", quoted(o.Path))
		}
		if o.Path == "." {
			continue
		}
		for part := range strings.SplitSeq(o.Path, "/") {
			if part == "" || part == "." || part == ".." || strings.IndexByte(part, 0) >= 0 {
				return fmt.Errorf("%s is no path below a workspace", quoted(o.Path))
			}
		}
	}
	return nil
}

// entered looks whether an entry of the tree is as the list of secrets says.
func (o *ownArchive) entered(path string, e *tree.Entry) error {
	marked := e.Kind == tree.File && e.Flags&tree.Redacted != 0
	if marked {
		o.marked++
	}
	ranges, ok := o.inFiles[path]
	if !ok {
		return nil
	}
	delete(o.inFiles, path)
	err := error(nil)
	switch {
	case len(ranges) > 0:
		o.listed++
		err = checkRedacted(*e, ranges)
	case e.Kind != tree.File:
		err = fmt.Errorf("a %s in which secrets were found", e.Kind)
	}
	if err != nil {
		return altered("%s: %v", quoted(path), err)
	}
	return nil
}

// agree tells whether the record and its lists agree with one another and with all that
// came.
func (o *ownArchive) agree() error {
	redactions, findings := countSecrets(o.secrets)
	switch {
	case o.rec.Policy.IsZero():
		return altered("its record names no policy")
	case o.rec.Consistency != index.PerFile:
		return altered("its record says a consistency %s", quoted(o.rec.Consistency))
	case o.marked != o.listed:
		return altered("%d files are marked as redacted, its list of secrets has %d of them", o.marked, o.listed)
	}
	for _, n := range []struct {
		what       string
		says, have uint64
	}{
		{"omissions", o.rec.OmissionCount, uint64(len(o.left))},
		{"artifacts", o.rec.ArtifactCount, uint64(len(o.artifacts))},
		{"overwritten values", o.rec.Redactions, redactions},
		{"findings", o.rec.FindingCount, findings},
	} {
		if n.says != n.have {
			return altered("its record says %d %s, its lists have %d", n.says, n.what, n.have)
		}
	}
	left := map[string]bool{}
	for _, at := range o.left {
		left[at.Path] = true
	}
	artifacts := map[string]uint64{} // by name, the longest
	for _, a := range o.artifacts {
		artifacts[a.Name] = max(artifacts[a.Name], a.Blob.Size)
	}
	for _, f := range o.secrets {
		if err := o.found(f, left, artifacts); err != nil {
			return altered("its list of secrets: %s %s: %v", f.Place, quoted(f.Path), err)
		}
	}
	return nil
}

var errNotThere = errors.New("it is not there")

// found tells whether there is what secrets were found in, or it was left out.
func (o *ownArchive) found(f FoundSecrets, left map[string]bool, artifacts map[string]uint64) error {
	size, there := uint64(0), false
	switch f.Place {
	case InFile: // one that came was looked at
		if _, ok := o.inFiles[f.Path]; !ok {
			return nil
		}
		for at := f.Path; at != "."; at = path.Dir(at) {
			if left[at] {
				return nil
			}
		}
		return errNotThere
	case InArtifact:
		if size, there = artifacts[f.Path]; !there && !o.leftOut("artifact "+quoted(f.Path)) {
			return errNotThere
		}
	case InConversation:
		if size = o.rec.Conversation.Size; size == 0 && !o.leftOut("conversation") {
			return errNotThere
		}
	case InRecord:
		text := o.rec.Message
		if key, ok := strings.CutPrefix(f.Path, "label "); ok {
			text = o.rec.Labels[key]
		} else if f.Path != "message" {
			return errNotThere
		}
		size = uint64(len(text))
	}
	if n := len(f.Redacted); n > 0 && uint64(f.Redacted[n-1].End()) > size {
		return fmt.Errorf("values were overwritten up to byte %d, and it has %d", f.Redacted[n-1].End(), size)
	}
	return nil
}

// leftOut reports whether what is no file was left out for what looks like a secret.
func (o *ownArchive) leftOut(what string) bool {
	for _, at := range o.left {
		if at.Path == "." && strings.HasPrefix(at.Why, what+": ") {
			return true
		}
	}
	return false
}
