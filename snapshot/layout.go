package snapshot

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index/journal"
	"github.com/snapfs/snapfs/internal/disk"
)

// Format is the number of the store's format on disk.
const Format = 1

// Names inside a store.
const (
	storeFile  = "store.json"
	lockFile   = "lock"
	SocketFile = "snapfs.sock" // where a daemon serves the store
	LogFile    = "daemon.log"  // what a daemon in the background writes
	journalDir = "journal"
	indexDir   = "index"
	cacheDir   = "cache"
)

// storeInfo is the content of store.json.
type storeInfo struct {
	Format   int    `json:"format"`
	ID       string `json:"id"` // 32 random hex digits
	Chunking struct {
		Min     int `json:"min"`
		Average int `json:"average"`
		Max     int `json:"max"`
		Single  int `json:"single"` // longest blob in bytes that is not chunked
	} `json:"chunking"`
}

func newStoreInfo() storeInfo {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	info := storeInfo{Format: Format, ID: hex.EncodeToString(id[:])}
	info.Chunking.Min, info.Chunking.Average, info.Chunking.Max = cas.MinChunk, cas.AvgChunk, cas.MaxChunk
	info.Chunking.Single = cas.ChunkedSize
	return info
}

// Create makes an empty store in dir, which must be missing or empty; where
// there is one already, it does nothing.
func Create(dir string) error { return create(disk.OS, dir) }

func create(fsys disk.FS, dir string) error {
	if _, err := readStoreInfo(dir); err == nil || !errors.Is(err, ErrNoStore) {
		return err
	}
	_, err := os.Stat(dir)
	made := errors.Is(err, iofs.ErrNotExist)
	if err := makeAll(fsys, dir); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	// Others may create it at the same moment: the lock decides who does.
	lock, err := acquire(dir, "init")
	if err != nil {
		return err
	}
	defer lock.release()
	if _, err := readStoreInfo(dir); err == nil || !errors.Is(err, ErrNoStore) {
		return err
	}
	if err := fillStore(fsys, dir); err != nil {
		return errors.Join(err, unmakeStore(dir, made))
	}
	return nil
}

// makeAll makes a directory and those above it, durably.
func makeAll(fsys disk.FS, dir string) error {
	above := filepath.Dir(dir)
	err := fsys.Mkdir(dir, 0o700)
	if errors.Is(err, iofs.ErrNotExist) && above != dir {
		if err = makeAll(fsys, above); err == nil {
			err = fsys.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, iofs.ErrExist) {
		info, serr := os.Stat(dir)
		if serr == nil && info.IsDir() {
			return nil
		}
		if errors.Is(serr, iofs.ErrNotExist) {
			return WithHint(fmt.Errorf("%s is a link that leads nowhere: %w", quoted(dir), ErrNotAStore), "name an empty or missing directory with --store")
		}
	}
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(above); err != nil && !errors.Is(err, iofs.ErrPermission) { // it may be written to and not read
		return err
	}
	return nil
}

// unmakeStore removes what a failed creation left: nothing in it is anybody's.
func unmakeStore(dir string, all bool) error {
	if all {
		return os.RemoveAll(dir)
	}
	var errs []error
	for _, name := range []string{"packs", "tmp", indexDir, cacheDir, journalDir, storeFile, lockFile} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// fillStore makes an empty store of a directory; the file that says that it is one
// comes last.
func fillStore(fsys disk.FS, dir string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := local.CheckSpace(dir); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := local.Create(fsys, dir); err != nil {
		return err
	}
	if err := makeDirs(fsys, dir); err != nil {
		return err
	}
	// With its first file: from now on a store without a journal has lost it.
	j, err := journal.Open(filepath.Join(dir, journalDir), journal.Options{FS: fsys})
	if err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := j.Close(); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	data, err := json.MarshalIndent(newStoreInfo(), "", "  ")
	if err != nil {
		return err
	}
	return writeFile(fsys, dir, filepath.Join(dir, storeFile), append(data, '\n'))
}

// makeDirs makes the directories that hold nothing of the store's own: a copy of
// the rest is a whole store.
func makeDirs(fsys disk.FS, dir string) error {
	for _, d := range []string{"tmp", indexDir, cacheDir} {
		if err := fsys.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, iofs.ErrExist) && !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("open store %s: %w", quoted(dir), err)
		}
	}
	return nil
}

// The longest files of the store's own that are read whole, in bytes.
const (
	maxStoreFile = 64 << 10
	maxCacheFile = 1 << 30
)

// readAtMost reads a regular file of at most so many bytes. Anything else that has its
// name, and a longer one, is [cas.ErrCorrupt]: nobody knows who made it.
func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for a writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes: %w", filepath.Base(path), most, cas.ErrCorrupt)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s grows: %w", filepath.Base(path), cas.ErrCorrupt)
	}
	return data, err
}

// readStoreInfo looks whether dir is a store that this program can use. A
// missing or empty directory is [ErrNoStore], one with other content
// [ErrNotAStore].
func readStoreInfo(dir string) (storeInfo, error) {
	var info storeInfo
	data, err := readAtMost(filepath.Join(dir, storeFile), maxStoreFile)
	if errors.Is(err, iofs.ErrNotExist) {
		return info, noStore(dir)
	}
	if errors.Is(err, cas.ErrCorrupt) {
		return info, fmt.Errorf("%s: %w", quoted(dir), err)
	}
	if errors.Is(err, unix.ENOTDIR) {
		return info, WithHint(fmt.Errorf("open store %s: %w: %w", quoted(dir), err, ErrNotAStore), "name an empty or missing directory with --store")
	}
	if err != nil {
		return info, Forbidden(dir, fmt.Errorf("open store %s: %w", quoted(dir), err))
	}
	return decodeStoreInfo(dir, data)
}

// decodeStoreInfo reads the content of the store.json in dir.
func decodeStoreInfo(dir string, data []byte) (info storeInfo, err error) {
	if err := json.Unmarshal(data, &info); err != nil || info.Format < 1 || info.ID == "" {
		return info, fmt.Errorf("%s: %s is damaged: %w", quoted(dir), storeFile, cas.ErrCorrupt)
	}
	if info.Format > Format {
		return info, WithHint(fmt.Errorf("%s has format %d, this snapfs knows up to %d: %w", quoted(dir), info.Format, Format, ErrNewerStore), "install a newer snapfs")
	}
	if want := newStoreInfo(); info.Chunking != want.Chunking {
		return info, fmt.Errorf("%s: chunking constants in %s are not those of format %d: %w", quoted(dir), storeFile, info.Format, cas.ErrCorrupt)
	}
	return info, nil
}

// noStore tells a directory that may become a store from one that may not.
func noStore(dir string) error {
	names, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return fmt.Errorf("%w at %s", ErrNoStore, quoted(dir))
	case err != nil:
		return Forbidden(dir, fmt.Errorf("open store %s: %w", quoted(dir), err))
	}
	for _, n := range names {
		// What Create itself may have left when it was interrupted, or makes just
		// now in another process.
		switch n.Name() {
		case storeFile, lockFile, SocketFile, LogFile, journalDir, indexDir, cacheDir, "packs", "tmp", local.DamagedDir, repairFile, purgeDir, WorkspacesDir:
		default:
			return WithHint(fmt.Errorf("%s holds %s: %w", quoted(dir), quoted(n.Name()), ErrNotAStore), "name an empty or missing directory with --store")
		}
	}
	for id, err := range local.Packs(dir) {
		if err != nil {
			break // there are none
		}
		err := fmt.Errorf("%s holds pack %s and no %s: %w", quoted(dir), id, storeFile, cas.ErrCorrupt)
		return WithHint(err, "put %s back from a backup", storeFile)
	}
	return fmt.Errorf("%w at %s", ErrNoStore, quoted(dir))
}

// writeFile replaces a small file of the store in dir atomically and durably.
func writeFile(fsys disk.FS, dir, path string, data []byte) error {
	if err := replace(fsys, dir, path, data, disk.File.Sync); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// cacheFile replaces a file of the cache of the store in dir atomically. After a
// crash of the machine it may be damaged or gone.
func cacheFile(fsys disk.FS, dir, path string, data []byte) error {
	return replace(fsys, dir, path, data, func(disk.File) error { return nil })
}

// replace writes a file in tmp/, has finish do what is left, and renames it. What a
// process that is killed meanwhile leaves there is swept.
func replace(fsys disk.FS, dir, path string, data []byte, finish func(disk.File) error) error {
	f, err := local.CreateTemp(fsys, dir)
	if err != nil {
		return err
	}
	defer f.Close() // and with it the lock, only after the rename
	_, err = f.Write(data)
	if err == nil {
		err = finish(f)
	}
	if err == nil {
		err = fsys.Rename(f.Name(), path)
	}
	if err != nil {
		_ = fsys.Remove(f.Name())
	}
	return err
}

// cacheFolder makes a folder in the cache of the store in dir, and the cache if
// somebody has removed it.
func cacheFolder(fsys disk.FS, dir, path string) error {
	err := fsys.Mkdir(path, 0o700)
	if errors.Is(err, iofs.ErrExist) {
		return nil
	}
	if above := filepath.Dir(path); errors.Is(err, iofs.ErrNotExist) && above != dir {
		if err = cacheFolder(fsys, dir, above); err == nil {
			err = fsys.Mkdir(path, 0o700)
		}
	}
	if err == nil {
		err = disk.Own(path, dir)
	}
	return err
}
