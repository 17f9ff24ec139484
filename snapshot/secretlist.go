package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

// A SecretPlace says what was searched for secrets. The numbers are part of the format.
type SecretPlace uint8

// The places.
const (
	InFile         SecretPlace = iota // its path in the workspace says which
	InArtifact                        // its name says which; several may have it
	InConversation                    // there is one
	InRecord                          // its path is the field: "message", "label KEY"
)

// String returns the place as it stands in documents.
func (p SecretPlace) String() string {
	switch p {
	case InFile:
		return "file"
	case InArtifact:
		return "artifact"
	case InConversation:
		return "conversation"
	}
	return "record"
}

// FoundSecrets is what was found in one place.
type FoundSecrets struct {
	Place SecretPlace
	Path  string // see [SecretPlace]; any bytes
	secrets.Report
}

// Limits of a list of secrets: it is all in memory when it is read.
const (
	maxFoundSecrets = 4 << 20             // places
	maxRanges       = 16 << 20            // of all places together
	maxFindings     = 4 << 20             // of all places together
	maxKind         = 64                  // bytes
	maxPlace        = index.MaxLabel + 64 // as long as a name of an artifact, too
)

// foundSecrets is the stored form of [FoundSecrets].
type foundSecrets struct {
	Place    SecretPlace     `cbor:"1,keyasint"`
	Path     cbor.ByteString `cbor:"2,keyasint"`
	Ranges   cbor.ByteString `cbor:"3,keyasint,omitempty"` // see [secrets.PackRanges]
	Findings []foundFinding  `cbor:"4,keyasint,omitempty"`
	More     uint64          `cbor:"5,keyasint,omitempty"`
}

type foundFinding struct {
	_    struct{} `cbor:",toarray"`
	Line uint64
	Kind string
}

var secretEnc, secretDec = index.CBOR(cbor.DecOptions{UTF8: cbor.UTF8RejectInvalid})

// encodeSecrets returns the bytes of a record's list of secrets, sorted by place and
// path; artifacts of one name stay in their order. It fails with [cas.ErrTooLarge], and
// refuses what could not be read again.
func encodeSecrets(list []FoundSecrets) ([]byte, error) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, comparePlaces)
	if len(list) > maxFoundSecrets {
		return nil, fmt.Errorf("secrets were found in %d places, at most %d can be listed (exclude what has them): %w", len(list), maxFoundSecrets, cas.ErrTooLarge)
	}
	var c secretChecker
	stored := make([]foundSecrets, len(list))
	for i, f := range list {
		if err := c.check(f); err != nil {
			return nil, fmt.Errorf("encode the list of secrets: %s: %w", quoted(f.Path), err)
		}
		s := foundSecrets{Place: f.Place, Path: cbor.ByteString(f.Path), Ranges: cbor.ByteString(secrets.PackRanges(f.Redacted)), More: uint64(f.More)}
		for _, one := range f.Findings {
			s.Findings = append(s.Findings, foundFinding{Line: uint64(one.Line), Kind: one.Kind})
		}
		stored[i] = s
	}
	data, err := secretEnc.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode the list of secrets: %w", err)
	}
	if len(data) > maxList {
		return nil, fmt.Errorf("the list of where secrets were found has %d bytes, at most %d can be (exclude what has them): %w", len(data), maxList, cas.ErrTooLarge)
	}
	return data, nil
}

// decodeSecrets is the inverse of encodeSecrets. It fails with [cas.ErrCorrupt].
func decodeSecrets(data []byte) ([]FoundSecrets, error) {
	bad := func(why any) ([]FoundSecrets, error) {
		return nil, fmt.Errorf("decode the list of secrets: %v: %w", why, cas.ErrCorrupt)
	}
	n, rest, ok := arrayHead(data)
	const least = 9 // bytes of an entry: its map, three keys, the place, an empty path and one stretch
	if !ok || n > maxFoundSecrets || n > uint64(len(rest)/least) {
		return bad("no list, or one that is too long")
	}
	list := make([]FoundSecrets, 0, n)
	var c secretChecker
	for range n {
		var s foundSecrets
		behind, err := secretDec.UnmarshalFirst(rest, &s)
		if err != nil {
			return bad(err)
		}
		again, err := secretEnc.Marshal(s)
		if err != nil || !bytes.HasPrefix(rest, again) || len(again) != len(rest)-len(behind) {
			return bad("not in its canonical encoding")
		}
		f, err := s.found(maxRanges - c.ranges)
		if err == nil {
			err = c.check(f)
		}
		if err != nil {
			return bad(fmt.Sprintf("%s: %v", quoted(string(s.Path)), err))
		}
		list, rest = append(list, f), behind
	}
	if len(rest) > 0 {
		return bad("bytes follow its end")
	}
	return list, nil
}

// found turns the stored form of at most some ranges back.
func (s foundSecrets) found(most int) (FoundSecrets, error) {
	f := FoundSecrets{Place: s.Place, Path: string(s.Path)}
	if s.More > math.MaxInt {
		return f, errors.New("more findings than can be")
	}
	f.More = int(s.More)
	var err error
	if f.Redacted, err = secrets.UnpackRanges([]byte(s.Ranges), most); err != nil {
		return f, err
	}
	for _, one := range s.Findings {
		if one.Line > math.MaxInt64 {
			return f, errors.New("a finding beyond the last line that can be")
		}
		f.Findings = append(f.Findings, secrets.Finding{Line: int64(one.Line), Kind: one.Kind})
	}
	return f, nil
}

// comparePlaces orders a list of secrets.
func comparePlaces(a, b FoundSecrets) int {
	return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Path, b.Path))
}

// A secretChecker checks a list of secrets entry by entry.
type secretChecker struct {
	last             *FoundSecrets
	ranges, findings int
}

func (c *secretChecker) check(f FoundSecrets) error {
	last := c.last
	c.last = &f
	c.ranges += len(f.Redacted)
	c.findings += len(f.Findings)
	switch {
	case f.Place > InRecord:
		return fmt.Errorf("there is no place %d", uint8(f.Place))
	case (f.Path == "") != (f.Place == InConversation):
		return errors.New("a path where none is, or none where one is")
	case len(f.Path) > maxPlace:
		return fmt.Errorf("a path of %d bytes", len(f.Path))
	case f.Empty():
		return errors.New("nothing was found there")
	case f.More < 0 || f.More > 0 && len(f.Findings) == 0:
		return errors.New("more findings than none")
	case c.ranges > maxRanges || c.findings > maxFindings:
		return fmt.Errorf("more than %d stretches or %d findings (exclude what has them): %w", maxRanges, maxFindings, cas.ErrTooLarge)
	}
	if f.Place == InFile {
		if err := tree.CheckPath(f.Path); err != nil {
			return err
		}
	}
	if last != nil {
		if o := comparePlaces(*last, f); o > 0 || o == 0 && f.Place != InArtifact {
			return errors.New("out of order, or there twice")
		}
	}
	end := int64(0)
	for _, r := range f.Redacted {
		if r.Off < end || r.Len <= 0 || r.Len > math.MaxInt64-r.Off {
			return fmt.Errorf("no stretch of a content behind another: %d bytes at %d", r.Len, r.Off)
		}
		end = r.End()
	}
	line := int64(0)
	for _, one := range f.Findings {
		if one.Line < line {
			return fmt.Errorf("findings out of order at line %d", one.Line)
		}
		line = one.Line
		if one.Kind == "" || len(one.Kind) > maxKind || slices.ContainsFunc([]byte(one.Kind), func(b byte) bool { return b < ' ' || b > '~' }) {
			return fmt.Errorf("no kind of a finding: %s", quoted(one.Kind))
		}
	}
	return nil
}
