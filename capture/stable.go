package capture

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// tries is how often a file that changes under the reader is read.
const tries = 3

var (
	errChanging   = errors.New("changed each time it was read (tried 3 times)")
	errNotRegular = errors.New("is no regular file any more")
)

// stillness says how a file held still while it was read.
type stillness uint8

const (
	still stillness = iota // it did not change
	grew                   // bytes were appended; those that it had at first were read
	torn                   // it changed, and is kept as it was read
)

// taken is what was read of a file: the number of bytes from its beginning on, and
// the first of them, headBytes at most.
type taken struct {
	size int64
	head []byte
}

const headBytes = walHeader

// note adds bytes that were read.
func (t *taken) note(p []byte) {
	t.size += int64(len(p))
	t.head = append(t.head, p[:min(len(p), headBytes-len(t.head))]...)
}

// An anchor is both ends of a file at a moment. As long as they stand where they
// were, a file that has become longer counts as appended to.
type anchor struct {
	size       int64
	head, tail []byte // edge bytes at most
}

const edge = 64 << 10

// anchorTries is how often an anchor is looked for, between two writes of somebody
// who does nothing else. Edges are halved each patientTries: short ones are read faster.
const (
	anchorTries  = 200
	patientTries = 25
)

// drop takes the anchor of an open file and its metadata at that moment.
func drop(fd int, st *unix.Stat_t) (a anchor, ok bool) {
	for try := range anchorTries {
		before := *st
		n := min(before.Size, edge>>(try/patientTries))
		a.size, a.head, a.tail = before.Size, readAt(fd, 0, n, a.head), readAt(fd, before.Size-n, n, a.tail)
		if unix.Fstat(fd, st) != nil {
			break
		}
		if unchangedSince(&before, st) && int64(len(a.head)) == n && int64(len(a.tail)) == n {
			return a, true
		}
	}
	return anchor{}, false
}

// holds reports whether both ends stand in the file still.
func (a *anchor) holds(fd int) bool {
	return bytes.Equal(readAt(fd, 0, int64(len(a.head)), nil), a.head) &&
		bytes.Equal(readAt(fd, a.size-int64(len(a.tail)), int64(len(a.tail)), nil), a.tail)
}

// readAt returns n bytes of an open file, or as many as there are, in b if they fit.
func readAt(fd int, off, n int64, b []byte) []byte {
	b = slices.Grow(b[:0], int(n))[:n]
	got := 0
	for got < len(b) {
		m, err := ignoringEINTR(func() (int, error) { return unix.Pread(fd, b[got:], off+int64(got)) })
		if err != nil || m == 0 {
			break
		}
		got += m
	}
	return b[:got]
}

// unchangedSince reports whether nothing shows that a file was changed between two
// looks at it.
func unchangedSince(before, after *unix.Stat_t) bool {
	return before.Ino == after.Ino && before.Dev == after.Dev && before.Size == after.Size &&
		before.Mtim == after.Mtim && before.Ctim == after.Ctim
}

// readStable opens a file, has read take its content, looks whether it held still
// meanwhile, else begins anew. read gets the length to expect.
func (w *worker) readStable(f *foundFile, read func(fd int, size int64) (taken, error)) error {
	for try := range tries {
		done, err := w.readOnce(f, try > 0, read)
		if done || err != nil {
			return err
		}
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
	}
	if !w.opt.AllowTorn {
		return errChanging
	}
	f.held = torn
	return nil
}

// readOnce is one try. The first goes by what the name was when it was looked at,
// further ones by the open file.
func (w *worker) readOnce(f *foundFile, again bool, read func(fd int, size int64) (taken, error)) (done bool, err error) {
	fd, err := f.dir.fd.open(f.e.entry.Name, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := w.checkOverlaid(fd, f.st.Size); err != nil {
		return false, err
	}
	if w.pause(f.dir, &f.st) || again {
		if err := unix.Fstat(fd, &f.st); err != nil {
			return false, err
		}
		if kindOf(&f.st) != unix.DT_REG {
			return false, errNotRegular
		}
	}
	// A small file is mostly read before anybody can append to it.
	var start anchor
	anchored := false
	if again || f.st.Size > batchBytes {
		start, anchored = drop(fd, &f.st)
	}
	before := f.st
	shows := settledNow(&before, f.dir.fd.fine)
	got, err := read(fd, before.Size)
	if err != nil {
		if !again && unix.Fstat(fd, &f.st) == nil && kindOf(&f.st) != unix.DT_REG {
			err = errNotRegular
		}
		return false, err
	}
	if f.xattrs, f.secrets.hides, err = w.xattrs(fd); err != nil {
		return false, err
	}
	database := IsDatabase(got.head)
	accompanied := database && w.accompanied(f)
	if err := unix.Fstat(fd, &f.st); err != nil {
		return false, err
	}
	unchanged := shows && got.size == before.Size && unchangedSince(&before, &f.st)
	switch {
	case database && (accompanied || !unchanged):
		return false, errAccompanied
	case unchanged:
		return true, nil
	case anchored && before.Ino == f.st.Ino && before.Size < f.st.Size && before.Size <= got.size && start.holds(fd):
		f.st, f.held = before, grew
		return true, nil
	}
	f.st.Size = got.size
	return false, nil
}

// pause waits, if need be, until a change of a file that was looked at must show in
// its times. It reports whether it did.
func (w *worker) pause(d *directory, st *unix.Stat_t) bool {
	if settledNow(st, d.fd.fine) {
		return false
	}
	margin := tickOf(st)
	// A clock that was set back, or another machine's, is not waited for.
	wait := min(time.Until(ctimeOf(st).Add(margin))+time.Millisecond, margin)
	select {
	case <-time.After(wait):
	case <-w.ctx.Done():
	}
	return true
}

// Since Linux 6.13 some file systems give a time that nobody has seen yet to a change
// after a look at the times (Documentation/filesystems/multigrain-ts.rst). Their
// numbers are from linux/magic.h.
const fineSince = 6*1000 + 13

var fineMagic = map[int64]bool{
	0xEF53:     true, // ext4
	0x58465342: true, // XFS
	0x9123683E: true, // Btrfs
	0x01021994: true, // tmpfs
}

// fineTimes reports whether each change of a file after a look shows in its times.
func fineTimes(fd int) bool {
	var fs unix.Statfs_t
	var name unix.Utsname
	if unix.Fstatfs(fd, &fs) != nil || unix.Uname(&name) != nil || !fineMagic[int64(fs.Type)] {
		return false
	}
	parts := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	if len(parts) < 3 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, merr := strconv.Atoi(parts[1])
	return err == nil && merr == nil && major*1000+minor >= fineSince
}

// TornReason is the reason of an [Omission] for a file that is torn.
const TornReason = "torn: changed each time it was read"

// tellHeld lists a file that did not hold still and is in the tree.
func (w *worker) tellHeld(f *foundFile) {
	switch f.held {
	case grew:
		w.omit(&w.grew, f.dir.pathOf(f.e), "grew: what was appended while it was read")
	case torn:
		f.e.entry.Flags |= tree.Torn
		w.omit(&w.torn, f.dir.pathOf(f.e), TornReason)
	}
}
