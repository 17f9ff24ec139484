package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// SaveOptions of [Store.Save]. Only Workspace is needed.
type SaveOptions struct {
	Workspace   string // the directory to save
	Thread      string // empty: see [Store.ThreadFor]
	ID          string // of the new checkpoint; empty: made from the time
	Name        string // optional
	Message     string
	Files       policy.FilesOptions
	Compression local.Compression
	Force       bool // also what is refused otherwise: a home directory, the root ...
}

// SaveResult is what a save made.
type SaveResult struct {
	Checkpoint Checkpoint `json:"checkpoint"`
	Excluded   int        `json:"excluded"` // entries that the policy left out, without what lies below them
	Special    int        `json:"special"`  // sockets, FIFOs and devices, which are never saved
	Setuid     int        `json:"setuid"`   // entries whose setuid or setgid bit was dropped
}

// Save stores the workspace as a new checkpoint and makes it the thread's head.
// It is published whole or not at all: see [capture.ErrUnsavable]. It fails with
// [index.ErrStaleHead] when somebody else published into the thread meanwhile,
// and with [ErrBusy] while somebody else is saving into it.
func (s *Store) Save(ctx context.Context, opt SaveOptions) (SaveResult, error) {
	workspace, err := s.checkWorkspace(opt.Workspace, opt.Force)
	if err != nil {
		return SaveResult{}, err
	}
	files, err := policy.CompileFiles(opt.Files)
	if err != nil {
		return SaveResult{}, err
	}
	if opt.Thread == "" {
		if opt.Thread, err = s.ThreadFor(ctx, workspace); err != nil {
			return SaveResult{}, err
		}
	}
	session, err := s.holder.Begin(ctx, BeginRequest{Thread: opt.Thread, ID: opt.ID, Name: opt.Name, PID: os.Getpid()})
	if err != nil {
		return SaveResult{}, err
	}
	defer session.Close()
	blobs := local.New(s.dir, inSession{s.holder, session}, local.Options{Compression: opt.Compression})
	defer blobs.Close()
	w, err := blobs.NewWriter(ctx)
	if err != nil {
		return SaveResult{}, err
	}
	defer w.Close()

	now := time.Now()
	got, err := capture.Tree(ctx, workspace, w, capture.Options{Files: files})
	if err != nil {
		return SaveResult{}, fmt.Errorf("save %s: %w", workspace, err)
	}
	reason := index.Manual
	if opt.Name != "" {
		reason = index.Named
	}
	rec := index.Record{
		ID:            opt.ID,
		Thread:        opt.Thread,
		Parent:        session.Head(),
		Reason:        reason,
		Message:       opt.Message,
		Creator:       creator(),
		Created:       now.UnixNano(),
		Root:          root(got),
		Totals:        index.Totals(got.Root.Totals),
		Links:         blobRef(got.Links),
		OmissionCount: uint64(len(got.Left)),
		Consistency:   index.PerFile,
	}
	if rec.ID == "" {
		rec.ID = newID(now)
	}
	if rec.Policy, err = putSmall(ctx, w, files.Encode()); err != nil {
		return SaveResult{}, err
	}
	if len(got.Left) > 0 {
		list, err := encodeOmissions(got.Left)
		if err != nil {
			return SaveResult{}, err
		}
		if rec.Omissions, err = putSmall(ctx, w, list); err != nil {
			return SaveResult{}, err
		}
	}
	cp, err := publish(ctx, session, w, rec, opt.Name)
	if err != nil {
		return SaveResult{}, err
	}
	s.remember(workspace, opt.Thread)
	return SaveResult{Checkpoint: cp, Excluded: got.Excluded, Special: got.Special, Setuid: got.Setuid}, nil
}

// publish stores the record behind all that it refers to, and makes it the head.
func publish(ctx context.Context, session Session, w cas.Writer, rec index.Record, name string) (Checkpoint, error) {
	rec.NewBytes = w.Stats().Stored
	data, err := index.Encode(rec)
	if err != nil {
		return Checkpoint{}, err
	}
	obj := cas.NewObject(cas.Records, cas.Data, data)
	if err := w.Put(ctx, obj); err != nil {
		return Checkpoint{}, err
	}
	if err := w.Flush(ctx); err != nil {
		return Checkpoint{}, err
	}
	cp, err := session.Publish(ctx, PublishRequest{Record: obj.Key.Hash, Name: name})
	if errors.Is(err, index.ErrStaleHead) {
		return Checkpoint{}, WithHint(err, "somebody else saved into thread %s: look at its head and save again", quoted(rec.Thread))
	}
	return cp, err
}

// root is the record's entry for the root directory.
func root(got capture.Result) index.Root {
	return index.Root{
		Tree: got.Root.Hash, Mode: got.Stat.Mode, UID: got.Stat.UID, GID: got.Stat.GID,
		MtimeSec: got.Stat.MtimeSec, MtimeNsec: got.Stat.MtimeNsec, XAttrs: got.Stat.XAttrs,
	}
}

func blobRef(b cas.Blob) index.Blob { return index.Blob{Hash: b.Hash, Size: uint64(b.Size)} }

// putSmall stores bytes of the records namespace.
func putSmall(ctx context.Context, w cas.Writer, data []byte) (index.Blob, error) {
	blob, err := cas.WriteBlob(ctx, w, cas.Records, bytes.NewReader(data))
	return blobRef(blob), err
}

// newID makes a checkpoint's id: it sorts by time, and two of one second differ.
func newID(now time.Time) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(random[:])
}

// creator is the user of this process.
func creator() index.Creator {
	name := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return index.Creator{User: name, Org: defaultOrg}
}

// checkWorkspace returns the workspace's real path, or refuses it.
func (s *Store) checkWorkspace(dir string, force bool) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("workspace %s is not a directory: %w", dir, ErrRefused)
	}
	if force {
		return real, nil
	}
	refuse := func(why string) error {
		return WithHint(fmt.Errorf("workspace %s %s: %w", dir, why, ErrRefused), "save a directory of its own, or add --force")
	}
	if real == "/" {
		return "", refuse("is the root of the file system")
	}
	if home, err := os.UserHomeDir(); err == nil {
		if home, err = filepath.EvalSymlinks(home); err == nil && home == real {
			return "", refuse("is a home directory")
		}
	}
	store, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	if Within(store, real) || Within(real, store) {
		return "", refuse("and the store " + s.dir + " lie inside one another")
	}
	mounts, err := Mountpoints()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if Within(m.Mountpoint, real) || Within(real, m.Mountpoint) {
			return "", refuse("and the snapfs mount " + m.Mountpoint + " lie inside one another")
		}
	}
	return real, nil
}

// Within reports whether path is dir or lies below it; both are absolute and
// clean.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
