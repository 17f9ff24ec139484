package snapshot

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/policy"
)

// knownDir keeps, in cache/, what the last save of each workspace found there.
const knownDir = "known"

// knownFor says what the known of a workspace is good for.
type knownFor struct {
	Base
	Policy  string       `json:"policy"` // hash of the encoded policy, but for secrets
	Secrets knownSecrets `json:"secrets"`
	Packs   []knownPack  `json:"packs"` // all that the store had
	// Aside are the packs that had been set aside when the save began: what lay in
	// one that was set aside since may be lost.
	Aside []string `json:"aside,omitempty"`
}

type knownPack struct {
	ID   string `json:"id"`
	Size int64  `json:"size"` // in bytes
}

// goodFor says what a capture with these rules, settings and screen needs. What the ignore
// files say, each one sees anew.
func (s *Store) goodFor(files *policy.Files, settings policy.Settings, screen capture.Screen) knownFor {
	return knownFor{
		Policy:  cas.Data.Sum(files.Record(withoutSecrets(settings)).Encode()).String(),
		Secrets: s.knownSecrets(screen),
	}
}

// knownAge is how long what is known of a workspace is kept without another save
// of it.
const knownAge = 30 * 24 * time.Hour

// knownPath is where the known of a workspace and a thread lies. A workspace is
// told by the inode number of its root: its path changes, and so does the number of
// its device.
func (s *Store) knownPath(workspace, thread string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(workspace, &st); err != nil {
		return "", fmt.Errorf("workspace %s: %w", quoted(workspace), err)
	}
	sum := blake3.Sum256(fmt.Appendf(nil, "%d %s", st.Ino, thread))
	return filepath.Join(s.dir, cacheDir, knownDir, hex.EncodeToString(sum[:16])), nil
}

// loadKnown returns what the last save found, if it is good for a save for which the
// same or less is good, and all packs of then are there: a save must not rely on what a
// disk has lost. fewer tells that it was made for more declared secrets than these.
// Whether the base still is, the session knows.
func (s *Store) loadKnown(path string, now knownFor) (known *capture.Known, base Base, fewer bool) {
	data, err := readAtMost(path, maxCacheFile)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, Base{}, false
	}
	var binding []byte
	if err == nil {
		known, binding, err = capture.DecodeKnown(data)
	}
	var good knownFor
	if err == nil {
		err = json.Unmarshal(binding, &good)
	}
	if err != nil {
		s.log.Warn("cannot read what is known of the workspace: all of it is read", "file", path, "error", err)
		return nil, Base{}, false
	}
	if good.Policy != now.Policy || !slices.Equal(good.Aside, now.Aside) || !good.Secrets.cover(now.Secrets) {
		return nil, Base{}, false
	}
	for _, p := range good.Packs {
		id, err := cas.ParsePackID(p.ID)
		size := int64(0)
		if err == nil {
			size, err = local.PackSize(s.dir, id)
		}
		if err != nil || size != p.Size {
			s.log.Debug("a pack is not what it was: the whole workspace is read", "pack", p.ID)
			return nil, Base{}, false
		}
	}
	return known, good.Base, len(good.Secrets.Declared) > len(now.Secrets.Declared)
}

// saveKnown keeps what a save has found for the next one. It is only a cache: a
// failure is logged and the save stays a success.
func (s *Store) saveKnown(path string, known *capture.Known, good knownFor) {
	err := func() error {
		for id, err := range local.Packs(s.dir) {
			if err != nil {
				return err
			}
			size, err := local.PackSize(s.dir, id)
			if err != nil {
				return err
			}
			good.Packs = append(good.Packs, knownPack{id.String(), size})
		}
		binding, err := json.Marshal(good)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(path); errors.Is(err, iofs.ErrNotExist) {
			if err := s.makeKnownDir(filepath.Dir(path)); err != nil {
				return err
			}
		}
		return cacheFile(s.fsys, s.dir, path, known.Encode(binding))
	}()
	if err != nil {
		s.log.Warn("cannot keep what is known of the workspace: the next save reads all of it", "file", path, "error", err)
	}
}

// asidePacks are the names of the packs that were set aside.
func (s *Store) asidePacks() ([]string, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, local.DamagedDir))
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names, nil
}

// makeKnownDir makes room for one more file: the directory, and the place of those
// whose workspaces are saved no more.
func (s *Store) makeKnownDir(dir string) error {
	if err := cacheFolder(s.fsys, s.dir, dir); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err == nil && time.Since(info.ModTime()) > knownAge {
			err = s.fsys.Remove(filepath.Join(dir, f.Name()))
		}
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	return nil
}
