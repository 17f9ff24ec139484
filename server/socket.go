package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// backlog is how many connections the kernel queues; it cuts this to its own
// limit.
const backlog = 4096

// ListenSocket listens on the socket in a store's directory, replacing one that
// an earlier daemon left. Only the process that has the store's lock may call it.
func ListenSocket(dir string) (net.Listener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := listenIn(d)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", filepath.Join(dir, snapshot.SocketFile), err), d.Close())
	}
	return l, nil
}

// listenIn binds through the open directory: the kernel takes socket paths of at
// most 107 bytes. The socket has its mode before anybody can connect: connecting
// works only after listen.
func listenIn(d *os.File) (net.Listener, error) {
	dirfd := int(d.Fd())
	if err := unix.Unlinkat(dirfd, snapshot.SocketFile, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), snapshot.SocketFile)
	defer f.Close() // net.FileListener makes a descriptor of its own
	// The mode of the new file is that of the socket, less the umask.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return nil, err
	}
	through := filepath.Join("/proc/self/fd", fmt.Sprint(dirfd))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(through, snapshot.SocketFile)}); err != nil {
		return nil, err
	}
	if err := settle(d, dirfd); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &socket{Listener: l, dir: d}, nil
}

// settle gives the socket its mode, whatever the umask, and the store's owner.
func settle(d *os.File, dirfd int) error {
	if err := unix.Fchmodat(dirfd, snapshot.SocketFile, 0o600, 0); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := d.Stat()
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	return unix.Fchownat(dirfd, snapshot.SocketFile, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

// socket is a listener that takes its name away first when it closes, so that who
// comes later sees at once that there is no daemon.
type socket struct {
	net.Listener
	dir  *os.File
	once sync.Once
	err  error
}

// Close implements [net.Listener].
func (s *socket) Close() error {
	s.once.Do(func() {
		err := unix.Unlinkat(int(s.dir.Fd()), snapshot.SocketFile, 0)
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		s.err = errors.Join(err, s.Listener.Close(), s.dir.Close())
	})
	return s.err
}
