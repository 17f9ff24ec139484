package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// markerVersion is the version of the marker's content.
const markerVersion = 1

// maxMarker bounds the marker's length in bytes, patterns included.
const maxMarker = 1 << 20

// marker is the content of the marker file: what is being restored. It is written
// before everything else and never changed.
type marker struct {
	Version    int    `json:"version"`
	Checkpoint string `json:"checkpoint,omitempty"` // its id, for people
	Tree       string `json:"tree"`                 // root directory object
	Restore    string `json:"restore"`              // hash of all that decides the result
	Patterns   string `json:"patterns,omitempty"`   // as policy.Files.Encode has them
	Boot       string `json:"boot"`                 // boot of the machine; empty: not known
	Stage      string `json:"stage,omitempty"`      // name of the staging directory that it is in
	Merge      string `json:"merge,omitempty"`      // "overlay" or "mirror", of a restore into a live directory
	Aside      string `json:"aside,omitempty"`      // of that one: name of its own directory in the target
	// ACL is the default ACL that the target had: a failure puts it back.
	ACL []byte `json:"acl,omitempty"`
}

// decode reads what [target.mark] wrote, and tells whether it is that.
func (m *marker) decode(data []byte) bool {
	return json.Unmarshal(data, m) == nil && m.Version == markerVersion
}

// newMarker describes a restore. Two restores with equal Restore make the same.
func newMarker(src Source, opt Options) marker {
	files, checkpoint := opt.Files, opt.Checkpoint
	m := marker{Version: markerVersion, Checkpoint: checkpoint, Tree: src.Root.String(), Boot: disk.BootID()}
	rules := ""
	if !files.All() {
		rules = string(files.Encode())
	}
	e := src.Stat
	m.Restore = cas.Data.Sum(fmt.Appendf(nil, "%s %o %d %d %s %s %d %t\n%s\n%s",
		src.Root, e.Mode, e.MtimeSec, e.MtimeNsec, e.XAttrs, src.Links.Hash, src.Links.Size, opt.NoHardlinks, newOwners(src, opt), rules)).String()
	m.Patterns = rules
	return m
}

// An UnfinishedError says that a directory is the target of a restore that did not
// end, or has not ended yet. It is an [ErrUnfinished].
type UnfinishedError struct {
	Dir        string // quoted
	Living     bool   // that restore is under way
	Stage      bool   // the directory is the staging directory of another one
	Merge      string // "overlay" or "mirror", of a restore into a live directory
	Checkpoint string // what it restores; empty: not known
	Patterns   bool   // only a part of it
}

// Error tells the two cases apart.
func (e *UnfinishedError) Error() string {
	if e.Living {
		return e.Dir + ": another restore into it is under way"
	}
	return e.Dir + ": " + ErrUnfinished.Error()
}

// Unwrap returns [ErrUnfinished].
func (e *UnfinishedError) Unwrap() error { return ErrUnfinished }

// Unfinished tells what the marker in dir says, for a hint; nil when there is none.
func Unfinished(dir string) *UnfinishedError {
	t, err := openTarget(dir)
	if err != nil {
		return nil
	}
	defer t.close()
	l, err := t.locked(dir)
	if l != nil {
		defer l.release()
		return l.refuse(dir)
	}
	var e *UnfinishedError
	errors.As(err, &e)
	return e
}

// lock is a marker file that this process has locked. The lock goes with the
// process, however that ends.
type lock struct {
	marker
	fd    int
	begun unix.Timespec // when the marker was written, by its file system's clock
}

// refuse is the error of a restore that is not the marker's.
func (l *lock) refuse(dir string) *UnfinishedError {
	return &UnfinishedError{Dir: dir, Stage: l.Stage != "", Merge: l.Merge, Checkpoint: l.Checkpoint, Patterns: l.Patterns != ""}
}

// release gives the lock back; the marker stays.
func (l *lock) release() {
	if l != nil && l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
}

// mark puts a locked marker into the directory, and makes it durable.
func (t *target) mark(m marker, shown string) (*lock, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(data) > maxMarker {
		m.Patterns = "too many to be listed"
		if data, err = json.Marshal(m); err != nil {
			return nil, err
		}
	}
	data = append(data, '\n')
	fd, err := t.linkMarker(data)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		fd, err = t.createMarker(data) // a file system that makes no files without a name
	}
	if errors.Is(err, unix.EEXIST) {
		return nil, &UnfinishedError{Dir: shown, Living: true} // it was not there a moment ago
	}
	if err != nil {
		return nil, cas.NoSpace(err)
	}
	var st unix.Stat_t
	if err := errors.Join(unix.Fsync(t.fd), unix.Fstat(fd, &st)); err != nil {
		_ = unix.Close(fd)
		return nil, errors.Join(cas.NoSpace(err), unix.Unlinkat(t.fd, capture.Marker, 0))
	}
	return &lock{marker: m, fd: fd, begun: st.Mtim}, nil
}

// unmark takes the marker away.
func (t *target) unmark(shown string) error {
	if err := unix.Unlinkat(t.fd, capture.Marker, 0); err != nil {
		return fmt.Errorf("remove the marker in %s: %w", shown, err)
	}
	return nil
}

// replace puts another marker in the place of l, which is that of a restore into the live
// directory t that goes on as another one. It is written in the restore's own directory.
func (l *lock) replace(t, aside *target, m marker) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	fd, err := aside.createMarker(append(data, '\n'))
	if err != nil {
		return cas.NoSpace(err)
	}
	if err := errors.Join(unix.Renameat(aside.fd, capture.Marker, t.fd, capture.Marker), unix.Fsync(t.fd)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	l.release()
	l.marker, l.fd = m, fd
	return nil
}

// linkMarker makes a marker that is there with its whole content or not at all.
func (t *target) linkMarker(data []byte) (fd int, err error) {
	fd, err = unix.Openat(t.fd, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err = writeMarker(fd, data); err == nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), t.fd, capture.Marker, unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// createMarker makes a marker by its name. One that was killed meanwhile says nothing,
// and nobody resumes it.
func (t *target) createMarker(data []byte) (fd int, err error) {
	fd, err = unix.Openat(t.fd, capture.Marker, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err := writeMarker(fd, data); err != nil {
		_ = unix.Close(fd)
		return -1, errors.Join(err, unix.Unlinkat(t.fd, capture.Marker, 0))
	}
	return fd, nil
}

// writeMarker locks and fills a new marker file.
func writeMarker(fd int, data []byte) error {
	// A file system without locks is no reason to fail: nobody will resume there.
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err := writeAt(fd, data, 0); err != nil {
		return err
	}
	return unix.Fsync(fd)
}

// locked locks the marker in the directory, which messages call shown; nil when
// there is none. A marker that another process has locked, that is not the caller's
// or that cannot be read is an [UnfinishedError].
func (t *target) locked(shown string) (*lock, error) {
	for {
		fd, err := unix.Openat(t.fd, capture.Marker, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, &UnfinishedError{Dir: shown}
		}
		l, err := readMarker(fd, shown)
		if err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
		// Its restore may have come to its end before we had the lock.
		var st, named unix.Stat_t
		err = errors.Join(unix.Fstat(fd, &st), unix.Fstatat(t.fd, capture.Marker, &named, unix.AT_SYMLINK_NOFOLLOW))
		if err == nil && st.Dev == named.Dev && st.Ino == named.Ino {
			return l, nil
		}
		l.release()
	}
}

// readMarker reads and locks an open marker.
func readMarker(fd int, shown string) (*lock, error) {
	refused := &UnfinishedError{Dir: shown}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !own(fd, &st) || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 2*maxMarker {
		return nil, refused
	}
	l := &lock{fd: fd, begun: st.Mtim}
	data := make([]byte, st.Size)
	if n, err := unix.Pread(fd, data, 0); err != nil && !errors.Is(err, io.EOF) || n < len(data) {
		return nil, refused
	}
	if !l.marker.decode(data) {
		return nil, refused
	}
	refused = l.refuse(shown)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		refused.Living = errors.Is(err, unix.EWOULDBLOCK)
		return nil, refused
	}
	return l, nil
}
