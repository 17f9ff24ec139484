package capture

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// A SQLite database is the file and, while somebody has it open or after a crash, a
// write-ahead log or a rollback journal beside it (sqlite.org/fileformat2.html). Each
// is worth nothing without the other as it was at the same moment.
//
// The files are one moment's when the database and the journal did not change from a
// look at all of them before the first is read to a look after the last. A log may be
// written to meanwhile. As long as its header stays, nothing that was committed is
// written over, and SQLite finds by checksums where the log that was read ends; what
// it commits moves into the database only in checkpoints, which change that. They are
// kept waiting with the lock that a reader has (sqlite.org/walformat.html), which no
// program takes for an error. A lock that keeps a database without a log from being
// written would be one: there it takes patience.

// patience is how long the capture waits for a moment in which a database is not
// written, in addition to a file's tries.
const patience = 2 * time.Second

// between is the pause before a database is read again.
const between = 3 * time.Millisecond

var (
	errAccompanied = errors.New("is a SQLite database in use") // goes to [worker.database]
	errBusy        = errors.New("is a SQLite database that was written each time it was read")
)

// Suffixes of the files beside a database.
const (
	walSuffix     = "-wal"
	journalSuffix = "-journal"
	shmSuffix     = "-shm"
)

const sharedMemory = "shared memory of a SQLite database"

// walHeader is the length of a log's header, which is another after each restart of
// the log.
const walHeader = 32

// IsDatabase reports whether a file that begins with head is a SQLite database.
func IsDatabase(head []byte) bool {
	const magic = "SQLite format 3\x00"
	return len(head) >= len(magic) && string(head[:len(magic)]) == magic
}

// unit is what may be a database with the files beside it.
type unit struct {
	db, wal, journal, shm *child // all but db may be nil
	claimed               atomic.Bool
}

// findUnits ties files to the databases that their names tell of. The children are
// sorted.
func findUnits(children []child) {
	for i := range children {
		c := &children[i]
		base, suffix := companionOf(c.entry.Name)
		if suffix == "" || c.kind != unix.DT_REG {
			continue
		}
		at, found := slices.BinarySearchFunc(children, base, func(c child, name string) int { return strings.Compare(c.entry.Name, name) })
		if !found || children[at].kind != unix.DT_REG {
			continue
		}
		u := children[at].unit
		if u == nil {
			u = &unit{db: &children[at]}
			u.db.unit = u
		}
		if u.db != &children[at] {
			continue // it belongs to a database itself
		}
		c.unit = u
		switch suffix {
		case walSuffix:
			u.wal = c
		case journalSuffix:
			u.journal = c
		case shmSuffix:
			u.shm = c
		}
	}
}

// companionOf splits the name of a file that may belong to a database.
func companionOf(name string) (base, suffix string) {
	for _, suffix := range []string{walSuffix, journalSuffix, shmSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok && base != "" {
			return base, suffix
		}
	}
	return "", ""
}

// unit captures all files of a unit, whichever of them comes first.
func (w *worker) unit(d *directory, u *unit) {
	if u.claimed.Swap(true) {
		return
	}
	if !w.opensDatabase(d, u) {
		for _, c := range []*child{u.db, u.wal, u.journal, u.shm} {
			if c != nil {
				w.single(d, c)
			}
		}
		return
	}
	if w.fullUnit(d, u) {
		for _, c := range []*child{u.db, u.wal, u.journal, u.shm} {
			if c != nil {
				w.settle(d)
			}
		}
		return
	}
	if u.shm != nil {
		w.omit(&w.special, d.pathOf(u.shm), sharedMemory)
		w.settle(d)
	}
	if w.plan != nil {
		w.planDatabase(d, u)
		return
	}
	w.database(d, u, nil)
}

// fullUnit is [worker.full] for the files of a database.
func (w *worker) fullUnit(d *directory, u *unit) (full bool) {
	for _, c := range []*child{u.db, u.wal, u.journal} {
		if c == nil || w.sizes.limit == 0 {
			continue
		}
		if st, err := d.fd.look(c.entry.Name); err == nil {
			full = w.full(d, c.entry.Name, st.Size)
		}
	}
	return full
}

// opensDatabase reports whether the unit's main file is a database, or one that a
// first transaction is only about to make.
func (w *worker) opensDatabase(d *directory, u *unit) bool {
	fd, err := d.fd.open(u.db.entry.Name, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	head := readAt(fd, 0, headBytes, nil)
	return IsDatabase(head) || len(head) == 0 && (u.wal != nil || u.journal != nil)
}

// accompanied reports whether a database that seemed to be alone has other files
// beside it by now. One that was last changed before its directory was listed was
// whole without them.
func (w *worker) accompanied(f *foundFile) bool {
	if settledBefore(&f.st, f.dir.since, false) {
		return false
	}
	for _, suffix := range []string{walSuffix, journalSuffix} {
		if st, err := f.dir.fd.look(f.e.entry.Name + suffix); err == nil && kindOf(&st) == unix.DT_REG {
			return true
		}
	}
	return false
}

// adopt makes a file that came after the listing of its directory an entry of it, if
// the policy lets it in.
func (w *worker) adopt(d *directory, name string) *child {
	decision, _ := d.scope.Decide(name, false)
	if !decision.Keep {
		return nil
	}
	e := &child{entry: tree.Entry{Name: name}, kind: unix.DT_REG}
	d.left.Add(1) // a file that is being captured keeps the directory unfinished
	w.mu.Lock()
	defer w.mu.Unlock()
	d.late = append(d.late, e)
	return e
}

// part is one file of a database on its way into the tree.
type part struct {
	foundFile
	suffix string // "": the database itself
	listed bool   // it is to get into the tree
	there  bool   // when it was looked at
	log    int    // the open log; -1: none
	head   []byte // of the log
}

// database captures a database, and settles its files. group is that of its main
// file, if it was claimed. Else its files are files of their own whatever other names
// they have: what was read under those is of another moment.
func (w *worker) database(d *directory, u *unit, group *linked) {
	parts := []*part{
		{foundFile: foundFile{dir: d, e: u.db, group: group}, listed: true},
		{foundFile: foundFile{dir: d, e: u.wal}, suffix: walSuffix, listed: u.wal != nil},
		{foundFile: foundFile{dir: d, e: u.journal}, suffix: journalSuffix, listed: u.journal != nil},
	}
	for _, p := range parts {
		p.whole = true
	}
	err := w.readDatabase(parts)
	if w.ctx.Err() != nil {
		return
	}
	left := leftOf(parts)
	for _, p := range parts {
		if !p.listed {
			continue
		}
		switch {
		case left == noReason && err != nil:
			w.problem(d.pathOf(p.e), err)
		case left != noReason && p.secrets.left == noReason: // what is left of it is no database
			w.tellSecrets(d.pathOf(p.e), screened{left: left})
		}
		w.settleFile(&p.foundFile, err == nil && left == noReason && p.there)
	}
}

// leftOf says why a database is left out, if one of its files is.
func leftOf(parts []*part) reason {
	for _, p := range parts {
		if p.secrets.left != noReason {
			return p.secrets.left
		}
	}
	return noReason
}

// readDatabase reads the parts until all were as they were at one moment.
func (w *worker) readDatabase(parts []*part) error {
	start := time.Now()
	lock := w.openLock(parts[0])
	defer lock.close()
	for try := 1; ; try++ {
		lock.take()
		whole, err := w.readParts(parts)
		if whole || err != nil || w.ctx.Err() != nil || leftOf(parts) != noReason {
			return err
		}
		if try >= tries && time.Since(start) > patience {
			break
		}
		time.Sleep(between)
	}
	if !w.opt.AllowTorn {
		return errBusy
	}
	for _, p := range parts {
		p.held = torn
	}
	return nil
}

// readParts is one try.
func (w *worker) readParts(parts []*part) (whole bool, err error) {
	name := parts[0].e.entry.Name
	for _, p := range parts {
		p.log, p.held = -1, still
		if p.st, p.there, err = w.lookAtPart(name, p); err != nil {
			return false, fmt.Errorf("%s: %w", tree.Quote(name+p.suffix), err)
		}
		if p.there && !p.listed {
			p.e = w.adopt(p.dir, name+p.suffix)
			p.listed = p.e != nil
		}
	}
	if db := parts[0]; w.pause(db.dir, &db.st) {
		if db.st, _, err = w.lookAtPart(name, db); err != nil {
			return false, err
		}
	}
	shows := settledNow(&parts[0].st, parts[0].dir.fd.fine)
	defer func() {
		for _, p := range parts {
			if p.log >= 0 {
				_ = unix.Close(p.log)
			}
		}
	}()
	var unread []*part
	for _, p := range parts {
		p.secrets = screened{}
		if p.there && p.listed && !w.unchanged(&p.foundFile) {
			unread = append(unread, p)
		}
	}
	if leftOf(parts) != noReason {
		return false, nil
	}
	for _, p := range unread {
		err := w.readPart(p)
		if errors.Is(err, unix.ENOENT) && p.suffix != "" {
			return false, nil // the transaction is over
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", tree.Quote(name+p.suffix), vanished(err))
		}
	}
	// The database last: what held it still held the others.
	whole = shows
	for _, p := range slices.Backward(parts) {
		whole = w.partHeld(parts[0], p) && whole
	}
	return whole, nil
}

// lookAtPart looks at a part. That a log or a journal is not there, or not any more,
// is no error.
func (w *worker) lookAtPart(name string, p *part) (st unix.Stat_t, there bool, err error) {
	st, err = p.dir.fd.look(name + p.suffix)
	switch {
	case errors.Is(err, unix.ENOENT) && p.suffix != "":
		return st, false, nil
	case err != nil:
		return st, false, vanished(err)
	case kindOf(&st) != unix.DT_REG:
		if !p.listed {
			return st, false, nil
		}
		return st, false, errReplaced
	}
	return st, true, w.fits(st.Size)
}

// readPart reads and stores as much of a part as it had when it was looked at.
func (w *worker) readPart(p *part) error {
	fd, err := p.dir.fd.open(p.e.entry.Name, 0)
	if err != nil {
		return err
	}
	defer func() {
		if p.log != fd {
			_ = unix.Close(fd)
		}
	}()
	got, err := w.storeBlob(&p.foundFile, fd, p.st.Size)
	if err != nil {
		return err
	}
	if p.xattrs, p.secrets.hides, err = w.xattrs(fd); err != nil {
		return err
	}
	if p.suffix == walSuffix {
		p.log, p.head = fd, got.head
	}
	if got.size != p.st.Size {
		p.st.Size, p.st.Ino = got.size, 0 // it was cut meanwhile, and is what no look has seen
	}
	return nil
}

// partHeld looks whether a part is what it was when it was looked at.
func (w *worker) partHeld(db, p *part) bool {
	now, there, err := w.lookAtPart(db.e.entry.Name, p)
	switch {
	case err != nil:
		return false
	case !p.listed:
		// Either it is not wanted, or it came while the others were read: the database
		// is whole without it unless it was changed since the listing.
		return p.there || !there || settledBefore(&db.st, p.dir.since, false)
	case there != p.there:
		return false
	case !there || unchangedSince(&p.st, &now):
		return true
	case p.log >= 0 && now.Ino == p.st.Ino && now.Dev == p.st.Dev && now.Size >= p.st.Size && len(p.head) == walHeader && bytes.Equal(readAt(p.log, 0, walHeader, nil), p.head):
		p.held = grew
		return true
	}
	return false
}
