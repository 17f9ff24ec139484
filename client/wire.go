package client

import (
	"encoding/binary"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/snapshot"
)

// MaxKeys bounds the keys in one locate or have request; a caller with more
// sends several.
const MaxKeys = 65536

// Sizes of the binary bodies' items in bytes. Numbers are big-endian.
const (
	HashSize     = 32             // an item of a have request: the hash
	KeySize      = 1 + HashSize   // an item of a locate request: namespace, hash
	LocationSize = 16 + 3*4 + 1*4 // an item of a locate reply: pack, offset, stored, plain, kind, encoding, 2 bytes of zero
)

// Binary is the media type of the binary bodies.
const Binary = "application/octet-stream"

// SessionStart is the first line of the response to POST /v1/sessions. The
// response then stays open as long as the session.
type SessionStart struct {
	ID   string `json:"id" doc:"name of the session in the other routes"`
	Head string `json:"head" doc:"the thread's head when the session began; empty: it had none"`
	// BaseHolds: see [snapshot.Session].
	BaseHolds bool `json:"baseHolds" doc:"the session may rely on all objects of the base that the request named"`
}

// Publish is the body of a publish request.
type Publish struct {
	Record string `json:"record" pattern:"^[0-9a-f]{64}$" doc:"hash of the checkpoint's record, 64 hex digits"`
	Name   string `json:"name,omitempty" doc:"name of the new checkpoint"`
	// Artifacts are given to the thread in the same step.
	Artifacts []snapshot.Artifact `json:"artifacts,omitempty" doc:"to be given to the thread in the same step"`
	// Received: the record's parent need not be the head then.
	Received *snapshot.Received `json:"received,omitempty" doc:"the store that had the checkpoint before"`
}

// Rename is the body of a request to name a checkpoint.
type Rename struct {
	Name string `json:"name" doc:"empty: it has none from now on"`
}

// Artifacts is the reply to GET /v1/threads/{thread}/artifacts.
type Artifacts struct {
	Artifacts []snapshot.Artifact `json:"artifacts"`
}

// Threads is the reply to GET /v1/threads.
type Threads struct {
	Threads []snapshot.Thread `json:"threads"`
}

// Checkpoints is the reply to GET /v1/threads/{thread}/checkpoints.
type Checkpoints struct {
	Checkpoints []snapshot.Checkpoint `json:"checkpoints"`
}

// Findings is the reply to POST /v1/check.
type Findings struct {
	Findings []string `json:"findings" doc:"what is wrong; none: nothing is"`
}

// AppendKeys encodes the body of a locate request.
func AppendKeys(b []byte, keys []cas.Key) []byte {
	for _, k := range keys {
		b = append(b, byte(k.NS))
		b = append(b, k.Hash[:]...)
	}
	return b
}

// ParseKeys decodes the body of a locate request.
func ParseKeys(b []byte) ([]cas.Key, error) {
	if len(b)%KeySize != 0 {
		return nil, fmt.Errorf("body of %d bytes is not a list of keys of %d bytes", len(b), KeySize)
	}
	keys := make([]cas.Key, 0, len(b)/KeySize)
	for ; len(b) > 0; b = b[KeySize:] {
		k := cas.Key{NS: cas.Namespace(b[0]), Hash: cas.Hash(b[1:KeySize])}
		if !k.NS.Valid() {
			return nil, fmt.Errorf("key %d: unknown %s", len(keys), k.NS)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// AppendHashes encodes the body of a have request.
func AppendHashes(b []byte, keys []cas.Key) []byte {
	for _, k := range keys {
		b = append(b, k.Hash[:]...)
	}
	return b
}

// ParseHashes decodes the body of a have request.
func ParseHashes(ns cas.Namespace, b []byte) ([]cas.Key, error) {
	if len(b)%HashSize != 0 {
		return nil, fmt.Errorf("body of %d bytes is not a list of hashes of %d bytes", len(b), HashSize)
	}
	keys := make([]cas.Key, 0, len(b)/HashSize)
	for ; len(b) > 0; b = b[HashSize:] {
		keys = append(keys, cas.Key{NS: ns, Hash: cas.Hash(b[:HashSize])})
	}
	return keys, nil
}

// AppendLocations encodes the reply to a locate request.
func AppendLocations(b []byte, locs []cas.Location) []byte {
	for _, l := range locs {
		b = append(b, l.Pack[:]...)
		b = binary.BigEndian.AppendUint32(b, l.Offset)
		b = binary.BigEndian.AppendUint32(b, l.Stored)
		b = binary.BigEndian.AppendUint32(b, l.Plain)
		b = append(b, byte(l.Kind), byte(l.Encoding), 0, 0)
	}
	return b
}

// ParseLocations decodes the reply to a locate request for n keys.
func ParseLocations(b []byte, n int) ([]cas.Location, error) {
	if len(b) != n*LocationSize {
		return nil, fmt.Errorf("reply of %d bytes for %d locations of %d bytes", len(b), n, LocationSize)
	}
	locs := make([]cas.Location, n)
	for i := range locs {
		at := b[i*LocationSize:]
		locs[i] = cas.Location{
			Pack:     cas.PackID(at[:16]),
			Offset:   binary.BigEndian.Uint32(at[16:]),
			Stored:   binary.BigEndian.Uint32(at[20:]),
			Plain:    binary.BigEndian.Uint32(at[24:]),
			Kind:     cas.Kind(at[28]),
			Encoding: cas.Encoding(at[29]),
		}
	}
	return locs, nil
}

// AppendMissing encodes the reply to a have request: bit i%8 of byte i/8, counted
// from the lowest, is set when the store does not have key i.
func AppendMissing(b []byte, have []bool) []byte {
	start := len(b)
	b = append(b, make([]byte, (len(have)+7)/8)...)
	for i, h := range have {
		if !h {
			b[start+i/8] |= 1 << (i % 8)
		}
	}
	return b
}

// ParseMissing decodes the reply to a have request for n keys: true is an object
// that the store has.
func ParseMissing(b []byte, n int) ([]bool, error) {
	if len(b) != (n+7)/8 {
		return nil, fmt.Errorf("reply of %d bytes for %d keys", len(b), n)
	}
	have := make([]bool, n)
	for i := range have {
		have[i] = b[i/8]&(1<<(i%8)) == 0
	}
	return have, nil
}
