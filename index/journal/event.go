package journal

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// A Type is the number of a kind of event. It is part of the format.
type Type uint16

// The types. A number is never used again for something else.
const (
	TypePublish        Type = 1
	TypeRename         Type = 2
	TypeDelete         Type = 3
	TypeDeleteThread   Type = 4
	TypeAddArtifact    Type = 5
	TypeRemoveArtifact Type = 6
	TypeLost           Type = 7
	TypeAcquireLease   Type = 8
	TypeReleaseLease   Type = 9
	TypeDeleting       Type = 10
	TypeReceive        Type = 11
	TypeDeleteSome     Type = 12
)

// An Event is a change of something mutable. To add one: a number above, a
// struct with numbered keys, its Type method, a case in decodeEvent, and a case
// where the index applies it.
type Event interface{ Type() Type }

// Publish makes a checkpoint the newest one of its thread, and its head.
type Publish struct {
	Org          string   `cbor:"1,keyasint,omitempty"`
	Checkpoint   string   `cbor:"2,keyasint,omitempty"`
	Thread       string   `cbor:"3,keyasint,omitempty"`
	Record       cas.Hash `cbor:"4,keyasint,omitzero"`
	ExpectedHead string   `cbor:"5,keyasint,omitempty"`
	Name         string   `cbor:"6,keyasint,omitempty"`
	// Artifacts are given to the thread in the same step.
	Artifacts []index.Artifact `cbor:"7,keyasint,omitempty"`
}

// Type returns [TypePublish].
func (Publish) Type() Type { return TypePublish }

// Receive publishes a checkpoint that another store had before. Its record's parent need
// not be the head.
type Receive struct {
	Publish
	Store string `cbor:"8,keyasint,omitempty"` // id of the store that it came from
	Seq   uint64 `cbor:"9,keyasint,omitempty"` // of the entry that published it there
}

// Type returns [TypeReceive].
func (Receive) Type() Type { return TypeReceive }

// Published returns what an event publishes, whichever of the two kinds it is.
func Published(ev Event) (p Publish, from index.Received, ok bool) {
	switch ev := ev.(type) {
	case Publish:
		return ev, index.Received{}, true
	case Receive:
		return ev.Publish, index.Received{Store: ev.Store, Seq: ev.Seq}, true
	}
	return Publish{}, index.Received{}, false
}

// NewPublished is the event that publishes a checkpoint, which may have been received.
func NewPublished(p Publish, from index.Received) Event {
	if from.IsZero() {
		return p
	}
	return Receive{Publish: p, Store: from.Store, Seq: from.Seq}
}

// Rename gives a checkpoint a name, or takes it away.
type Rename struct {
	Org        string `cbor:"1,keyasint,omitempty"`
	Checkpoint string `cbor:"2,keyasint,omitempty"`
	Name       string `cbor:"3,keyasint,omitempty"` // empty: none
}

// Type returns [TypeRename].
func (Rename) Type() Type { return TypeRename }

// Delete removes a checkpoint.
type Delete struct {
	Org        string `cbor:"1,keyasint,omitempty"`
	Checkpoint string `cbor:"2,keyasint,omitempty"`
}

// Type returns [TypeDelete].
func (Delete) Type() Type { return TypeDelete }

// DeleteThread removes a thread with all that belongs to it.
type DeleteThread struct {
	Org    string `cbor:"1,keyasint,omitempty"`
	Thread string `cbor:"2,keyasint,omitempty"`
}

// Type returns [TypeDeleteThread].
func (DeleteThread) Type() Type { return TypeDeleteThread }

// AddArtifact gives a thread an artifact.
type AddArtifact struct {
	Org      string         `cbor:"1,keyasint,omitempty"`
	Thread   string         `cbor:"2,keyasint,omitempty"`
	Artifact index.Artifact `cbor:"3,keyasint,omitzero"`
}

// Type returns [TypeAddArtifact].
func (AddArtifact) Type() Type { return TypeAddArtifact }

// RemoveArtifact takes an artifact away from a thread.
type RemoveArtifact struct {
	Org      string `cbor:"1,keyasint,omitempty"`
	Thread   string `cbor:"2,keyasint,omitempty"`
	Artifact string `cbor:"3,keyasint,omitempty"`
}

// Type returns [TypeRemoveArtifact].
func (RemoveArtifact) Type() Type { return TypeRemoveArtifact }

// Lost stands where an entry was lost; see [Repair]. It changes nothing.
type Lost struct{}

// Type returns [TypeLost].
func (Lost) Type() Type { return TypeLost }

// AcquireLease gives a thread's lease to a writer, whoever had it before. The entry's
// number is the lease's fence. Renewals are not in the journal.
type AcquireLease struct {
	Org     string   `cbor:"1,keyasint,omitempty"`
	Thread  string   `cbor:"2,keyasint,omitempty"`
	Token   cas.Hash `cbor:"3,keyasint,omitzero"` // of the token, which stands nowhere
	Owner   string   `cbor:"4,keyasint,omitempty"`
	Expires int64    `cbor:"5,keyasint,omitempty"` // Unix time in ns, unless it is renewed
	TTL     int64    `cbor:"6,keyasint,omitempty"` // ns that a renewal gives
}

// Type returns [TypeAcquireLease].
func (AcquireLease) Type() Type { return TypeAcquireLease }

// ReleaseLease ends a lease.
type ReleaseLease struct {
	Org    string `cbor:"1,keyasint,omitempty"`
	Thread string `cbor:"2,keyasint,omitempty"`
	Fence  uint64 `cbor:"3,keyasint,omitempty"` // of the lease that ends; another one stays
}

// Type returns [TypeReleaseLease].
func (ReleaseLease) Type() Type { return TypeReleaseLease }

// Deleting decides that checkpoints, or a thread with all that belongs to it, are
// deleted: nobody finds them any more. [Delete], [DeleteSome] or [DeleteThread] ends it.
type Deleting struct {
	Org         string   `cbor:"1,keyasint,omitempty"`
	Checkpoints []string `cbor:"2,keyasint,omitempty"`
	Thread      string   `cbor:"3,keyasint,omitempty"` // the whole thread; then there are no checkpoints
}

// Type returns [TypeDeleting].
func (Deleting) Type() Type { return TypeDeleting }

// DeleteSome removes several checkpoints, as a [Delete] each.
type DeleteSome struct {
	Org         string   `cbor:"1,keyasint,omitempty"`
	Checkpoints []string `cbor:"2,keyasint,omitempty"`
}

// Type returns [TypeDeleteSome].
func (DeleteSome) Type() Type { return TypeDeleteSome }

// An Entry is one event and its place in the journal.
type Entry struct {
	Seq   uint64    // 1 for the first entry, then one more each
	Time  time.Time // of the append, by the writer's clock
	Event Event
	Sum   uint32 // the frame's checksum, so that an index recognizes the entry it applied last
}

// payload is an entry as it is stored. Keys that are not known are ignored, so
// a later version may add some that older ones need not understand; whatever
// they must understand gets a new type.
type payload struct {
	Seq    uint64          `cbor:"1,keyasint"`
	Time   int64           `cbor:"2,keyasint"` // Unix time in ns
	Type   Type            `cbor:"3,keyasint"`
	Fields cbor.RawMessage `cbor:"4,keyasint"`
}

// encMode and decMode are the modes of entries.
var encMode, decMode = index.CBOR(cbor.DecOptions{})

func encodePayload(e Entry) ([]byte, error) {
	fields, err := encMode.Marshal(e.Event)
	if err != nil {
		return nil, err
	}
	return encMode.Marshal(payload{Seq: e.Seq, Time: e.Time.UnixNano(), Type: e.Event.Type(), Fields: fields})
}

func decodePayload(data []byte) (Entry, error) {
	var p payload
	if err := decMode.Unmarshal(data, &p); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", index.ErrCorrupt, err)
	}
	e := Entry{Seq: p.Seq, Time: time.Unix(0, p.Time).UTC()}
	ev, err := decodeEvent(p.Type, p.Fields)
	if err != nil {
		return Entry{}, fmt.Errorf("entry %d: %w", p.Seq, err)
	}
	e.Event = ev
	return e, nil
}

func decodeEvent(t Type, fields []byte) (Event, error) {
	switch t {
	case TypePublish:
		return decodeFields[Publish](fields)
	case TypeRename:
		return decodeFields[Rename](fields)
	case TypeDelete:
		return decodeFields[Delete](fields)
	case TypeDeleteThread:
		return decodeFields[DeleteThread](fields)
	case TypeAddArtifact:
		return decodeFields[AddArtifact](fields)
	case TypeRemoveArtifact:
		return decodeFields[RemoveArtifact](fields)
	case TypeLost:
		return decodeFields[Lost](fields)
	case TypeAcquireLease:
		return decodeFields[AcquireLease](fields)
	case TypeReleaseLease:
		return decodeFields[ReleaseLease](fields)
	case TypeDeleting:
		return decodeFields[Deleting](fields)
	case TypeDeleteSome:
		return decodeFields[DeleteSome](fields)
	case TypeReceive:
		return decodeFields[Receive](fields)
	}
	return nil, fmt.Errorf("event of unknown type %d: %w", t, index.ErrNewer)
}

func decodeFields[E Event](fields []byte) (Event, error) {
	var ev E
	if err := decMode.Unmarshal(fields, &ev); err != nil {
		return nil, fmt.Errorf("%w: %w", index.ErrCorrupt, err)
	}
	return ev, nil
}
