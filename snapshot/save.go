package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/tree"
)

// SaveOptions of [Store.Save]. Only Workspace is needed.
type SaveOptions struct {
	Workspace string // the directory to save
	Thread    string // empty: see [Store.ThreadFor]
	ID        string // of the new checkpoint; empty: made from the time
	Name      string // optional
	Parent    string // must be the head, as a reference; empty: whatever is
	Run       string // id of the agent's run: the id becomes checkpoint-RUN, the reason automatic
	Automatic bool   // the reason is automatic, whether or not there is a Run
	Message   string
	Labels    map[string]string
	Artifacts []ArtifactFile // to become the thread's, and so the checkpoint's
	// ArtifactsDir is a directory of which each regular file becomes an artifact, called by
	// its path below it, unless the thread has one of the same name, type and content; "":
	// none.
	ArtifactsDir string
	// Conversation yields a JSON array of messages to be kept with the files; nil: none.
	// A [Conversation] was looked through before, anything else is read as by
	// [ReadConversation], and stays open.
	Conversation io.Reader
	// SkipUnreadable publishes without what could not be read; that is listed.
	SkipUnreadable bool
	AllowTorn      bool // keeps what changes each time it is read, marked and listed
	Files          policy.FilesOptions
	Settings       policy.Settings // limits, which ignore files of the workspace count, what looks like a secret
	Secrets        SecretsOptions
	Compression    local.Compression
	FullScan       bool // read all files, whatever is known of them from the last save
	Force          bool // also what is refused otherwise: a home directory, the root ...
	// Lease is the token of the caller's lease of the thread; empty: it has none.
	Lease string
	// Wait is how long to wait for another save into the thread, or somebody else's lease
	// of it, to end; 0: it fails at once.
	Wait time.Duration
}

// SaveResult is what a save made.
type SaveResult struct {
	Checkpoint Checkpoint `json:"checkpoint"`
	Excluded   int        `json:"excluded"`   // entries that the policy left out, without what lies below them
	Special    int        `json:"special"`    // sockets, FIFOs, devices, SQLite's shared memory, which are never saved
	Setuid     int        `json:"setuid"`     // entries whose setuid or setgid bit was dropped
	Unreadable int        `json:"unreadable"` // entries that could not be read and were skipped, as was asked for
	Read       int64      `json:"read"`       // bytes of contents that were read: what has not changed since the last save is not
	Grew       int        `json:"grew"`       // files that were appended to meanwhile, and are as they were at first
	Torn       int        `json:"torn"`       // files that changed each time they were read and were kept, as was asked for
	Over       int        `json:"over"`       // files over the limit that were left out, as was asked for
	Secret     int        `json:"secret"`     // what was left out for the secrets in it
	// Found says where secrets were found, by place and path.
	Found []FoundSecrets `json:"-"`
	// LeftForSecrets are lines about artifacts and the conversation, if they were left
	// out for the secrets in them.
	LeftForSecrets []string `json:"-"`
	// Warnings are lines for the user: rules of ignore files that do not count, a
	// directory that rules have emptied, a tree without files, includes for nothing.
	Warnings []string `json:"warnings,omitempty"`
	// Scanned says why all of an instant workspace had to be read, and not only what was
	// changed in it; empty: it had not, or that was asked for.
	Scanned string `json:"scanned,omitempty"`
}

// Save stores the workspace as a new checkpoint and makes it the thread's head.
// It is published whole or not at all: see [capture.ErrUnsavable]. It fails with
// [index.ErrStaleHead] when somebody else published into the thread meanwhile,
// with [ErrBusy] while somebody else is saving into it, with [index.ErrWriterConflict]
// while somebody else has its lease, and with [index.ErrWriterLost] when the lease that
// it names is over.
func (s *Store) Save(ctx context.Context, opt SaveOptions) (SaveResult, error) {
	workspace, err := checkWorkspace(s.dir, opt.Workspace, opt.Force)
	if err != nil {
		return SaveResult{}, err
	}
	instant, err := s.instant(workspace)
	if err != nil {
		return SaveResult{}, err
	}
	found := secretsFound{}
	var files *policy.Files
	if files, found.screen, err = opt.compile(); err != nil {
		return SaveResult{}, err
	}
	opt.Settings.Secrets = found.screen.Mode
	for _, file := range opt.Artifacts {
		if err := file.check(); err != nil {
			return SaveResult{}, err
		}
	}
	conversation, done, err := conversationOf(opt.Conversation) // before anything is read that takes long
	if err != nil {
		return SaveResult{}, err
	}
	defer done()
	if opt.Thread == "" {
		if opt.Thread, err = s.ThreadFor(ctx, workspace); err != nil {
			return SaveResult{}, err
		}
	}
	opt.ID = opt.id()
	rules := opt.rules(files)
	declared := opt.Secrets.Declared
	if err := opt.check(rules); err != nil {
		return SaveResult{}, err
	}
	labels := found.labels(opt.Labels)
	begin, err := s.beginRequest(ctx, opt)
	if err != nil {
		return SaveResult{}, err
	}
	var lower *capture.Lower
	scanned := ""
	if instant != nil && !opt.FullScan && !opt.Force {
		if lower, scanned, err = s.lower(ctx, instant, rules); err != nil {
			return SaveResult{}, err
		}
	}
	var known *capture.Known
	var knownBase Base
	var good knownFor
	if s.dir != "" {
		good = s.goodFor(files, opt.Settings, found.screen)
		if good.Aside, err = s.asidePacks(); err != nil { // before the session begins: a repair may set more aside
			return SaveResult{}, err
		}
		if !opt.FullScan {
			file, err := s.knownPath(read(workspace, lower), opt.Thread)
			if err != nil {
				return SaveResult{}, err
			}
			known, knownBase, found.screen.Fewer = s.loadKnown(file, good)
			begin.Base = knownBase
			if lower != nil {
				begin.Base = Base{Checkpoint: instant.Checkpoint, Record: instant.Record}
			}
		}
	}
	session, err := s.begin(ctx, begin, opt.Wait)
	if err != nil {
		return SaveResult{}, err
	}
	defer session.Close()
	if !session.BaseHolds() {
		if known = nil; lower != nil {
			lower, scanned = nil, "the store has damaged objects"
		}
	}
	if lower != nil && known != nil && !s.there(ctx, knownBase) {
		known = nil
	}
	if meter := progress.From(ctx); meter != nil && session.Head() != "" {
		if head, err := s.Resolve(ctx, session.Head()); err == nil { // about as much as last time
			meter.Expect(int64(head.Files), int64(head.Bytes))
		}
	}
	found.screen.Before = s.overwrittenIn(ctx, session.Head())
	w, end, err := s.newWriter(ctx, session, opt.Compression)
	if err != nil {
		return SaveResult{}, err
	}
	defer end()

	var messages index.Blob
	if conversation != nil {
		if messages, err = found.conversation(ctx, w, conversation); err != nil {
			return SaveResult{}, err
		}
	}
	now := s.now()
	copt := capture.Options{Files: files, Known: known, SkipUnreadable: opt.SkipUnreadable, AllowTorn: opt.AllowTorn, Settings: opt.Settings, Screen: found.screen, Lower: lower}
	if opt.Force {
		if copt.Skip, err = skipped(s.dir); err != nil {
			return SaveResult{}, err
		}
	}
	got, err := capture.Tree(ctx, workspace, w, copt)
	if errors.Is(err, capture.ErrNeedsScan) {
		scanned = strings.TrimPrefix(err.Error(), capture.ErrNeedsScan.Error()+": ")
		copt.Lower, copt.Known, copt.Screen.Fewer = nil, nil, false
		got, err = capture.Tree(ctx, workspace, w, copt)
	}
	if instant != nil && errors.Is(err, unix.ENOTCONN) {
		err = WithHint(err, "what lies below the workspace is served no more: snapfs workspace repair %s", tree.QuoteShell(opt.Workspace))
	}
	if err != nil {
		return SaveResult{}, saveError(err, workspace, opt.Workspace)
	}
	reason := index.Manual
	switch {
	case opt.Run != "" || opt.Automatic:
		reason = index.Automatic
	case opt.Name != "":
		reason = index.Named
	}
	rec := index.Record{
		ID:          opt.ID,
		Thread:      opt.Thread,
		Parent:      session.Head(),
		Reason:      reason,
		Run:         opt.Run,
		Message:     found.text("message", opt.Message),
		Labels:      labels,
		Creator:     creator(),
		Created:     now.UnixNano(),
		Root:        root(got),
		Totals:      index.Totals(got.Root.Totals),
		Links:       blobRef(got.Links),
		Consistency: index.PerFile,

		Conversation: messages,
	}
	if rec.ID == "" {
		rec.ID = newID(now)
		if err := refuse(declared, "id", rec.ID); err != nil {
			return SaveResult{}, err
		}
	}
	rules.Ignore = got.Ignore
	if rec.Policy, err = putSmall(ctx, w, rules.Encode()); err != nil {
		return SaveResult{}, err
	}
	if opt.ArtifactsDir != "" {
		made, err := s.artifactsIn(opt.ArtifactsDir, declared)
		if err != nil {
			return SaveResult{}, err
		}
		defer made.root.Close()
		opt.Artifacts = append(slices.Clone(opt.Artifacts), made.files...)
		if made.passed > 0 {
			got.Warnings = append(got.Warnings, fmt.Sprintf("no artifacts: %d symlinks, special files or files with names that no artifact can have in %s", made.passed, quoted(opt.ArtifactsDir)))
		}
	}
	var added []Artifact
	if rec.Artifacts, rec.ArtifactCount, added, err = s.artifactsFor(ctx, w, opt.Thread, opt.Artifacts, &found); err != nil {
		return SaveResult{}, err
	}
	if err := found.put(ctx, w, &rec, got); err != nil {
		return SaveResult{}, err
	}
	cp, err := publish(ctx, session, w, rec, PublishRequest{Name: opt.Name, Artifacts: added})
	if err != nil {
		return SaveResult{}, err
	}
	s.remember(workspace, opt.Thread)
	if s.dir != "" {
		good.Base = Base{Checkpoint: cp.ID, Record: cp.Record}
		file, err := s.knownPath(read(workspace, copt.Lower), opt.Thread)
		if err != nil {
			s.log.Warn("cannot keep what is known of the workspace: the next save reads all of it", "error", err)
		} else {
			s.saveKnown(file, got.Known, good)
		}
	}
	if instant != nil {
		s.noteSaved(instant, cp)
	}
	res := saveResult(got)
	res.Scanned = scanned
	res.Checkpoint = cp
	for _, o := range found.left {
		res.Secret++
		res.LeftForSecrets = append(res.LeftForSecrets, o.Why)
	}
	res.Found = found.list
	return res, nil
}

// read is the directory that a capture reads of a workspace.
func read(workspace string, lower *capture.Lower) string {
	if lower != nil {
		return lower.Upper
	}
	return workspace
}

// there reports whether a checkpoint is there. Its objects stay for a session that has
// begun before.
func (s *Store) there(ctx context.Context, base Base) bool {
	cp, err := s.Resolve(ctx, base.Checkpoint)
	return err == nil && cp.ID == base.Checkpoint && cp.Record == base.Record
}

// saveResult is what a capture counted.
func saveResult(got capture.Result) SaveResult {
	return SaveResult{
		Excluded: got.Excluded, Special: got.Special, Setuid: got.Setuid,
		Unreadable: got.Unreadable, Read: got.Read, Grew: got.Grew, Torn: got.Torn, Over: got.Over, Secret: got.Secret, Warnings: got.Warnings,
	}
}

// saveError says which workspace could not be captured. given is how the user calls
// it.
func saveError(err error, workspace, given string) error {
	if errors.Is(err, capture.ErrUnfinished) {
		if e := restore.Unfinished(workspace); e != nil {
			err = unfinishedHint(err, e, given)
		}
	}
	return fmt.Errorf("save %s: %w", quoted(workspace), err)
}

// publish stores the record behind all that it refers to, and makes it the head.
func publish(ctx context.Context, session Session, w cas.Writer, rec index.Record, req PublishRequest) (Checkpoint, error) {
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
	req.Record = obj.Key.Hash
	cp, err := session.Publish(ctx, req)
	if errors.Is(err, index.ErrStaleHead) {
		return Checkpoint{}, WithHint(err, "somebody else saved into thread %s: look at its head and save again", quoted(rec.Thread))
	}
	if errors.Is(err, cas.ErrTooLarge) && len(req.Artifacts) > 0 {
		err = fmt.Errorf("%d artifacts with such names are more than a thread can get in one step: %w", len(req.Artifacts), err)
		if rec.Reason == index.Forked {
			return Checkpoint{}, WithHint(err, "fork a checkpoint that holds fewer of them")
		}
		return Checkpoint{}, WithHint(err, "snapfs artifact add %s FILE gives it some of them before", quoted(rec.Thread))
	}
	return cp, waitHint(err, rec.Thread)
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

// skipped says of a directory why it is not content although it lies in the
// workspace: the store itself, and what a mount of ours shows. Only a forced
// save can meet them. dir is the store's; it is empty if there is none.
func skipped(dir string) (func(dev, ino uint64) string, error) {
	var store unix.Stat_t
	if dir != "" {
		if err := unix.Stat(dir, &store); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	mounts, err := Mountpoints()
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, m := range mounts {
		ours[m.Device] = true
	}
	return func(dev, ino uint64) string {
		switch {
		case dir != "" && store.Dev == dev && store.Ino == ino:
			return "the store"
		case ours[fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))]:
			return "a snapfs mount"
		}
		return ""
	}, nil
}

// checkWorkspace returns the workspace's real path, or refuses it. store is the
// store's directory; it is empty if there is none.
func checkWorkspace(store, dir string, force bool) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("workspace %s: %w", quoted(dir), err)
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
		return "", fmt.Errorf("workspace %s is not a directory: %w", quoted(dir), ErrRefused)
	}
	if force {
		return real, nil
	}
	why, err := hazard(store, real)
	if err != nil {
		return "", err
	}
	if why != "" {
		return "", WithHint(fmt.Errorf("workspace %s %s: %w", quoted(dir), why, ErrRefused), "save a directory of its own, or add --force")
	}
	return real, nil
}

// hazard says why a real directory is not likely to be meant as a workspace; "": it may
// be one. store is the store's directory, or empty.
func hazard(store, real string) (why string, err error) {
	if real == "/" {
		return "is the root of the file system", nil
	}
	if home, err := os.UserHomeDir(); err == nil {
		if home, err = filepath.EvalSymlinks(home); err == nil && home == real {
			return "is a home directory", nil
		}
	}
	if store == "" {
		return "", nil // in memory
	}
	realStore, err := filepath.EvalSymlinks(store)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	if Within(realStore, real) || Within(real, realStore) {
		return "and the store " + quoted(store) + " lie inside one another", nil
	}
	mounts, err := Mountpoints()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if Within(m.Mountpoint, real) || Within(real, m.Mountpoint) {
			return "and the snapfs mount " + quoted(m.Mountpoint) + " lie inside one another", nil
		}
	}
	return "", nil
}

// Within reports whether path is dir or lies below it; both are absolute and
// clean.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
