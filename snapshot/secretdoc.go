package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// SecretDoc is what was found of secrets in one place of a checkpoint.
type SecretDoc struct {
	In string `json:"in"` // "file", "artifact", "conversation" or "record"
	// Path is the file's, the artifact's name or the field of the record; empty of the
	// conversation.
	Path
	Redacted     uint64       `json:"redacted"`         // values that were overwritten
	Ranges       [][2]int64   `json:"ranges,omitempty"` // offset and length of each, in bytes
	Findings     []FindingDoc `json:"findings,omitempty"`
	MoreFindings int          `json:"moreFindings,omitempty"` // beyond those
}

// FindingDoc is what looks like a secret.
type FindingDoc struct {
	Line int64  `json:"line"` // from 1; 0: the content has no lines
	Kind string `json:"kind"`
}

// secrets reads what was found of secrets in a checkpoint.
func (s *Store) secrets(ctx context.Context, rec index.Record) ([]FoundSecrets, error) {
	data, err := s.small(ctx, cas.Records, rec.Secrets, maxList)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	return decodeSecrets(data)
}

// overwritten tells, by path, where values were overwritten in a checkpoint's files.
func (s *Store) overwritten(ctx context.Context, rec index.Record) (map[string][]secrets.Range, error) {
	list, err := s.secrets(ctx, rec)
	if err != nil {
		err = fmt.Errorf("where secrets were overwritten: %w", err)
		if isFinding(err) {
			err = WithHint(err, "restore into a new directory, or leave the file out with --exclude: what it has there would be lost")
		}
		return nil, err
	}
	ranges := map[string][]secrets.Range{}
	for _, f := range list {
		if f.Place == InFile && len(f.Redacted) > 0 {
			ranges[f.Path] = f.Redacted
		}
	}
	return ranges, nil
}

// secretDocs makes the users' form of a list of secrets.
func secretDocs(list []FoundSecrets) []SecretDoc {
	var docs []SecretDoc
	for _, f := range list {
		doc := SecretDoc{In: f.Place.String(), Path: NewPath(f.Path), Redacted: uint64(len(f.Redacted)), MoreFindings: f.More}
		for _, r := range f.Redacted {
			doc.Ranges = append(doc.Ranges, [2]int64{r.Off, r.Len})
		}
		for _, one := range f.Findings {
			doc.Findings = append(doc.Findings, FindingDoc(one))
		}
		docs = append(docs, doc)
	}
	return docs
}

// What a description has of secrets at most.
const (
	describedSecrets = 10_000 // places
	describedDetails = 10_000 // ranges and findings, of all places together
)

// fewSecrets cuts a list to what a description has.
func fewSecrets(list []SecretDoc) []SecretDoc {
	var few []SecretDoc
	left := describedDetails
	for _, doc := range list[:min(len(list), describedSecrets)] {
		if len(doc.Ranges) > left {
			doc.Ranges = nil
		}
		left -= len(doc.Ranges)
		if len(doc.Findings) > left {
			doc.MoreFindings += len(doc.Findings)
			doc.Findings = nil
		}
		left -= len(doc.Findings)
		few = append(few, doc)
	}
	return few
}

// overwrittenIn tells where values were overwritten in the files of the checkpoint before
// a save, and what these are since then. Without one, or where it cannot be read, that is
// nothing: the save does without.
func (s *Store) overwrittenIn(ctx context.Context, head string) map[string]capture.Overwritten {
	if head == "" {
		return nil
	}
	_, rec, err := s.record(ctx, head)
	if err != nil || rec.Totals.Redacted == 0 {
		return nil
	}
	ranges, err := s.overwritten(ctx, rec)
	if err != nil {
		s.log.Warn("cannot read where the checkpoint before has zero bytes in place of secrets", "checkpoint", head, "error", err)
		return nil
	}
	files := map[string]capture.Overwritten{}
	for path, list := range ranges {
		if e, err := s.trees.Find(ctx, rec.Root.Tree, path); err == nil && e.Flags&tree.Redacted != 0 {
			files[path] = capture.Overwritten{Hash: e.Hash, Ranges: list}
		}
	}
	return files
}
