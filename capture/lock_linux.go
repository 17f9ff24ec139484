package capture

import (
	"time"

	"golang.org/x/sys/unix"
)

// A checkpointLock keeps SQLite from moving the log into the database. It is taken on
// the shared memory, as a reader's that uses only the database: WAL_READ_LOCK(0).
type checkpointLock struct {
	fd   int // of the shared memory; -1: there is none
	held bool
}

// openLock opens the lock of a database. Over a lower layer programs have their locks on the
// mounted workspace's file, and not on that of the upper layer.
func (c *walker) openLock(db *part) *checkpointLock {
	name := db.e.entry.Name + shmSuffix
	if c.lower != nil {
		return &checkpointLock{fd: c.lower.openMounted(db.dir.path + name)}
	}
	fd, err := db.dir.fd.open(name, 0)
	if err != nil {
		fd = -1
	}
	return &checkpointLock{fd: fd}
}

// take takes the lock, if the file system has locks and a checkpoint that is under
// way soon ends. After a checkpoint there is a moment without one, however much is
// written.
func (l *checkpointLock) take() {
	const readLock0 = 123 // the byte that stands for it
	const looks, pause = 500, 200 * time.Microsecond
	for i := 0; l.fd >= 0 && !l.held && i < looks; i++ {
		if i > 0 {
			time.Sleep(pause)
		}
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: readLock0, Len: 1}
		err := unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLK, &lock)
		if l.held = err == nil; !l.held && err != unix.EAGAIN && err != unix.EACCES {
			return
		}
	}
}

func (l *checkpointLock) close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
	}
}
