package snapshot

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// A Checkpoint is one version of a thread as users see it: on the command line
// with --json, and over HTTP.
type Checkpoint struct {
	ID            string            `json:"id"`
	Thread        string            `json:"thread"`
	Parent        string            `json:"parent,omitempty"`
	Origin        *Origin           `json:"origin,omitempty"`
	Reason        string            `json:"reason"`
	Name          string            `json:"name,omitempty"`
	Run           string            `json:"run,omitempty"`
	Message       string            `json:"message,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Creator       Creator           `json:"creator"`
	Created       time.Time         `json:"created"`
	Status        string            `json:"status,omitempty"`
	StatusMessage string            `json:"statusMessage,omitempty"`
	Record        string            `json:"record"` // hash of the checkpoint's record, hex
	Tree          string            `json:"tree"`   // hash of the root directory, hex
	Files         uint64            `json:"files"`
	Dirs          uint64            `json:"dirs"`
	Bytes         uint64            `json:"bytes"`
	NewBytes      int64             `json:"newBytes"` // what it added to the store
	Artifacts     uint64            `json:"artifacts"`
	Conversation  bool              `json:"conversation"`
	Consistency   string            `json:"consistency"`
	Policy        string            `json:"policy,omitempty"` // the rules that were in force; only from Show
	Omitted       uint64            `json:"omitted"`
	Omissions     []Omission        `json:"omissions,omitempty"` // only from Show
	Redactions    uint64            `json:"redactions"`          // values of declared secrets that were overwritten
	Findings      uint64            `json:"findings"`            // what looked like a secret
	Secrets       []SecretDoc       `json:"secrets,omitempty"`   // where those were; only from Show
	// Sequence rises with every checkpoint that is published in the store.
	Sequence uint64    `json:"sequence,omitempty"`
	Received *Received `json:"received,omitempty"`
}

// Received tells which store a checkpoint came from, by push or pull.
type Received struct {
	Store    string `json:"store"`    // its id
	Sequence uint64 `json:"sequence"` // of the checkpoint there
}

// Labelled reports whether the checkpoint has all of some labels.
func (c Checkpoint) Labelled(want map[string]string) bool {
	for key, val := range want {
		if got, ok := c.Labels[key]; !ok || got != val {
			return false
		}
	}
	return true
}

// Origin is the checkpoint that a fork came from.
type Origin struct {
	Thread     string `json:"thread"`
	Checkpoint string `json:"checkpoint"`
}

// Creator is who made a checkpoint.
type Creator struct {
	User string `json:"user"`
	Org  string `json:"org"`
}

// Omission is something that was in the workspace and is not in the checkpoint.
type Omission struct {
	Path
	Why string `json:"why"`
}

// A Path is a path of any bytes in JSON: Text when it is valid UTF-8, else Bytes
// in base64 beside a readable form.
type Path struct {
	Text  string `json:"path"`
	Bytes string `json:"pathBytes,omitempty"`
}

// NewPath makes the JSON form of a path.
func NewPath(path string) Path {
	if utf8.ValidString(path) {
		return Path{Text: path}
	}
	readable := bytes.ToValidUTF8([]byte(path), []byte("\uFFFD"))
	return Path{Text: string(readable), Bytes: base64.StdEncoding.EncodeToString([]byte(path))}
}

// Raw returns the path itself.
func (p Path) Raw() string {
	if p.Bytes == "" {
		return p.Text
	}
	raw, err := base64.StdEncoding.DecodeString(p.Bytes)
	if err != nil {
		return p.Text
	}
	return string(raw)
}

// A Thread is one line of work as users see it.
type Thread struct {
	ID          string    `json:"id"`
	Head        string    `json:"head,omitempty"`
	Checkpoints int       `json:"checkpoints"`
	Bytes       int64     `json:"bytes"` // what its checkpoints added to the store
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated"`
}

// Stats counts what a store holds and what its daemon did.
type Stats struct {
	Store       string      `json:"store"`                // directory
	StoreBytes  string      `json:"storeBytes,omitempty"` // see [Path]
	ID          string      `json:"id"`
	Format      int         `json:"format"`
	Threads     int         `json:"threads"`
	Checkpoints int         `json:"checkpoints"`
	Packs       int         `json:"packs"`
	PackBytes   int64       `json:"packBytes"`
	Daemon      int         `json:"daemon,omitempty"` // process id
	Fuse        FuseStats   `json:"fuse"`
	Mounts      []MountInfo `json:"mounts"`
}

// FuseStats counts the kernel's requests of all mounts since the daemon started.
type FuseStats struct {
	Requests map[string]uint64 `json:"requests"` // by the kernel's name of the operation: READ, LOOKUP ...
}

// MountInfo describes one mount.
type MountInfo struct {
	Mountpoint string `json:"mountpoint"`
	Bytes      string `json:"mountpointBytes,omitempty"` // see [Path]
	Inodes     int    `json:"inodes"`                    // that the kernel remembers
}

// newCheckpoint makes the users' form of an index entry.
func newCheckpoint(cp index.Checkpoint) Checkpoint {
	doc := Checkpoint{
		ID:            cp.ID,
		Thread:        cp.Thread,
		Parent:        cp.Parent,
		Reason:        string(cp.Reason),
		Name:          cp.Name,
		Run:           cp.Run,
		Message:       cp.Message,
		Labels:        cp.Labels,
		Creator:       Creator{User: cp.Creator.User, Org: cp.Creator.Org},
		Created:       cp.CreatedAt(),
		Status:        string(cp.Status),
		StatusMessage: cp.StatusMessage,
		Record:        cp.RecordHash.String(),
		Tree:          cp.Root.Tree.String(),
		Files:         cp.Totals.Files,
		Dirs:          cp.Totals.Dirs,
		Bytes:         cp.Totals.Bytes,
		NewBytes:      cp.NewBytes,
		Artifacts:     cp.ArtifactCount,
		Conversation:  !cp.Record.Conversation.IsZero(),
		Consistency:   cp.Consistency,
		Omitted:       cp.OmissionCount,
		Redactions:    cp.Redactions,
		Findings:      cp.FindingCount,
		Sequence:      cp.Seq,
	}
	if !cp.Received.IsZero() {
		doc.Received = &Received{Store: cp.Received.Store, Sequence: cp.Received.Seq}
	}
	if cp.Origin != nil {
		doc.Origin = &Origin{Thread: cp.Origin.Thread, Checkpoint: cp.Origin.Checkpoint}
	}
	return doc
}

// newThread makes the users' form of an index entry.
func newThread(t index.Thread) Thread {
	return Thread{ID: t.ID, Head: t.Head, Checkpoints: t.Checkpoints, Bytes: t.NewBytes, Created: t.Created, Updated: t.Updated}
}

// Show returns a checkpoint with its policy, its omissions, and where secrets were.
func (s *Store) Show(ctx context.Context, ref string) (Checkpoint, error) {
	cp, err := s.holder.Resolve(ctx, ref)
	if err != nil || cp.Deleting() { // what it holds may be gone
		return cp, err
	}
	rec, err := s.Record(ctx, cp)
	if err != nil {
		return Checkpoint{}, err
	}
	rules, err := s.small(ctx, cas.Records, rec.Policy, maxPolicy)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: policy: %w", cp.ID, err)
	}
	cp.Policy = string(rules)
	list, err := s.small(ctx, cas.Records, rec.Omissions, maxList)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: omissions: %w", cp.ID, err)
	}
	if len(list) > 0 {
		left, err := decodeOmissions(list)
		if err != nil {
			return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", cp.ID, err)
		}
		for _, o := range left {
			cp.Omissions = append(cp.Omissions, Omission{Path: NewPath(o.Path), Why: o.Why})
		}
	}
	found, err := s.secrets(ctx, rec)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", cp.ID, err)
	}
	cp.Secrets = secretDocs(found)
	return cp, nil
}

// Limits of what a record names and a reader takes into memory, in bytes. They are
// part of the format; [MaxConversation] is another one.
const (
	maxPolicy = 64 << 20
	maxList   = 256 << 20 // of omissions, of secrets, or of artifacts
)

// small reads a blob that fits in memory; the zero blob is nothing.
func (s *Store) small(ctx context.Context, ns cas.Namespace, b index.Blob, most int64) ([]byte, error) {
	return readSmall(ctx, s.blobs, ns, b, most)
}

func readSmall(ctx context.Context, s cas.Source, ns cas.Namespace, b index.Blob, most int64) ([]byte, error) {
	if b.IsZero() {
		return nil, nil
	}
	return cas.ReadBlob(ctx, s, ns, cas.Blob{Hash: b.Hash, Size: int64(b.Size)}, most)
}

// What a description says at most: a mount keeps it in memory.
const (
	describedOmissions = 10_000
	describedPolicy    = 1 << 20 // bytes
)

// Describe returns what never changes about a checkpoint as an indented JSON
// document: all but its name, its status, and what another store knows otherwise. It has the first 10,000 omissions, the
// first 10,000 places of secrets with as many ranges and findings together, and no
// policy of more than 1 MiB.
func (s *Store) Describe(ctx context.Context, cp Checkpoint) ([]byte, error) {
	full, err := s.Show(ctx, cp.ID)
	if err != nil {
		return nil, err
	}
	full.Name, full.Status, full.StatusMessage = "", "", ""
	full.Sequence, full.Received = 0, nil // another store has others
	full.Omissions = slices.Clone(full.Omissions[:min(len(full.Omissions), describedOmissions)])
	full.Secrets = fewSecrets(full.Secrets)
	if len(full.Policy) > describedPolicy {
		full.Policy = ""
	}
	data, err := json.MarshalIndent(full, "", "  ")
	return append(data, '\n'), err
}
