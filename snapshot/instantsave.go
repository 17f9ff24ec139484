package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// lower is the checkpoint below an instant workspace, as a capture that reads only the
// upper layer needs it. It is nil with the reason where all of the workspace has to be
// read: what a capture with these rules would make of the checkpoint's own files nobody
// knows then.
func (s *Store) lower(ctx context.Context, w *InstantWorkspace, rules policy.Recorded) (l *capture.Lower, why string, err error) {
	rec, err := s.Record(ctx, Checkpoint{ID: w.Checkpoint, Record: w.Record})
	if err != nil {
		return nil, "", err
	}
	saved, _, err := s.savedPolicy(ctx, rec)
	if err != nil {
		return nil, "", fmt.Errorf("checkpoint %s: %w", quoted(w.Checkpoint), err)
	}
	switch {
	case os.Geteuid() != 0 || s.MayHaveWorkspaces() != nil:
		return nil, "the changes are root's to read", nil
	case rec.Policy.IsZero() || !bytes.Equal(sameRules(saved), sameRules(rules)):
		return nil, "the policy is not that of checkpoint " + quoted(w.Checkpoint), nil
	case len(saved.Redacted)+len(rules.Redacted) > 0 || rec.Totals.Redacted > 0:
		return nil, "secrets are declared, or were for checkpoint " + quoted(w.Checkpoint), nil
	case rules.Settings.Secrets == policy.SecretsExclude:
		return nil, "files with what looks like a secret are left out", nil
	}
	table, err := MountTable()
	if err != nil {
		return nil, "", fmt.Errorf("read the mount table: %w", err)
	}
	for _, e := range table {
		if at := w.Mountpoint(); e.Mountpoint != at && Within(e.Mountpoint, at) {
			return nil, "something is mounted in it, at " + quoted(e.Mountpoint), nil
		}
	}
	omitted, err := s.omissions(ctx, rec)
	if err != nil {
		return nil, "", fmt.Errorf("checkpoint %s: %w", quoted(w.Checkpoint), err)
	}
	if slices.ContainsFunc(omitted, func(o capture.Omission) bool { return o.Why == capture.TornReason }) {
		return nil, "files of checkpoint " + quoted(w.Checkpoint) + " are torn", nil
	}
	l = &capture.Lower{
		Upper: w.Upper(), Trees: s.trees, Blobs: s.blobs, Root: rec.Root.Tree, UID: rec.Root.UID, GID: rec.Root.GID,
		Ignore: saved.Ignore,
	}
	if l.Links, err = s.linkGroups(ctx, rec); err != nil {
		return nil, "", fmt.Errorf("checkpoint %s: %w", quoted(w.Checkpoint), err)
	}
	found, err := s.secrets(ctx, rec)
	if err != nil {
		return nil, "", fmt.Errorf("checkpoint %s: %w", quoted(w.Checkpoint), err)
	}
	for _, f := range found {
		if f.Place == InFile {
			l.Secrets = append(l.Secrets, capture.SecretFile{Path: f.Path, Report: f.Report})
		}
	}
	return l, "", nil
}

// sameRules is a policy as far as it decides, whoever gave its rules.
func sameRules(r policy.Recorded) []byte {
	r.Ignore, r.Redacted = nil, nil
	unsourced := func(rules []policy.Rule) []policy.Rule {
		rules = slices.Clone(rules)
		for i := range rules {
			rules[i].Source = ""
		}
		return rules
	}
	r.Files.Exclude, r.Files.Include = unsourced(r.Files.Exclude), unsourced(r.Files.Include)
	r.Allowed = slices.Clone(r.Allowed)
	for i := range r.Allowed {
		r.Allowed[i].Source = ""
	}
	return r.Encode()
}

// linkGroups reads a checkpoint's groups of hard links.
func (s *Store) linkGroups(ctx context.Context, rec index.Record) ([][]string, error) {
	if rec.Links.IsZero() {
		return nil, nil
	}
	data, err := cas.ReadBlob(ctx, s.blobs, cas.Trees, cas.Blob{Hash: rec.Links.Hash, Size: int64(rec.Links.Size)}, tree.MaxLinkList)
	if err != nil {
		return nil, fmt.Errorf("hard links: %w", err)
	}
	groups, err := tree.DecodeLinks(data)
	if err != nil {
		return nil, fmt.Errorf("hard links: %w: %w", err, cas.ErrCorrupt)
	}
	return groups, nil
}

// Unsaved reports whether an instant workspace has something that the checkpoint that was
// saved of it last, or else the one that it is made of, does not have, as far as a save
// with that one's policy would keep it. The workspace need not be mounted.
func (s *Store) Unsaved(ctx context.Context, w InstantWorkspace) (bool, error) {
	base := Checkpoint{ID: w.Checkpoint, Record: w.Record}
	at, last := base, s.lastSaved(w)
	if last.Checkpoint != "" && s.there(ctx, last.Base) {
		at = Checkpoint{ID: last.Checkpoint, Record: last.Record}
	}
	rec, err := s.Record(ctx, at)
	if err != nil {
		return false, err
	}
	saved, files, err := s.savedPolicy(ctx, rec)
	if err != nil {
		return false, fmt.Errorf("checkpoint %s: %w", quoted(at.ID), err)
	}
	opt := capture.Options{Files: files, Settings: saved.Settings, AllowTorn: true}
	allowed := SecretsOptions{Allowed: saved.Allowed}
	if opt.Screen, err = allowed.screen(saved.Settings.Secrets); err != nil {
		return false, err
	}
	dir := w.Mountpoint()
	if opt.Lower, _, err = s.lower(ctx, &w, saved); err != nil {
		return false, err
	}
	if opt.Lower != nil {
		var fewer bool
		opt.Known, fewer = s.knownOf(ctx, w.Upper(), cmp.Or(last.Thread, w.Thread), s.goodFor(files, saved.Settings, opt.Screen))
		opt.Screen.Fewer = fewer
	}
	got, err := capture.Tree(ctx, dir, capture.Discard(), opt)
	if errors.Is(err, capture.ErrNeedsScan) {
		opt.Lower, opt.Known, opt.Screen.Fewer = nil, nil, false
		got, err = capture.Tree(ctx, dir, capture.Discard(), opt)
	}
	if err != nil {
		return false, fmt.Errorf("look for changes in %s: %w", quoted(dir), err)
	}
	return root(got) != rec.Root, nil
}
