package index

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on what users may call things.
const (
	MaxID   = 512 // bytes in the id of a thread, a checkpoint or an organization
	MaxName = 255 // characters in a checkpoint's name
)

// latest is the alias of a thread's head wherever a name may stand.
const latest = "latest"

// ValidID checks a thread's or an organization's id: valid UTF-8 without NUL, 1
// to [MaxID] bytes, and not a single slash (no URL can carry that one). what
// names the thing in the error, which wraps [ErrInvalid].
func ValidID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w %s: it is empty", ErrInvalid, what)
	case len(id) > MaxID:
		return fmt.Errorf("%w %s %s: %d bytes, at most %d are allowed", ErrInvalid, what, quote(id), len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w %s %s: not valid UTF-8", ErrInvalid, what, quote(id))
	case strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w %s %s: it contains a NUL byte", ErrInvalid, what, quote(id))
	case id == "/":
		return fmt.Errorf("%w %s %s: a single slash cannot be an id", ErrInvalid, what, quote(id))
	}
	return nil
}

// ValidCheckpointID checks a checkpoint's id: what [ValidID] asks, and no
// control characters.
func ValidCheckpointID(id string) error { return validCheckpoint("checkpoint id", id) }

func validCheckpoint(what, id string) error {
	if err := ValidID(what, id); err != nil {
		return err
	}
	if strings.IndexFunc(id, unicode.IsControl) >= 0 {
		return fmt.Errorf("%w %s %s: it contains a control character", ErrInvalid, what, quote(id))
	}
	return nil
}

// ValidName checks a checkpoint's name: 1 to [MaxName] characters of valid
// UTF-8 without control characters, and not "latest", which always means the
// thread's head. The error wraps [ErrInvalid].
func ValidName(name string) error {
	const what = "checkpoint name"
	switch {
	case name == "":
		return fmt.Errorf("%w %s: it is empty", ErrInvalid, what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w %s %s: not valid UTF-8", ErrInvalid, what, quote(name))
	case utf8.RuneCountInString(name) > MaxName:
		return fmt.Errorf("%w %s %s: %d characters, at most %d are allowed",
			ErrInvalid, what, quote(name), utf8.RuneCountInString(name), MaxName)
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return fmt.Errorf("%w %s %s: it contains a control character", ErrInvalid, what, quote(name))
	case name == latest:
		return fmt.Errorf("%w %s %q: the word always means the thread's head", ErrInvalid, what, name)
	}
	return nil
}

// Validate checks where a checkpoint came from. The error wraps [ErrInvalid].
func (r Received) Validate() error {
	if r.IsZero() {
		return nil
	}
	if r.Seq == 0 {
		return fmt.Errorf("%w source %s: its number is 0", ErrInvalid, quote(r.Store))
	}
	return ValidID("id of a store", r.Store)
}

// validText checks free text that a record carries.
func validText(what, s string, maxBytes int) error {
	if len(s) > maxBytes {
		return fmt.Errorf("%w %s %s: %d bytes, at most %d are allowed", ErrInvalid, what, quote(s), len(s), maxBytes)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w %s %s: not valid UTF-8", ErrInvalid, what, quote(s))
	}
	return nil
}

// quote makes s fit for a one-line message: quoted, and cut when it is long.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%q...", s[:n])
}

// Limits on what artifacts have, in bytes.
const (
	MaxArtifactName = 4096
	MaxMediaType    = 1024
)

// ValidArtifact checks an artifact's name and its media type: valid UTF-8, of which the
// name is not empty. It is free text besides: it may have slashes and control characters,
// and be ".." or another one's. The error wraps [ErrInvalid].
func ValidArtifact(name, mediaType string) error {
	if name == "" {
		return fmt.Errorf("%w artifact name: it is empty", ErrInvalid)
	}
	if err := validText("artifact name", name, MaxArtifactName); err != nil {
		return err
	}
	return validText("media type", mediaType, MaxMediaType)
}

// Validate checks the rules that an artifact must keep: an id like a
// checkpoint's, and what [ValidArtifact] asks. The error wraps [ErrInvalid].
func (a Artifact) Validate() error {
	if err := validCheckpoint("artifact id", a.ID); err != nil {
		return err
	}
	if err := ValidArtifact(a.Name, a.MediaType); err != nil {
		return err
	}
	if a.Blob.Hash.IsZero() {
		return fmt.Errorf("%w artifact %s: it has no content", ErrInvalid, quote(a.ID))
	}
	if a.Blob.Size > math.MaxInt64 {
		return fmt.Errorf("%w artifact %s: %d bytes, at most %d can be", ErrInvalid, quote(a.ID), a.Blob.Size, math.MaxInt64)
	}
	return nil
}

// ValidForget checks how many checkpoints one change is to delete.
func ValidForget(ids []string) error {
	if len(ids) > MaxForget {
		return fmt.Errorf("%w: %d checkpoints at once, %d at most", ErrInvalid, len(ids), MaxForget)
	}
	return nil
}
