package tree

import (
	"fmt"
	"math"
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// A Kind is an entry's file type.
type Kind uint8

// The kinds. Their numbers are part of the format; all others are reserved and
// refused.
const (
	File    Kind = 1
	Dir     Kind = 2
	Symlink Kind = 3
)

// String returns the kind's name as it stands in messages.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "directory"
	case Symlink:
		return "symlink"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags say how a file's stored content differs from the live one. Only files
// have them.
type Flags uint8

// The flags. Their numbers are part of the format; all others are refused.
const (
	Redacted Flags = 1 // secret values in it were overwritten
	Torn     Flags = 2 // it kept changing while it was read

	knownFlags = Redacted | Torn
)

// MaxMode has all mode bits that an entry may have: permissions and sticky.
const MaxMode = 0o1777

const (
	maxNsec  = 999_999_999
	maxCount = math.MaxInt64 // of sizes and totals, so that both fit an off_t
	noID     = math.MaxUint32
)

// An Entry is one name in a directory. Two entries are equal when == says so.
// The strings of a decoded entry share the memory of the whole object: clone
// them before keeping them for long.
type Entry struct {
	Name   string // see [CheckName]
	Kind   Kind
	Mode   uint32 // permission bits and sticky, at most [MaxMode]
	Owned  bool   // has an owner of its own; false: the checkpoint's default owner
	UID    uint32 // zero unless Owned
	GID    uint32 // zero unless Owned
	Flags  Flags  // zero unless a file
	Size   uint64 // File: length in bytes; Symlink: len(Target); Dir: 0
	Hash   cas.Hash
	Target string // Symlink: 1 to [MaxTarget] bytes without NUL, never followed
	// XAttrs names the entry's set of extended attributes in the trees
	// namespace; zero: it has none.
	XAttrs cas.Hash
	// The time of last modification in seconds since 1970, which may be
	// negative, and nanoseconds, below 1e9, that always count forward.
	MtimeSec  int64
	MtimeNsec uint32
}

// check tells whether e is one that the format can hold.
func (e *Entry) check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	if why := e.fault(); why != "" {
		return invalid(fmt.Sprintf("entry %q", e.Name), "%s", why)
	}
	return nil
}

// fault says what is wrong with e, apart from its name.
func (e *Entry) fault() string {
	switch {
	case e.Mode > MaxMode:
		return fmt.Sprintf("mode %#o has more than permission bits and sticky", e.Mode)
	case !e.Owned && (e.UID != 0 || e.GID != 0):
		return "an owner stands beside the default owner"
	case e.UID == noID || e.GID == noID:
		return "its owner is -1, which means no owner"
	case e.MtimeNsec > maxNsec:
		return fmt.Sprintf("%d nanoseconds are a second or more", e.MtimeNsec)
	case e.Size > maxCount:
		return fmt.Sprintf("a size of %d bytes is too large", e.Size)
	case e.Flags&^knownFlags != 0:
		return fmt.Sprintf("flags %#x are not known", uint8(e.Flags))
	case e.Flags != 0 && e.Kind != File:
		return "only a file has flags"
	case e.Target != "" && e.Kind != Symlink:
		return "only a symlink has a target"
	}
	switch e.Kind {
	case File:
		if e.Hash.IsZero() {
			return "the file has no content hash"
		}
	case Dir:
		if e.Hash.IsZero() {
			return "the directory has no hash"
		}
		if e.Size != 0 {
			return "the directory has a size"
		}
	case Symlink:
		switch {
		case !e.Hash.IsZero():
			return "the symlink has a hash"
		case e.Target == "" || len(e.Target) > MaxTarget:
			return fmt.Sprintf("the symlink's target has %d bytes", len(e.Target))
		case strings.IndexByte(e.Target, 0) >= 0:
			return "the symlink's target contains a NUL byte"
		case e.Size != uint64(len(e.Target)):
			return "the symlink's size is not its target's length"
		}
	default:
		return fmt.Sprintf("%s is not known", e.Kind)
	}
	return ""
}
