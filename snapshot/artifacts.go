package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// An Artifact is a generated file that belongs to a thread. A checkpoint holds
// those that its thread had when it was saved.
type Artifact struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	MediaType string    `json:"mediaType,omitempty"`
	Size      uint64    `json:"size"` // in bytes
	Hash      string    `json:"hash"` // of the content: BLAKE3, or of its chunk list above 1 MiB; hex
	Created   time.Time `json:"created"`
}

func newArtifact(a index.Artifact) Artifact {
	return Artifact{ID: a.ID, Name: a.Name, MediaType: a.MediaType, Size: a.Blob.Size, Hash: a.Blob.Hash.String(), Created: time.Unix(0, a.Created).UTC()}
}

func newArtifacts(list []index.Artifact) []Artifact {
	docs := make([]Artifact, len(list))
	for i, a := range list {
		docs[i] = newArtifact(a)
	}
	return docs
}

// indexArtifact is the inverse of newArtifact.
func indexArtifact(a Artifact) (index.Artifact, error) {
	hash, err := cas.ParseHash(a.Hash)
	if err != nil {
		return index.Artifact{}, fmt.Errorf("artifact %s: %w: %w", quoted(a.ID), err, index.ErrInvalid)
	}
	return index.Artifact{ID: a.ID, Name: a.Name, MediaType: a.MediaType, Blob: index.Blob{Hash: hash, Size: a.Size}, Created: a.Created.UnixNano()}, nil
}

func indexArtifacts(docs []Artifact) ([]index.Artifact, error) {
	list := make([]index.Artifact, len(docs))
	for i, a := range docs {
		var err error
		if list[i], err = indexArtifact(a); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// An ArtifactFile is a file to become an artifact.
type ArtifactFile struct {
	Path      string
	Name      string // empty: the file's own
	MediaType string // empty: told by the name, else by the content
	Once      bool   // not if the thread has one of the same name, type and content

	below *capture.Root // Name is its path there; nil: it is at Path
}

// name is what the artifact is to be called.
func (f ArtifactFile) name() string {
	if f.Name == "" {
		return filepath.Base(f.Path)
	}
	return f.Name
}

// check refuses what no artifact can have.
func (f ArtifactFile) check() error {
	if f.MediaType != "" {
		if _, _, err := mime.ParseMediaType(f.MediaType); err != nil || !strings.Contains(f.MediaType, "/") {
			return fmt.Errorf("media type %s of artifact %s: want something like text/html: %w", quoted(f.MediaType), quoted(f.Path), ErrRefused)
		}
	}
	if err := index.ValidArtifact(f.name(), f.MediaType); err != nil {
		return WithHint(fmt.Errorf("artifact %s: %w", quoted(f.Path), err), "choose another name for it")
	}
	return nil
}

// putArtifact stores a file's content. It is read like a file of a workspace:
// whole, or it fails. found takes the secrets in it; left tells that it is to be left out
// for these.
func (s *Store) putArtifact(ctx context.Context, w cas.Writer, file ArtifactFile, found *secretsFound) (made Artifact, left bool, err error) {
	f, err := file.open()
	if err != nil {
		return Artifact{}, false, fmt.Errorf("artifact: %w", err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return Artifact{}, false, fmt.Errorf("artifact: %w", err)
	}
	if !before.Mode().IsRegular() {
		return Artifact{}, false, fmt.Errorf("artifact %s is not a regular file: %w", quoted(file.Path), ErrRefused)
	}
	if err := file.check(); err != nil {
		return Artifact{}, false, err
	}
	name := file.name()
	if err := refuse(found.screen.Declared, "artifact's name", name, "artifact's media type", file.MediaType); err != nil {
		return Artifact{}, false, err
	}
	content := found.screen.Contents().Reader(f, found.screen.Stops(name))
	defer content.Close()
	blob, err := cas.WriteBlob(ctx, w, cas.Artifacts, content)
	if found.content(InArtifact, name, content.Report(), err) {
		return Artifact{}, true, nil
	}
	if err != nil {
		return Artifact{}, false, fmt.Errorf("artifact %s: %w", quoted(file.Path), err)
	}
	after, err := f.Stat()
	if err != nil {
		return Artifact{}, false, fmt.Errorf("artifact: %w", err)
	}
	if blob.Size != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return Artifact{}, false, fmt.Errorf("artifact %s changed while it was read: %w", quoted(file.Path), ErrRefused)
	}
	now := s.now()
	a := Artifact{ID: newID(now), Name: name, MediaType: file.MediaType, Size: uint64(blob.Size), Hash: blob.Hash.String(), Created: now.UTC()}
	if a.MediaType == "" {
		if a.MediaType, err = mediaType(f, a.Name); err != nil {
			return Artifact{}, false, fmt.Errorf("artifact %s: %w", quoted(file.Path), err)
		}
	}
	return a, false, nil
}

// mediaType tells a file's type by its name, or by how it begins.
func mediaType(f *os.File, name string) (string, error) {
	if t := mime.TypeByExtension(filepath.Ext(name)); t != "" {
		return t, nil
	}
	start := make([]byte, 512)
	n, err := f.ReadAt(start, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	return http.DetectContentType(start[:n]), nil
}

// AddArtifact gives a thread an artifact, creating the thread if need be. The
// next checkpoint of the thread holds it. Saves into the thread may go on. It returns
// what was found of secrets, too; one that would be left out for these is refused.
func (s *Store) AddArtifact(ctx context.Context, thread string, file ArtifactFile, mode policy.SecretsMode, opt SecretsOptions) (Artifact, []FoundSecrets, error) {
	var found secretsFound
	var err error
	if found.screen, err = opt.screen(mode); err != nil {
		return Artifact{}, nil, err
	}
	if err := refuse(opt.Declared, "thread id", thread); err != nil {
		return Artifact{}, nil, err
	}
	session, err := s.holder.Begin(ctx, BeginRequest{Thread: thread, PID: os.Getpid(), Beside: true})
	if err != nil {
		return Artifact{}, nil, err
	}
	defer session.Close()
	w, end, err := s.newWriter(ctx, session, local.Auto)
	if err != nil {
		return Artifact{}, nil, err
	}
	defer end()
	a, left, err := s.putArtifact(ctx, w, file, &found)
	if left {
		err = WithHint(fmt.Errorf("%s: %w", found.left[0].Why, ErrRefused), "take the secret out of the file")
	}
	if err != nil {
		return Artifact{}, nil, err
	}
	if err := w.Flush(ctx); err != nil {
		return Artifact{}, nil, err
	}
	return a, found.list, session.AddArtifact(ctx, a)
}

// AddArtifact implements [Session].
func (s *localSession) AddArtifact(ctx context.Context, a Artifact) error {
	if err := s.alive(); err != nil {
		return err
	}
	if err := s.h.checkSpace(); err != nil {
		return err
	}
	ia, err := indexArtifact(a)
	if err != nil {
		return err
	}
	if err := s.h.index.AddArtifact(ctx, defaultOrg, s.req.Thread, ia); err != nil {
		return err
	}
	s.mu.Lock()
	made := s.isNew
	s.isNew = false
	s.mu.Unlock()
	if made {
		s.h.notify(Event{Kind: ThreadMade, Thread: s.req.Thread, NewThread: true})
	}
	return nil
}

// RemoveArtifact takes an artifact away from a thread. Checkpoints that hold it
// keep it.
func (s *Store) RemoveArtifact(ctx context.Context, thread, id string) error {
	return s.holder.RemoveArtifact(ctx, thread, id)
}

// Artifacts lists what a checkpoint holds, by id.
func (s *Store) Artifacts(ctx context.Context, ref string) ([]Artifact, error) {
	_, list, err := s.artifacts(ctx, ref)
	return newArtifacts(list), err
}

func (s *Store) artifacts(ctx context.Context, ref string) (Checkpoint, []index.Artifact, error) {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return Checkpoint{}, nil, err
	}
	list, err := readArtifacts(ctx, s.blobs, rec)
	if err != nil {
		return Checkpoint{}, nil, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), err)
	}
	return cp, list, nil
}

// ReadArtifact writes the content of an artifact that a checkpoint holds. It
// fails with [index.ErrArtifactNotFound] when the two do not belong together.
func (s *Store) ReadArtifact(ctx context.Context, ref, id string, out io.Writer) error {
	cp, list, err := s.artifacts(ctx, ref)
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.ID != id {
			continue
		}
		blob := cas.Blob{Hash: a.Blob.Hash, Size: int64(a.Blob.Size)}
		if err := cas.CopyBlob(ctx, out, s.blobs, cas.Artifacts, blob); err != nil {
			return fmt.Errorf("artifact %s of checkpoint %s: %w", quoted(id), quoted(cp.ID), err)
		}
		return nil
	}
	err = fmt.Errorf("checkpoint %s holds no artifact %s: %w", quoted(cp.ID), quoted(id), index.ErrArtifactNotFound)
	return WithHint(err, "snapfs artifact list %s shows those that it holds", quoted(cp.ID))
}

// artifactsFor gathers what a new checkpoint of a thread holds: what the thread
// has, and the files that come with the save.
func (s *Store) artifactsFor(ctx context.Context, w cas.Writer, thread string, files []ArtifactFile, found *secretsFound) (rec index.Blob, count uint64, added []Artifact, err error) {
	all, err := s.holder.Artifacts(ctx, thread)
	if err != nil && !errors.Is(err, index.ErrThreadNotFound) {
		return rec, 0, nil, err
	}
	for _, f := range files {
		a, left, err := s.putArtifact(ctx, w, f, found)
		if err != nil {
			return rec, 0, nil, err
		}
		same := func(b Artifact) bool { return a.Name == b.Name && a.MediaType == b.MediaType && a.Hash == b.Hash }
		if !left && !(f.Once && slices.ContainsFunc(all, same)) {
			added = append(added, a)
		}
	}
	if all = append(all, added...); len(all) == 0 {
		return rec, 0, nil, nil
	}
	slices.SortFunc(all, func(a, b Artifact) int { return strings.Compare(a.ID, b.ID) })
	list, err := indexArtifacts(all)
	if err != nil {
		return rec, 0, nil, err
	}
	data, err := encodeArtifacts(list)
	if err != nil {
		return rec, 0, nil, err
	}
	rec, err = putSmall(ctx, w, data)
	return rec, uint64(len(all)), added, err
}
