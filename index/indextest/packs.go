package indextest

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Packs stands for the packs of a store: it keeps records in memory and tells
// where each lies, one object to a pack. It may be used concurrently. It also has the
// clock of the test.
type Packs struct {
	mu      sync.Mutex
	now     time.Time
	objects []index.Located
	bytes   map[cas.Key][]byte
}

// NewPacks returns a store without packs.
func NewPacks() *Packs {
	return &Packs{bytes: make(map[cas.Key][]byte), now: time.Unix(1_700_000_000, 5).UTC()}
}

// Now is the time by which an engine under test has leases expire. It stands still.
func (p *Packs) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Advance moves the time on.
func (p *Packs) Advance(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

// Read returns a record's bytes. It fails with [cas.ErrNotFound].
func (p *Packs) Read(_ context.Context, at index.Located) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.bytes[at.Key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", at.Key, cas.ErrNotFound)
	}
	return append([]byte(nil), b...), nil
}

// All yields the contents of every pack.
func (p *Packs) All(context.Context) iter.Seq2[[]index.Located, error] {
	return func(yield func([]index.Located, error) bool) {
		p.mu.Lock()
		objects := append([]index.Located(nil), p.objects...)
		p.mu.Unlock()
		for i := range objects {
			if !yield(objects[i:i+1:i+1], nil) {
				return
			}
		}
	}
}

// Put stores bytes as an object of the records namespace and returns their
// place, which no index knows yet.
func (p *Packs) Put(data []byte) index.Located {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := cas.NewObject(cas.Records, cas.Data, data)
	at := Place(o.Key, len(p.objects))
	if _, ok := p.bytes[o.Key]; !ok {
		p.objects = append(p.objects, at)
		p.bytes[o.Key] = data
	}
	return at
}

// Fill adds n packs with an object each that is no record.
func (p *Packs) Fill(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		k := len(p.objects)
		p.objects = append(p.objects, Place(cas.NewObject(cas.Files, cas.Data, fmt.Append(nil, k)).Key, k))
	}
}

// Lose forgets an object's bytes, as a damaged pack does.
func (p *Packs) Lose(h cas.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.bytes, cas.Key{NS: cas.Records, Hash: h})
}

// Place makes up the n-th location.
func Place(key cas.Key, n int) index.Located {
	var id cas.PackID
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return index.Located{Key: key, Location: cas.Location{
		Pack: id, Offset: uint32(n), Stored: 100, Plain: 200, Kind: cas.Data, Encoding: cas.Zstd,
	}}
}

// Record makes a valid record.
func Record(thread, id, parent string) index.Record {
	return index.Record{
		ID: id, Thread: thread, Parent: parent, Reason: index.Manual,
		Creator: index.Creator{User: "ada", Org: "default"},
		Created: 1_700_000_000_000_000_000, NewBytes: 10, Consistency: index.PerFile,
		Root:   index.Root{Tree: cas.Data.Sum([]byte(id)), Mode: 0o755, UID: 1000, GID: 1000, MtimeSec: 1_700_000_000},
		Totals: index.Totals{Files: 1, Dirs: 1, Bytes: 5},
	}
}

// Store puts a record into the packs and its place into the index.
func Store(t testing.TB, ix index.Index, packs *Packs, rec index.Record) cas.Hash {
	t.Helper()
	data, err := index.Encode(rec)
	require.NoError(t, err)
	at := packs.Put(data)
	require.NoError(t, ix.AddLocations(t.Context(), []index.Located{at}))
	return at.Key.Hash
}

// Publish stores a record and publishes it; its parent is the expected head.
func Publish(t testing.TB, ix index.Index, packs *Packs, org, name string, rec index.Record) (index.Checkpoint, error) {
	t.Helper()
	return ix.Publish(t.Context(), index.Publish{
		Org: org, Record: Store(t, ix, packs, rec), ExpectedHead: rec.Parent, Name: name,
	})
}
