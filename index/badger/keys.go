package badger

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// The tables: first bytes of the keys.
const (
	tApplied    = 'a'
	tLocation   = 'l'
	tThread     = 't'
	tActivity   = 'o'
	tCheckpoint = 'c'
	tSequence   = 's'
	tName       = 'n'
	tTail       = 'd'
	tArtifact   = 'f'
	tLease      = 'w'
	tDeleting   = 'x'
)

// format is the number of this key and value layout. Another one is rebuilt.
const format = 2

var appliedKey = []byte{tApplied}

// appendStr writes str(s). What nobody can have stored gets a length that nothing
// stored has.
func appendStr(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(min(len(s), 0xffff)))
	return append(b, s...)
}

// cutStr is the inverse of appendStr.
func cutStr(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return "", nil, false
	}
	return string(b[:n]), b[n:], true
}

// orgKey begins the keys of one table and organization.
func orgKey(table byte, org string) []byte {
	return appendStr(append(make([]byte, 0, 64), table), org)
}

// threadPrefix begins the keys of one thread in the tables s, n and f.
func threadPrefix(table byte, org, thread string) []byte {
	return appendStr(orgKey(table, org), thread)
}

func threadKey(org, thread string) []byte { return append(orgKey(tThread, org), thread...) }

func activityKey(org string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(orgKey(tActivity, org), ^seq)
}

func checkpointKey(org, id string) []byte { return append(orgKey(tCheckpoint, org), id...) }

func sequenceKey(org, thread string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(threadPrefix(tSequence, org, thread), ^seq)
}

func nameKey(org, thread, name string) []byte {
	return append(threadPrefix(tName, org, thread), name...)
}

func artifactKey(org, thread, id string) []byte {
	return append(threadPrefix(tArtifact, org, thread), id...)
}

func leaseKey(org, thread string) []byte { return append(orgKey(tLease, org), thread...) }

// tailKey returns nil for an id without a dash, which its own key finds.
func tailKey(org, id string) []byte {
	i := strings.LastIndexByte(id, '-')
	if i < 0 {
		return nil
	}
	k := append(orgKey(tTail, org), id[i+1:]...)
	return append(append(k, 0), id...)
}

func appendLocationKey(b []byte, k cas.Key) []byte {
	return append(append(b, tLocation, byte(k.NS)), k.Hash[:]...)
}

const (
	locationKeySize   = 2 + 32
	locationValueSize = 16 + 3*4 + 2
)

func appendLocation(b []byte, l cas.Location) []byte {
	b = append(b, l.Pack[:]...)
	b = binary.BigEndian.AppendUint32(b, l.Offset)
	b = binary.BigEndian.AppendUint32(b, l.Stored)
	b = binary.BigEndian.AppendUint32(b, l.Plain)
	return append(b, byte(l.Kind), byte(l.Encoding))
}

func decodeLocation(b []byte) (cas.Location, error) {
	if len(b) != locationValueSize {
		return cas.Location{}, fmt.Errorf("location of %d bytes: %w", len(b), index.ErrCorrupt)
	}
	return cas.Location{
		Pack:     cas.PackID(b[:16]),
		Offset:   binary.BigEndian.Uint32(b[16:]),
		Stored:   binary.BigEndian.Uint32(b[20:]),
		Plain:    binary.BigEndian.Uint32(b[24:]),
		Kind:     cas.Kind(b[28]),
		Encoding: cas.Encoding(b[29]),
	}, nil
}

// thread is a thread's value.
type thread struct {
	last        uint64 // seq of the last publish, or of what made the thread
	checkpoints uint64
	newBytes    int64
	artifacts   uint64
	created     int64 // Unix time in ns, as all times here; when the journal took that entry
	updated     int64
	head        string
}

func (t thread) encode() []byte {
	b := make([]byte, 0, threadFixed+len(t.head))
	for _, n := range []uint64{t.last, t.checkpoints, uint64(t.newBytes), t.artifacts, uint64(t.created), uint64(t.updated)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, t.head...)
}

// threadFixed is the length of a thread's value without its head.
const threadFixed = 6 * 8

func decodeThread(b []byte) (thread, error) {
	if len(b) < threadFixed {
		return thread{}, fmt.Errorf("thread of %d bytes: %w", len(b), index.ErrCorrupt)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return thread{
		last: n(0), checkpoints: n(1), newBytes: int64(n(2)), artifacts: n(3), created: int64(n(4)), updated: int64(n(5)),
		head: string(b[threadFixed:]),
	}, nil
}

func (t thread) public(id string) index.Thread {
	return index.Thread{
		ID: id, Head: t.head, Checkpoints: int(t.checkpoints), NewBytes: t.newBytes, Artifacts: int(t.artifacts),
		Created: time.Unix(0, t.created).UTC(), Updated: time.Unix(0, t.updated).UTC(),
	}
}

// checkpoint is a checkpoint's value.
type checkpoint struct {
	seq      uint64
	hash     cas.Hash
	ready    bool
	created  int64
	thread   string
	name     string
	message  string
	received index.Received
	record   []byte // encoded; empty if it could not be read
}

// isReceived is a bit of the state: where the checkpoint came from stands before the
// record.
const isReceived = 0x80

func (c checkpoint) encode() []byte {
	b := make([]byte, 0, 65+len(c.thread)+len(c.name)+len(c.message)+len(c.received.Store)+len(c.record))
	b = binary.BigEndian.AppendUint64(b, c.seq)
	b = append(b, c.hash[:]...)
	if c.ready {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	if !c.received.IsZero() {
		b[len(b)-1] |= isReceived
	}
	b = binary.BigEndian.AppendUint64(b, uint64(c.created))
	for _, s := range []string{c.thread, c.name, c.message} {
		b = appendStr(b, s)
	}
	if !c.received.IsZero() {
		b = binary.BigEndian.AppendUint64(appendStr(b, c.received.Store), c.received.Seq)
	}
	return append(b, c.record...)
}

// decodeCheckpoint borrows b for the record.
func decodeCheckpoint(b []byte) (checkpoint, error) {
	const fixed = 8 + 32 + 1 + 8
	if len(b) < fixed {
		return checkpoint{}, fmt.Errorf("checkpoint of %d bytes: %w", len(b), index.ErrCorrupt)
	}
	state := b[40] &^ isReceived
	if state > 1 {
		return checkpoint{}, fmt.Errorf("checkpoint of state %d: %w", b[40], index.ErrCorrupt)
	}
	received := b[40]&isReceived != 0
	c := checkpoint{
		seq: binary.BigEndian.Uint64(b), hash: cas.Hash(b[8:40]), ready: state == 1,
		created: int64(binary.BigEndian.Uint64(b[41:])),
	}
	b = b[fixed:]
	for _, s := range []*string{&c.thread, &c.name, &c.message} {
		var ok bool
		if *s, b, ok = cutStr(b); !ok {
			return checkpoint{}, fmt.Errorf("checkpoint is cut off: %w", index.ErrCorrupt)
		}
	}
	if received {
		var ok bool
		if c.received.Store, b, ok = cutStr(b); !ok || len(b) < 8 {
			return checkpoint{}, fmt.Errorf("checkpoint is cut off: %w", index.ErrCorrupt)
		}
		c.received.Seq, b = binary.BigEndian.Uint64(b), b[8:]
		if c.received.IsZero() {
			return checkpoint{}, fmt.Errorf("checkpoint from nowhere: %w", index.ErrCorrupt)
		}
	}
	c.record = b
	return c, nil
}

func (c checkpoint) public(id string) (index.Checkpoint, error) {
	out := index.Checkpoint{RecordHash: c.hash, Seq: c.seq, Name: c.name, Status: index.Ready, StatusMessage: c.message, Received: c.received}
	if !c.ready {
		out.Status = index.Error
	}
	if len(c.record) == 0 {
		out.Record = index.Record{ID: id, Thread: c.thread, Created: c.created}
		return out, nil
	}
	rec, err := index.DecodeRecord(c.record)
	if err != nil {
		return out, fmt.Errorf("checkpoint %q: %w: %w", id, index.ErrCorrupt, err)
	}
	out.Record = rec
	return out, nil
}

// encodeLease is a lease's value: its thread stands in the key.
func encodeLease(h index.HeldLease) []byte {
	b := make([]byte, 0, leaseFixed+len(h.Owner))
	for _, n := range []uint64{h.Fence, uint64(h.Expires.UnixNano()), uint64(h.TTL)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, h.Token[:]...)
	return append(b, h.Owner...)
}

// leaseFixed is the length of a lease's value without its owner.
const leaseFixed = 3*8 + 32

func decodeLease(thread string, b []byte) (index.HeldLease, error) {
	if len(b) < leaseFixed {
		return index.HeldLease{}, fmt.Errorf("lease of %d bytes: %w", len(b), index.ErrCorrupt)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return index.HeldLease{
		Lease: index.Lease{
			Thread: thread, Fence: n(0), Expires: time.Unix(0, int64(n(1))).UTC(), TTL: time.Duration(n(2)), Owner: string(b[leaseFixed:]),
		},
		Token: cas.Hash(b[24:leaseFixed]),
	}, nil
}

// applied is the value of the table a: how far the journal has been taken in.
type applied struct {
	seq uint64
	sum uint32 // checksum of that entry's frame
}

func (a applied) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, format)
	b = binary.BigEndian.AppendUint64(b, a.seq)
	return binary.BigEndian.AppendUint32(b, a.sum)
}

func decodeApplied(b []byte) (applied, error) {
	if len(b) != 16 || binary.BigEndian.Uint32(b) != format {
		return applied{}, fmt.Errorf("database of another format: %w", index.ErrCorrupt)
	}
	return applied{seq: binary.BigEndian.Uint64(b[4:]), sum: binary.BigEndian.Uint32(b[12:])}, nil
}
