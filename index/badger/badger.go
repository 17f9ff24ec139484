// Package badger keeps the index in a Badger database in one directory, beside
// the journal that is the truth.
//
// A change is committed by the journal's fsync; only then it is applied to
// Badger, in one transaction that also stores the entry's number. So Badger may
// always be behind (it catches up when opened) and may always be lost (it is
// rebuilt from the packs' footers and the journal). It is never synced.
//
// The file "mark" in the directory says which of the two it takes, see [mark].
//
// # Keys
//
// The first byte is the table. str(x) is the length of x in two bytes and x, so
// no id is a prefix of another; numbers are big-endian; seq is the number of a
// journal entry, ^seq its complement, so that the newest comes first.
//
//	a                            -> format, last applied seq and its checksum
//	l namespace(1) hash(32)      -> location, 30 bytes
//	t str(org) thread            -> thread
//	o str(org) ^seq              -> thread, by its last publish
//	c str(org) checkpoint        -> checkpoint with its whole record
//	s str(org) str(thread) ^seq  -> checkpoint
//	n str(org) str(thread) name  -> checkpoint
//	f str(org) str(thread) artifact -> artifact, CBOR
//	d str(org) tail NUL checkpoint -> nothing; tail is what follows the last dash
//	w str(org) thread            -> the thread's last lease, unless it was released
//	x str(org) t thread          -> nothing; the thread is being deleted
//	x str(org) c checkpoint      -> its thread; the checkpoint is, by itself
//
// A checkpoint in the table x is in none of n and d, and does not count in its thread's
// value; its own value stays as it was. Those of a thread in it stay as they are.
//
// Of a lease the journal knows when it was acquired and released. Its renewals are in the
// table w alone: an index that is made anew lets it expire as when it was acquired.
package badger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
	"github.com/snapfs/snapfs/internal/disk"
)

// Options are for [Open].
type Options struct {
	// Journal is the journal's directory. It is made if it is missing.
	Journal string
	// Records reads one object of the records namespace from its place. Publish
	// and Open call it; it must not call the index. Its bytes are verified here.
	Records func(ctx context.Context, at index.Located) ([]byte, error)
	// Packs yields the contents of every pack. Open calls it to rebuild.
	Packs func(ctx context.Context) iter.Seq2[[]index.Located, error]
	// Logger may be nil, which discards.
	Logger *slog.Logger
	// Now tells when leases expire; nil: [time.Now].
	Now func() time.Time
	// BootID names the running boot of the machine; empty: the kernel's. Tests
	// set it.
	BootID string
	// Rebuild asks for a rebuild even if nothing seems wrong.
	Rebuild bool
	// Existing refuses to make a journal where there is none: one was lost.
	Existing bool
	// InMemory keeps the database in memory, rebuilt from packs and journal, and
	// leaves the directory alone: Badger writes through mapped memory, and on a
	// full disk that would kill the process.
	InMemory bool
	// Tables opens what the database says by itself, only to be read, without the
	// journal and without a rebuild: a database that is not to be trusted is
	// [index.ErrCorrupt]. Nobody else may have the store.
	Tables bool
	// FS changes the journal's and the mark's files; nil: the operating system's.
	// Badger changes its own by itself.
	FS disk.FS
}

// Index implements [index.Index].
type Index struct {
	dir     string
	opt     Options
	db      *bdb.DB
	journal *journal.Journal
	mark    *mark // nil in memory
	at      applied
	rebuilt string          // why it was rebuilt when opened; empty: it was not
	roomy   map[string]bool // files that have their space

	update func(func(*bdb.Txn) error) error // db.Update; tests make it fail

	write sync.Mutex // one writer: held from a change's checks to its end

	state  sync.Mutex
	idle   sync.Cond // calls fell to 0
	calls  int       // under way
	lists  int       // of them listings, whose consumers may call, too
	closed bool
	broken error // why the database cannot be trusted any more in this process
	// resume is closed when calls may go on that wait for Renew; nil: none wait. still
	// says that Renew works; until then it waits for the calls under way.
	resume chan struct{}
	still  bool
}

var _ index.Index = (*Index)(nil)

// Rebuilt tells why Open rebuilt the index; empty: it did not.
func (ix *Index) Rebuilt() string { return ix.rebuilt }

// Applied returns the number of the last entry of the journal that the database knows.
func (ix *Index) Applied() uint64 { return ix.at.seq }

// Cut returns how many bytes of an unfinished entry Open cut off the journal.
func (ix *Index) Cut() int64 { return ix.journal.Cut() }

// enter counts a call in, unless the index is closed or broken.
func (ix *Index) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ix.state.Lock()
	for ix.mustWait(ctx) {
		if ctx.Value(renewing{}) != nil {
			ix.state.Unlock()
			return errors.New("the index is being made anew")
		}
		resume := ix.resume
		ix.state.Unlock()
		select {
		case <-resume:
		case <-ctx.Done():
			return ctx.Err()
		}
		ix.state.Lock()
	}
	defer ix.state.Unlock()
	switch {
	case ix.closed:
		return index.ErrClosed
	case ix.broken != nil:
		return fmt.Errorf("the index must be opened again: %w", ix.broken)
	}
	ix.calls++
	return nil
}

func (ix *Index) leave() {
	ix.state.Lock()
	defer ix.state.Unlock()
	if ix.calls--; ix.calls == 0 {
		ix.idle.Broadcast()
	}
}

// poison makes every later call fail. The mark stays as it is, so the next Open
// catches up.
func (ix *Index) poison(err error) {
	ix.state.Lock()
	defer ix.state.Unlock()
	if ix.broken == nil {
		ix.broken = err
	}
}

func (ix *Index) isBroken() bool {
	ix.state.Lock()
	defer ix.state.Unlock()
	return ix.broken != nil
}

// view runs fn in one read transaction.
func (ix *Index) view(ctx context.Context, fn func(txn *bdb.Txn) error) error {
	if err := ix.enter(ctx); err != nil {
		return err
	}
	defer ix.leave()
	err := ix.db.View(fn)
	if err != nil {
		ix.suspect(err)
	}
	return err
}

// suspect looks at why a read failed. If it is damage, the next Open rebuilds.
func (ix *Index) suspect(err error) {
	if !errors.Is(err, index.ErrCorrupt) && !strings.Contains(err.Error(), y.ErrChecksumMismatch.Error()) {
		return
	}
	ix.opt.Logger.Error("the index is damaged and will be rebuilt when it is opened again", "dir", ix.dir, "err", err)
	if ix.mark == nil {
		return
	}
	if err := ix.mark.set(stateBuilding, ix.opt.BootID, 0, true); err != nil {
		ix.opt.Logger.Error("cannot mark the index as damaged", "dir", ix.dir, "err", err)
	}
}

// Close implements [index.Index]. If anything was written since the last clean
// close it makes the database durable, so that a restart of the machine need not
// rebuild it.
func (ix *Index) Close() error {
	ix.state.Lock()
	if ix.closed {
		ix.state.Unlock()
		return nil
	}
	ix.closed = true
	for ix.calls > 0 {
		ix.idle.Wait()
	}
	ix.state.Unlock()

	var err error
	if ix.db == nil {
		// It could not be made anew, and will be when it is opened.
	} else if ix.canClose() {
		err = closeDB(ix.db)
	} else {
		err = fmt.Errorf("no room to write out the index, the next command catches up: %w", cas.ErrNoSpace)
	}
	if ix.opt.Tables {
		return errors.Join(err, ix.mark.close())
	}
	if ix.mark == nil {
		return errors.Join(err, ix.journal.Close())
	}
	err = errors.Join(err, giveToOwner(ix.dir))
	if err == nil && !ix.isBroken() && ix.mark.is(stateOpen) {
		err = ix.settle()
	}
	err = errors.Join(err, ix.mark.close(), ix.journal.Close())
	if err != nil {
		return fmt.Errorf("close index %s: %w", ix.dir, err)
	}
	return nil
}

// settle makes what lies in the directory durable and then says so in the mark.
func (ix *Index) settle() error {
	if err := syncFiles(ix.opt.FS, ix.dir); err != nil {
		return err
	}
	return ix.mark.set(stateClean, ix.opt.BootID, ix.journal.Last(), true)
}

// touch must be called before each change of the database: it needs room, and from the
// first one on a crash of the machine leaves it in an unknown state, and the mark has
// to say so.
func (ix *Index) touch() error {
	if err := ix.room(); err != nil {
		return err
	}
	if ix.mark == nil {
		return ix.outdate()
	}
	if !ix.mark.is(stateClean) {
		return nil // Open or an earlier change has seen to it
	}
	return ix.mark.set(stateOpen, ix.opt.BootID, ix.journal.Last(), true)
}

// outdate says in the mark of the database on the disk, which is not in use, that
// it does not know what was changed in memory. Where it has no mark there is
// none to be trusted. The mark is written in place: that takes no space.
func (ix *Index) outdate() error {
	if _, err := os.Stat(filepath.Join(ix.dir, markName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	m, err := openMark(ix.opt.FS, ix.dir)
	if err != nil {
		return err
	}
	return errors.Join(m.set(stateBuilding, ix.opt.BootID, 0, true), m.close())
}
