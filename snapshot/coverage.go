package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
)

// coverage is what a checkpoint's record says of what it does not have: the policy that
// it was saved under with the workspace's ignore files, and what else was left out.
func (s *Store) coverage(ctx context.Context, rec index.Record) (*restore.Coverage, error) {
	saved, files, err := s.savedPolicy(ctx, rec)
	if err != nil {
		return nil, err
	}
	list, err := s.omissions(ctx, rec)
	if err != nil {
		return nil, err
	}
	omitted := map[string]string{}
	for _, o := range list {
		omitted[o.Path] = o.Why
	}
	ignore := map[string][]policy.IgnoreFile{} // by directory, as restore names it
	for _, f := range saved.Ignore {
		dir, _ := path.Split(f.Path)
		ignore[dir] = append(ignore[dir], f)
	}
	foreign, err := skipped(s.dir)
	if err != nil {
		return nil, err
	}
	return &restore.Coverage{
		Files:  files,
		Caches: saved.Settings.ExcludeCaches,

		MaxFileSize: saved.Settings.MaxFileSize,
		Foreign:     foreign,
		Omitted:     func(path string) string { return omitted[path] },
		Narrow: func(dir string, scope policy.Scope) (policy.Scope, bool, error) {
			for _, f := range ignore[dir] {
				content, err := s.blobs.Read(ctx, cas.Key{NS: cas.Files, Hash: f.Hash}, nil)
				if errors.Is(err, cas.ErrNotFound) { // the file itself was left out
					return scope, false, nil
				}
				if err != nil {
					return scope, false, fmt.Errorf("ignore file %s: %w", quoted(f.Path), err)
				}
				// A bad line had no effect when the workspace was saved either.
				scope, _ = scope.Narrow(strings.TrimPrefix(f.Path, dir), policy.ParseIgnore(f.Path, content))
			}
			return scope, true, nil
		},
	}, nil
}

// savedPolicy is the policy that a checkpoint was saved under.
func (s *Store) savedPolicy(ctx context.Context, rec index.Record) (policy.Recorded, *policy.Files, error) {
	text, err := s.small(ctx, cas.Records, rec.Policy, maxPolicy)
	if err != nil {
		return policy.Recorded{}, nil, fmt.Errorf("its policy: %w", err)
	}
	saved, files, err := readPolicy(text)
	if err != nil {
		return policy.Recorded{}, nil, fmt.Errorf("its policy: %w: %w", err, cas.ErrCorrupt)
	}
	return saved, files, nil
}

// readPolicy reads a recorded policy, and compiles its rules.
func readPolicy(text []byte) (policy.Recorded, *policy.Files, error) {
	saved, err := policy.Decode(text)
	if err != nil {
		return policy.Recorded{}, nil, err
	}
	files, err := policy.CompileFiles(saved.Files)
	return saved, files, err
}

// omissions lists what was left out of a checkpoint.
func (s *Store) omissions(ctx context.Context, rec index.Record) ([]capture.Omission, error) {
	data, err := s.small(ctx, cas.Records, rec.Omissions, maxList)
	if err != nil {
		return nil, fmt.Errorf("its omissions: %w", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	return decodeOmissions(data)
}
