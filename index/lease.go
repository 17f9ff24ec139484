package index

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/cas"
)

var (
	// ErrWriterConflict: somebody else has the lease of the thread.
	ErrWriterConflict = errors.New("the thread has another writer")
	// ErrWriterLost: the lease that was named is over, or never was one.
	ErrWriterLost = errors.New("the writer has no lease any more")
	// ErrNoWriter: nobody has the lease of the thread.
	ErrNoWriter = errors.New("nobody has the thread's lease")
)

// Bounds of leases.
const (
	MinLease = time.Second
	MaxLease = time.Hour
	MaxOwner = 255 // bytes in the text about an owner
	MaxToken = 128 // bytes in a token
	minToken = 16
)

// A Lease makes its owner the single writer of a thread's checkpoints for a while.
// Nobody needs the thread to be there. Whoever knows the token that it was acquired with
// is the owner; an index keeps a hash of it.
type Lease struct {
	Thread string
	// Fence is the number of the change that made the lease: of two leases of a store, the
	// later one has the higher, whatever happened to them and their threads.
	Fence   uint64
	Owner   string        // free text about who it is
	Expires time.Time     // by the clock of whoever has the index
	TTL     time.Duration // how long it lasts from its last renewal
}

// AcquireLease asks for a lease.
type AcquireLease struct {
	Org    string
	Thread string
	Token  string // made by the caller, see [NewToken]; whoever knows it is the owner
	Owner  string // free text, may be empty
	TTL    time.Duration
}

// NewToken makes a token that nobody can guess: 32 hex digits.
func NewToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// ValidToken reports whether a lease may have the token: 16 to [MaxToken] visible ASCII
// characters.
func ValidToken(token string) bool {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return false
		}
	}
	return len(token) >= minToken && len(token) <= MaxToken
}

// Validate checks what is asked for. The error wraps [ErrInvalid].
func (a AcquireLease) Validate() error {
	if err := errors.Join(ValidID("organization", a.Org), ValidID("thread id", a.Thread), validText("owner", a.Owner, MaxOwner)); err != nil {
		return err
	}
	if a.TTL < MinLease || a.TTL > MaxLease {
		return fmt.Errorf("%w lease of %s: it lasts %s to %s", ErrInvalid, a.TTL, MinLease, MaxLease)
	}
	if !ValidToken(a.Token) {
		return fmt.Errorf("%w token: want %d to %d visible ASCII characters", ErrInvalid, minToken, MaxToken)
	}
	return nil
}

// A HeldLease is a lease as an engine keeps it. The zero value is none.
type HeldLease struct {
	Lease
	Token cas.Hash // of the token, see [HashToken]
}

// HashToken is what is kept of a token.
func HashToken(token string) cas.Hash { return cas.Data.Sum([]byte(token)) }

// NewHeldLease is the lease that is made now for a request that was admitted, but for its
// fence.
func NewHeldLease(a AcquireLease, now time.Time) HeldLease {
	return HeldLease{
		Lease: Lease{Thread: a.Thread, Owner: a.Owner, Expires: now.Add(a.TTL).UTC().Round(0), TTL: a.TTL},
		Token: HashToken(a.Token),
	}
}

// Live reports whether the lease holds.
func (h HeldLease) Live(now time.Time) bool { return h.Fence > 0 && now.Before(h.Expires) }

// Admits tells whether who has the token may publish into the thread now; without a
// token anybody may while there is no live lease. It fails with [ErrWriterConflict] and
// [ErrWriterLost].
func (h HeldLease) Admits(thread, token string, now time.Time) error {
	if token != "" {
		return h.Owned(thread, token, now)
	}
	if h.Live(now) {
		return h.conflict(thread)
	}
	return nil
}

// Owned fails with [ErrWriterLost] unless the lease holds and has the token.
func (h HeldLease) Owned(thread, token string, now time.Time) error {
	same := h.Token == HashToken(token)
	switch {
	case h.Live(now) && same:
		return nil
	case h.Live(now):
		return fmt.Errorf("thread %q is leased to %s now: %w", thread, h.owner(), ErrWriterLost)
	case h.Fence > 0 && same:
		return fmt.Errorf("thread %q: the lease ended at %s: %w", thread, h.Expires.Format(time.RFC3339), ErrWriterLost)
	}
	return fmt.Errorf("thread %q: %w", thread, ErrWriterLost)
}

// Free tells whether a lease may be acquired. It fails with [ErrWriterConflict] while
// somebody else has it; owned says that whoever asks has it already: an answer may have
// been lost.
func (h HeldLease) Free(a AcquireLease, now time.Time) (owned bool, err error) {
	switch {
	case !h.Live(now):
		return false, nil
	case h.Token == HashToken(a.Token):
		return true, nil
	}
	return false, h.conflict(a.Thread)
}

// Renewed is the lease with its whole time before it.
func (h HeldLease) Renewed(now time.Time) HeldLease {
	h.Expires = now.Add(h.TTL).UTC().Round(0)
	return h
}

func (h HeldLease) conflict(thread string) error {
	return fmt.Errorf("thread %q is leased to %s until %s: %w", thread, h.owner(), h.Expires.Format(time.RFC3339), ErrWriterConflict)
}

func (h HeldLease) owner() string {
	if h.Owner == "" {
		return "somebody"
	}
	return fmt.Sprintf("%q", h.Owner)
}
