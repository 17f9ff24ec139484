package index

import (
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/cas"
)

// Limits on a record's free text, in bytes.
const (
	MaxRecord  = 128 << 10 // an encoded record
	MaxMessage = 32 << 10
	MaxLabel   = 4 << 10 // a label's key or value
	MaxLabels  = 256     // number of labels
)

// A Reason says why a checkpoint was made.
type Reason string

// The reasons known today. A record may carry another one, which a newer snapfs
// wrote.
const (
	Manual    Reason = "manual"    // somebody asked for it
	Automatic Reason = "automatic" // a schedule or the end of a run
	Named     Reason = "named"     // it was made to be kept under a name
	Forked    Reason = "fork"      // the first checkpoint of a fork
	Imported  Reason = "import"    // it came from an archive
)

// Consistency values of a record.
const (
	// PerFile: each file is as it was at one moment, the files among themselves
	// need not be.
	PerFile = "per-file"
)

// A Record is the immutable part of a checkpoint. It is stored as an object of
// the records namespace in the encoding of [Encode]. The numbers in the tags
// are part of the format; a number is never used again for something else.
// New fields get new numbers in this map, not in the maps inside of it.
type Record struct {
	ID        string            `cbor:"1,keyasint,omitempty"`
	Thread    string            `cbor:"2,keyasint,omitempty"`
	Parent    string            `cbor:"3,keyasint,omitempty"` // the thread's head before this one; empty: it is the first
	Origin    *Origin           `cbor:"4,keyasint,omitempty"` // what it was forked from
	Reason    Reason            `cbor:"5,keyasint,omitempty"`
	Run       string            `cbor:"6,keyasint,omitempty"` // id of the agent's run
	Message   string            `cbor:"7,keyasint,omitempty"`
	Labels    map[string]string `cbor:"8,keyasint,omitempty"`
	Creator   Creator           `cbor:"9,keyasint,omitzero"`
	Created   int64             `cbor:"10,keyasint,omitempty"` // Unix time in ns, by the writer's clock
	Root      Root              `cbor:"11,keyasint,omitzero"`
	Totals    Totals            `cbor:"12,keyasint,omitzero"` // of the tree
	Links     Blob              `cbor:"13,keyasint,omitzero"` // groups of hard links, in the trees namespace
	Artifacts Blob              `cbor:"14,keyasint,omitzero"` // the list of artifacts

	Conversation  Blob   `cbor:"15,keyasint,omitzero"`  // messages, in the conversations namespace
	Policy        Blob   `cbor:"16,keyasint,omitzero"`  // the policy in force
	Omissions     Blob   `cbor:"17,keyasint,omitzero"`  // what was left out
	OmissionCount uint64 `cbor:"18,keyasint,omitempty"` // entries in Omissions
	ArtifactCount uint64 `cbor:"19,keyasint,omitempty"` // entries in Artifacts
	NewBytes      int64  `cbor:"20,keyasint,omitempty"` // what this save added to the store, in bytes
	Consistency   string `cbor:"21,keyasint,omitempty"`
	Redactions    uint64 `cbor:"22,keyasint,omitempty"` // values of declared secrets that were overwritten: in files, artifacts, conversation and texts
	Secrets       Blob   `cbor:"23,keyasint,omitzero"`  // the list of where secrets were found
	FindingCount  uint64 `cbor:"24,keyasint,omitempty"` // what looked like a secret and was not declared

	// Extra holds the fields that this version does not know, by number, so that
	// a copy of the record loses nothing.
	Extra map[uint64]cbor.RawMessage `cbor:"-"`
}

// CreatedAt returns the time at which the checkpoint was made, in UTC.
func (r Record) CreatedAt() time.Time { return time.Unix(0, r.Created).UTC() }

// An Origin names the checkpoint that a thread was forked from.
type Origin struct {
	Thread     string `cbor:"1,keyasint,omitempty"`
	Checkpoint string `cbor:"2,keyasint,omitempty"`
}

// A Creator is who made a checkpoint.
type Creator struct {
	User string `cbor:"1,keyasint,omitempty"`
	Org  string `cbor:"2,keyasint,omitempty"`
}

// A Root is the root directory's own entry.
type Root struct {
	Tree      cas.Hash `cbor:"1,keyasint,omitzero"`  // the directory object, in the trees namespace
	Mode      uint32   `cbor:"2,keyasint,omitempty"` // permission bits and sticky, as in stat(2)
	UID       uint32   `cbor:"3,keyasint,omitempty"` // together with GID the default owner of all entries
	GID       uint32   `cbor:"4,keyasint,omitempty"`
	MtimeSec  int64    `cbor:"5,keyasint,omitempty"`
	MtimeNsec uint32   `cbor:"6,keyasint,omitempty"`
	XAttrs    cas.Hash `cbor:"7,keyasint,omitzero"` // zero: none
}

// Totals count a whole tree.
type Totals struct {
	Files    uint64 `cbor:"1,keyasint,omitempty"`
	Dirs     uint64 `cbor:"2,keyasint,omitempty"`
	Bytes    uint64 `cbor:"3,keyasint,omitempty"` // sum of the files' lengths
	XAttrs   uint64 `cbor:"4,keyasint,omitempty"` // entries with extended attributes
	Redacted uint64 `cbor:"5,keyasint,omitempty"` // files with overwritten secrets
}

// A Blob names bytes of any length: one object up to [cas.ChunkedSize], else a
// chunk list. The zero value is absent.
type Blob struct {
	Hash cas.Hash `cbor:"1,keyasint,omitzero"`
	Size uint64   `cbor:"2,keyasint,omitempty"` // in bytes
}

// IsZero reports whether b is absent.
func (b Blob) IsZero() bool { return b == Blob{} }

// maxReason bounds the short words of a record, in bytes.
const maxReason = 64

// Validate checks the rules that a record must keep. Its errors wrap
// [ErrInvalid].
func (r Record) Validate() error {
	if err := ValidCheckpointID(r.ID); err != nil {
		return err
	}
	if err := ValidID("thread id", r.Thread); err != nil {
		return err
	}
	if r.Parent != "" {
		if err := validCheckpoint("parent", r.Parent); err != nil {
			return err
		}
		if r.Parent == r.ID {
			return fmt.Errorf("%w parent %s: a checkpoint is not its own parent", ErrInvalid, quote(r.Parent))
		}
	}
	if r.Origin != nil {
		if err := ValidID("origin's thread id", r.Origin.Thread); err != nil {
			return err
		}
		if err := validCheckpoint("origin's checkpoint id", r.Origin.Checkpoint); err != nil {
			return err
		}
	}
	if r.Reason == "" {
		return fmt.Errorf("%w reason: it is empty", ErrInvalid)
	}
	if len(r.Labels) > MaxLabels {
		return fmt.Errorf("%w labels: %d, at most %d are allowed", ErrInvalid, len(r.Labels), MaxLabels)
	}
	texts := []struct {
		what, text string
		most       int
	}{
		{"reason", string(r.Reason), maxReason},
		{"run", r.Run, MaxID},
		{"message", r.Message, MaxMessage},
		{"creator's user", r.Creator.User, MaxID},
		{"creator's organization", r.Creator.Org, MaxID},
		{"consistency", r.Consistency, maxReason},
	}
	for _, t := range texts {
		if err := validText(t.what, t.text, t.most); err != nil {
			return err
		}
	}
	for k, v := range r.Labels {
		if k == "" {
			return fmt.Errorf("%w label: its key is empty", ErrInvalid)
		}
		if err := validText("label", k, MaxLabel); err != nil {
			return err
		}
		if err := validText("value of label "+quote(k), v, MaxLabel); err != nil {
			return err
		}
	}
	return r.validNumbers()
}

func (r Record) validNumbers() error {
	const modes = uint32(fs.ModePerm) | 0o1000 // sticky as stat(2) has it
	switch {
	case r.Root.Tree.IsZero():
		return fmt.Errorf("%w root: it names no tree", ErrInvalid)
	case r.Root.Mode&^modes != 0:
		return fmt.Errorf("%w root mode %#o: only permission bits and sticky are allowed", ErrInvalid, r.Root.Mode)
	case r.Root.MtimeNsec >= 1e9:
		return fmt.Errorf("%w root mtime: %d ns", ErrInvalid, r.Root.MtimeNsec)
	case r.NewBytes < 0:
		return fmt.Errorf("%w number of new bytes %d", ErrInvalid, r.NewBytes)
	}
	for _, n := range []uint64{r.Totals.Files, r.Totals.Dirs, r.Totals.Files + r.Totals.Dirs, r.Totals.Bytes, r.Totals.XAttrs, r.Totals.Redacted, r.OmissionCount, r.ArtifactCount, r.Redactions, r.FindingCount} {
		if n > math.MaxInt64 {
			return fmt.Errorf("%w count %d: at most %d can be", ErrInvalid, n, math.MaxInt64)
		}
	}
	for _, b := range []Blob{r.Links, r.Artifacts, r.Conversation, r.Policy, r.Omissions, r.Secrets} {
		switch {
		case b.Hash.IsZero() && b.Size != 0:
			return fmt.Errorf("%w blob: %d bytes without a hash", ErrInvalid, b.Size)
		case b.Size > math.MaxInt64:
			return fmt.Errorf("%w blob: %d bytes, at most %d can be", ErrInvalid, b.Size, math.MaxInt64)
		}
	}
	return nil
}
