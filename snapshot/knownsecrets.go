package snapshot

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
)

// knownSecrets says for which secrets the known of a workspace is good.
type knownSecrets struct {
	// Declared are keyed hashes of the declared values, sorted, hex. Without the key,
	// which is in the cache only, nobody can tell whether they are those of a guess.
	Declared []string `json:"declared,omitempty"`
	// Detectors is the version of those that looked through the files; 0: none did.
	Detectors int `json:"detectors,omitempty"`
}

// cover reports whether what was found for k is good for a save with these: all that
// they would find was found.
func (k knownSecrets) cover(now knownSecrets) bool {
	if now.Detectors != 0 && now.Detectors != k.Detectors {
		return false
	}
	for _, d := range now.Declared {
		if _, found := slices.BinarySearch(k.Declared, d); !found {
			return false
		}
	}
	return true
}

// knownSecrets returns what a save with a screen needs. Without a key for its hashes it
// is something that nothing covers: the whole workspace is read.
func (s *Store) knownSecrets(screen capture.Screen) knownSecrets {
	var k knownSecrets
	if screen.Detects() {
		k.Detectors = secrets.DetectorsVersion
	}
	if screen.Declared.Len() == 0 {
		return k
	}
	key, err := s.secretsKey()
	if err != nil {
		s.log.Warn("cannot keep for which secrets the workspace was read: the next save reads all of it", "error", err)
		key = newKey()
	}
	k.Declared = screen.Declared.Hashes(func(value []byte) string {
		h, err := blake3.NewKeyed(key)
		if err != nil {
			panic(err) // it has 32 bytes
		}
		_, _ = h.Write(value) // never fails
		return hex.EncodeToString(h.Sum(nil))
	})
	return k
}

// keySize is the length of the key for hashes of secrets, in bytes.
const keySize = 32

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// secretsKey returns the key of hashes of secrets, and makes it when there is none.
func (s *Store) secretsKey() ([]byte, error) {
	dir := filepath.Join(s.dir, cacheDir, "secrets")
	path := filepath.Join(dir, "key")
	key, err := os.ReadFile(path)
	if err == nil && len(key) == keySize {
		return key, nil
	}
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return nil, err
	}
	if err := cacheFolder(s.fsys, s.dir, dir); err != nil {
		return nil, err
	}
	key = newKey()
	return key, cacheFile(s.fsys, s.dir, path, key)
}

// withoutSecrets is what of the settings decides about entries before they are read.
func withoutSecrets(s policy.Settings) policy.Settings {
	s.Secrets = ""
	return s
}
