// Package cas names and stores immutable bytes by their content.
//
// The unit is the object: at most [MaxObject] bytes, named by a BLAKE3-256
// hash within a [Namespace]. Equal bytes in one namespace are stored once; two
// namespaces never share. An object proves itself: whoever reads it hashes it
// again and compares.
//
// A blob is the content of one file. Up to [ChunkedSize] bytes it is one
// object of kind [Data]; a longer one is a [List] of content-defined chunks,
// each an object of its own, so that a large file that changed a little costs
// a little and any offset is read without decoding from the start. [WriteBlob]
// and [OpenBlob] hide the difference.
//
// A place that keeps objects implements [Store]. Engines live in folders of
// their own (cas/local: pack files on a disk); castest holds the suite that
// each of them passes.
package cas

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

var (
	// ErrNotFound: the store has no object of that name.
	ErrNotFound = errors.New("object not found")
	// ErrCorrupt: what is stored is damaged or does not hash to its name.
	ErrCorrupt = errors.New("object is damaged")
	// ErrTooLarge: more bytes than one object or one blob can hold.
	ErrTooLarge = errors.New("too large")
	// ErrNoSpace: the place is full, or so nearly full that writing would be a risk.
	ErrNoSpace = errors.New("no space left")
)

// NoSpace marks an error that says that the disk or a quota is full as [ErrNoSpace].
func NoSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", err, ErrNoSpace)
	}
	return err
}

// MaxObject is the longest object in bytes: it leaves room for a record header
// and a footer in a pack of 64 MiB.
const MaxObject = 63 << 20

// A Hash is a BLAKE3-256 digest.
type Hash [32]byte

// String returns the hash as 64 lower-case hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether h is the zero value, which names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads 64 lower-case hex digits.
func ParseHash(s string) (Hash, error) {
	var h Hash
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != s {
		return h, fmt.Errorf("hash %q: want 64 lower-case hex digits", s)
	}
	return Hash(b), nil
}

// A Namespace keeps objects of one use apart from all others.
type Namespace uint8

// The namespaces. Their numbers are part of the format.
const (
	Files         Namespace = 1 // contents of workspace files: blobs, chunks, chunk lists
	Artifacts     Namespace = 2 // contents of artifacts
	Trees         Namespace = 3 // directory objects, segments, xattr sets, link lists
	Conversations Namespace = 4 // saved messages
	Records       Namespace = 5 // checkpoint records, policies, omission lists
)

var namespaceNames = [...]string{Files: "files", Artifacts: "artifacts", Trees: "trees", Conversations: "conversations", Records: "records"}

// Valid reports whether n is one of the defined namespaces.
func (n Namespace) Valid() bool { return n >= Files && n <= Records }

// String returns the namespace's name as it stands in URLs and messages.
func (n Namespace) String() string {
	if !n.Valid() {
		return fmt.Sprintf("namespace %d", uint8(n))
	}
	return namespaceNames[n]
}

// ParseNamespace is the inverse of [Namespace.String].
func ParseNamespace(s string) (Namespace, error) {
	for n := Files; n <= Records; n++ {
		if namespaceNames[n] == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("unknown namespace %q", s)
}

// A Kind says how an object's name is computed from its bytes.
type Kind uint8

// The kinds. Their numbers are part of the format.
const (
	Data Kind = 1 // named by the BLAKE3 of its bytes
	List Kind = 2 // a chunk list, named with BLAKE3's derive-key mode
)

// listContext separates the names of chunk lists from those of data, so that
// no file can be made whose content is somebody's chunk list.
const listContext = "github.com/snapfs/snapfs 2026-11 chunk list v1"

// Sum computes the name of an object of kind k.
func (k Kind) Sum(data []byte) Hash {
	if k == List {
		h := blake3.NewDeriveKey(listContext)
		_, _ = h.Write(data) // a hasher's Write never fails
		var sum Hash
		h.Sum(sum[:0])
		return sum
	}
	return blake3.Sum256(data)
}

// A Key names one object of a store.
type Key struct {
	NS   Namespace
	Hash Hash
}

// String returns namespace/hash.
func (k Key) String() string { return k.NS.String() + "/" + k.Hash.String() }

// An Object is bytes together with their name.
type Object struct {
	Key  Key
	Kind Kind
	Data []byte
}

// NewObject names data. It keeps the slice, not a copy.
func NewObject(ns Namespace, kind Kind, data []byte) Object {
	return Object{Key: Key{NS: ns, Hash: kind.Sum(data)}, Kind: kind, Data: data}
}

// A Store keeps objects. All methods may be called concurrently.
type Store interface {
	// Read appends the object's bytes to dst and returns the longer slice. The
	// bytes were hashed and match the key. It fails with [ErrNotFound] when the
	// store has no such object, with [ErrCorrupt] when it is damaged; dst's own
	// bytes are untouched then.
	Read(ctx context.Context, key Key, dst []byte) ([]byte, error)
	// Has reports, key by key, whether the store has the object. It does not
	// read the object's bytes.
	Has(ctx context.Context, keys []Key) ([]bool, error)
	// NewWriter begins a batch of writes.
	NewWriter(ctx context.Context) (Writer, error)
}

// A Writer adds objects to a store. Its methods may be called concurrently,
// except for Close, which comes last.
type Writer interface {
	// Put adds those of the objects that the store does not have. It borrows
	// the objects' bytes until it returns. What was put is neither durable nor
	// visible to others before Flush returns.
	Put(ctx context.Context, objs ...Object) error
	// Flush makes all that was put before durable and readable through the
	// store. An empty batch costs nothing.
	Flush(ctx context.Context) error
	// Stats tells what this writer has added so far.
	Stats() WriterStats
	// Close drops what was not flushed and frees the writer. A second call does
	// nothing.
	Close() error
}

// WriterStats counts what a [Writer] added; objects that the store already had
// are not in it.
type WriterStats struct {
	Objects int64 // new objects
	Plain   int64 // their length in bytes
	Stored  int64 // what they take in the store in bytes, headers included
}

// Encoding says how a record's payload is stored.
type Encoding uint8

// The encodings. Their numbers are part of the format.
const (
	Raw    Encoding = 0
	Zstd   Encoding = 1
	Snappy Encoding = 2
)

// A PackID is the random name of one pack.
type PackID [16]byte

// String returns the id as 32 lower-case hex digits.
func (p PackID) String() string { return hex.EncodeToString(p[:]) }

// ParsePackID is the inverse of [PackID.String].
func ParsePackID(s string) (PackID, error) {
	var p PackID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(p) || hex.EncodeToString(b) != s {
		return p, fmt.Errorf("pack id %q: want 32 lower-case hex digits", s)
	}
	return PackID(b), nil
}

// A Location says where an object's record lies. The zero value means nowhere.
type Location struct {
	Pack     PackID
	Offset   uint32 // of the record's header in the pack, in bytes
	Stored   uint32 // length of the payload as stored, in bytes
	Plain    uint32 // length of the object, in bytes
	Kind     Kind
	Encoding Encoding
}

// IsZero reports whether l is nowhere.
func (l Location) IsZero() bool { return l.Kind == 0 }

// Located is an object's name and place.
type Located struct {
	Key      Key
	Location Location
}
