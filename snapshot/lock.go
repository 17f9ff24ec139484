package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A storeLock is the right to work on a store. The kernel frees it when its
// process ends, however it ends.
type storeLock struct{ f *os.File }

// acquire takes the store's lock for a verb, or fails at once with a
// [*LockedError].
func acquire(dir, verb string) (*storeLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Forbidden(dir, fmt.Errorf("lock store: %w", err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, readHolder(f)
		}
		return nil, fmt.Errorf("lock store %s: %w", quoted(dir), err)
	}
	// Only for people: who holds it is decided by the lock itself.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), verb), 0)
	return &storeLock{f: f}, nil
}

// LockHolder says who wrote its name into a store's lock last: whoever holds it, if
// anybody does.
func LockHolder(dir string) *LockedError {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return &LockedError{}
	}
	defer f.Close()
	return readHolder(f)
}

// readHolder says who wrote its name into the lock.
func readHolder(f *os.File) *LockedError {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 256))
	pid, verb, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return &LockedError{}
	}
	return &LockedError{PID: n, Verb: verb}
}

// release gives the store free. Closing alone would leave the lock to a child
// that was forked at this moment, until it has begun its program.
func (l *storeLock) release() {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	_ = l.f.Close()
}
