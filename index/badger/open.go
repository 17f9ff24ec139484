package badger

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
	"github.com/snapfs/snapfs/internal/disk"
)

// errDistrust: the database is damaged or does not fit the journal, and a
// rebuild may help.
var errDistrust = errors.New("database cannot be used")

// Open opens the index in dir, makes it if it is missing, brings it up to the
// journal's end, and rebuilds it if it cannot be trusted. It fails with
// [index.ErrInUse] while another handle has it open, and with
// [index.ErrCorrupt] or [index.ErrNewer] if that is what the journal is.
func Open(ctx context.Context, dir string, opt Options) (*Index, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.BootID == "" {
		opt.BootID = bootID()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	opt.FS = disk.Or(opt.FS)
	ix := &Index{dir: dir, opt: opt, roomy: map[string]bool{}}
	ix.idle.L = &ix.state
	ix.update = func(fn func(*bdb.Txn) error) error { return ix.db.Update(fn) }
	if err := ix.open(ctx); err != nil {
		if ix.db != nil {
			err = errors.Join(err, closeDB(ix.db))
		}
		if ix.mark != nil {
			_ = ix.mark.close()
		}
		if ix.journal != nil {
			_ = ix.journal.Close()
		}
		return nil, fmt.Errorf("open index %s: %w", dir, err)
	}
	return ix, nil
}

func (ix *Index) open(ctx context.Context) (err error) {
	why := ""
	if ix.opt.Tables {
		if why, err = ix.attach(); why != "" {
			err = fmt.Errorf("%w: %s", index.ErrCorrupt, why)
		}
		return err
	}
	// The journal's lock is the index's too. Under it the database is opened
	// before the journal is looked at: it knows what was committed.
	ix.journal, err = journal.Open(ix.opt.Journal, journal.Options{
		Logger: ix.opt.Logger, Existing: ix.opt.Existing, FS: ix.opt.FS,
		Committed: func() (_ uint64, err error) {
			why, err = ix.attach()
			if ix.mark != nil {
				return max(ix.at.seq, ix.mark.seq), err
			}
			return ix.at.seq, err
		},
	})
	if err != nil {
		return err
	}
	if why == "" {
		if err = ix.catchUp(ctx); !errors.Is(err, errDistrust) {
			return err
		}
		why = err.Error()
	}
	if ix.db != nil {
		_ = closeDB(ix.db) // it is thrown away
		ix.db = nil
	}
	started := time.Now()
	if err := ix.rebuild(ctx); err != nil {
		return fmt.Errorf("rebuild (%s): %w", why, err)
	}
	ix.rebuilt = why
	ix.opt.Logger.Info("rebuilt the index", "dir", ix.dir, "reason", why, "took", time.Since(started))
	return nil
}

// attach opens the database that is there, if it can be trusted; else it says
// why not.
func (ix *Index) attach() (why string, err error) {
	if ix.opt.InMemory {
		return "it is kept in memory", nil
	}
	if err := makeDir(ix.opt.FS, ix.dir); err != nil {
		return "", err
	}
	if ix.mark, err = openMark(ix.opt.FS, ix.dir); err != nil {
		return "", err
	}
	if ix.opt.Rebuild {
		return "it was asked for", nil
	}
	if why := ix.mark.doubt(ix.opt.BootID); why != "" {
		return why, nil
	}
	err = ix.trust()
	if errors.Is(err, errDistrust) {
		ix.at = applied{}
		return err.Error(), nil
	}
	return "", err
}

// trust opens the database and reads how far it is.
func (ix *Index) trust() (err error) {
	if err := checkTables(ix.dir); err != nil {
		return err
	}
	if ix.db, err = openDB(ix.dir, ix.opt.Logger); err != nil {
		return err
	}
	if err = ix.room(); err != nil {
		return err
	}
	err = ix.db.View(func(txn *bdb.Txn) error {
		return get(txn, appliedKey, func(b []byte) (err error) {
			ix.at, err = decodeApplied(b)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%w: read the last applied entry: %w", errDistrust, err)
	}
	return nil
}

// catchUp compares the database with the journal and applies the tail. The
// journal has at least what was applied.
func (ix *Index) catchUp(ctx context.Context) error {
	if ix.at.seq > 0 {
		for e, err := range ix.journal.Replay(ix.at.seq) {
			if err != nil {
				return err
			}
			if e.Sum != ix.at.sum {
				return fmt.Errorf("%w: entry %d of the journal is not the one that was applied", index.ErrCorrupt, ix.at.seq)
			}
			break
		}
	}
	if ix.at.seq == ix.journal.Last() {
		return nil
	}
	if err := ix.touch(); err != nil {
		return err
	}
	return ix.replay(ctx, ix.at.seq+1, false)
}

// rebuild makes the database anew from the packs and the journal.
func (ix *Index) rebuild(ctx context.Context) (err error) {
	dir := ix.dir
	if ix.opt.InMemory {
		dir = ""
	} else if err := errors.Join(ix.mark.set(stateBuilding, ix.opt.BootID, 0, true), ix.clear()); err != nil {
		return err
	}
	if ix.db, err = openDB(dir, ix.opt.Logger); err != nil {
		return err
	}
	clear(ix.roomy)
	if err := ix.room(); err != nil {
		return err
	}
	batch := ix.db.NewWriteBatch()
	defer batch.Cancel()
	for objects, err := range ix.opt.Packs(ctx) {
		if err != nil {
			return fmt.Errorf("read the packs: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := setLocations(batch, objects); err != nil {
			return err
		}
	}
	if err := batch.Flush(); err != nil {
		return err
	}
	if err := ix.db.Update(func(txn *bdb.Txn) error { return txn.Set(appliedKey, applied{}.encode()) }); err != nil {
		return err
	}
	if err := ix.replay(ctx, 1, true); err != nil {
		return err
	}
	if ix.opt.InMemory {
		return nil
	}
	return ix.mark.set(stateOpen, ix.opt.BootID, ix.journal.Last(), false)
}

// clear empties the directory except for the mark.
func (ix *Index) clear() error {
	entries, err := os.ReadDir(ix.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != markName {
			if err := os.RemoveAll(filepath.Join(ix.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// openDB opens Badger, without a directory in memory, with options for a small
// embedded store. Values stay in
// the tree (the value log is not used), and nothing is compressed or cached:
// tables are read through the kernel's cache.
func openDB(dir string, logger *slog.Logger) (db *bdb.DB, err error) {
	defer func() {
		if errors.Is(err, index.ErrCorrupt) {
			db, err = nil, fmt.Errorf("%w: %w", errDistrust, err)
		}
	}()
	defer guard(&err)
	log := &quiet{log: logger}
	opt := bdb.DefaultOptions(dir).
		WithLogger(log).
		WithMetricsEnabled(false).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithValueThreshold(2 * index.MaxRecord).
		WithValueLogFileSize(1 << 20).
		WithNumVersionsToKeep(1).
		WithNumCompactors(2).
		WithBlockSize(blockSize).
		WithChecksumVerificationMode(options.OnBlockRead).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithDetectConflicts(false).
		WithInMemory(dir == "").
		WithSyncWrites(false)
	db, err = bdb.Open(opt)
	switch {
	case err == nil:
		return db, nil
	case strings.Contains(err.Error(), "Cannot acquire directory lock"):
		return nil, fmt.Errorf("%w: %w", index.ErrInUse, err)
	case strings.Contains(err.Error(), unix.ENOSPC.Error()):
		return nil, fmt.Errorf("%w: %s", cas.ErrNoSpace, oneLine(err.Error()))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return nil, err // a rebuild would not help
	}
	return nil, fmt.Errorf("%w: %w", errDistrust, err)
}

// Sizes in bytes.
const (
	memTableSize = 4 << 20
	blockSize    = 4 << 10
)

// flushTime is how long Badger may try to write out what it has in memory when it
// is closed, once that has failed.
const flushTime = 3 * time.Second

// closeDB closes Badger, which panics on some kinds of damage, and tries without
// end to write to a disk that is full. Then it is left as it is: the process is
// about to end, and what was committed stands in the journal.
func closeDB(db *bdb.DB) (err error) {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer guard(&err)
		err = db.Close()
	}()
	tick := time.NewTicker(flushTime)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if log, ok := db.Opts().Logger.(*quiet); ok && log.stuck.Load() {
				return fmt.Errorf("badger cannot write: %w", cas.ErrNoSpace)
			}
		}
	}
}

func makeDir(fsys disk.FS, dir string) error {
	err := fsys.Mkdir(dir, 0o700)
	if errors.Is(err, iofs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return disk.Own(dir, filepath.Dir(dir))
}

// setLocations adds objects to a batch.
func setLocations(batch *bdb.WriteBatch, objects []index.Located) error {
	const size = locationKeySize + locationValueSize
	buf := make([]byte, 0, size*len(objects)) // the batch keeps parts of it
	for _, o := range objects {
		k := len(buf)
		buf = appendLocationKey(buf, o.Key)
		v := len(buf)
		buf = appendLocation(buf, o.Location)
		if err := batch.Set(buf[k:v:v], buf[v:len(buf):len(buf)]); err != nil {
			return err
		}
	}
	return nil
}

// get passes a key's value to fn, which may only borrow it. It fails with
// bdb.ErrKeyNotFound.
func get(txn *bdb.Txn, key []byte, fn func([]byte) error) (err error) {
	defer guard(&err)
	item, err := txn.Get(key)
	if err != nil {
		return err
	}
	return item.Value(fn)
}

// missing reports whether a record is lost, as opposed to unreadable just now.
func missing(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) ||
		errors.Is(err, index.ErrInvalid) || errors.Is(err, iofs.ErrNotExist)
}

// quiet sends what Badger says to a logger: nobody but a developer wants it.
type quiet struct {
	log   *slog.Logger
	stuck atomic.Bool // it cannot write out what it has in memory
}

func (q *quiet) say(level slog.Level, format string, args []any) {
	if q.log.Enabled(context.Background(), level) {
		q.log.Log(context.Background(), level, "badger", "says", oneLine(fmt.Sprintf(format, args...)))
	}
}

// oneLine joins the lines of a text of Badger's.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (q *quiet) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, "error flushing memtable") {
		q.stuck.Store(true)
	}
	q.say(slog.LevelWarn, format, args)
}
func (q *quiet) Warningf(format string, args ...any) { q.say(slog.LevelDebug, format, args) }
func (q *quiet) Infof(format string, args ...any)    { q.say(slog.LevelDebug, format, args) }
func (q *quiet) Debugf(format string, args ...any)   { q.say(slog.LevelDebug, format, args) }
