// Package socket is about Unix sockets in the directories of stores: how one is made
// that only its owner can use, reached whatever the length of its path, and who is at
// the other end.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is how many connections the kernel queues; it cuts this to its own
// limit.
const backlog = 4096

// backlogWait is how long a dial waits when there are more connections to accept than
// the kernel queues.
const backlogWait = 5 * time.Millisecond

// Listen listens on the socket called name in an open directory, which is closed with
// the listener. It replaces one that a process left which is gone: nobody else may
// listen there. The socket is its directory's owner's alone.
//
// It binds through the directory: the kernel takes socket paths of at most 107 bytes.
// The socket has its mode before anybody can connect: connecting works only after
// listen.
func Listen(d *os.File, name string) (net.Listener, error) {
	dirfd := int(d.Fd())
	if err := unix.Unlinkat(dirfd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // net.FileListener makes a descriptor of its own
	// The mode of the new file is that of the socket, less the umask.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return nil, err
	}
	through := filepath.Join("/proc/self/fd", fmt.Sprint(dirfd))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(through, name)}); err != nil {
		return nil, err
	}
	if err := settle(d, dirfd, name); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, dir: d, name: name}, nil
}

// settle gives the socket its mode, whatever the umask, and the directory's owner.
func settle(d *os.File, dirfd int, name string) error {
	if err := unix.Fchmodat(dirfd, name, 0o600, 0); err != nil {
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
	return unix.Fchownat(dirfd, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

// A listener takes its name away first when it closes, so that who
// comes later sees at once that nobody is there.
type listener struct {
	net.Listener
	dir  *os.File
	name string
	once sync.Once
	err  error
}

// Close implements [net.Listener].
func (s *listener) Close() error {
	s.once.Do(func() {
		err := unix.Unlinkat(int(s.dir.Fd()), s.name, 0)
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		s.err = errors.Join(err, s.Listener.Close(), s.dir.Close())
	})
	return s.err
}

// Dial connects to the socket called name in an open directory, through that. Its errors
// name no path: it would be the descriptor's.
func Dial(ctx context.Context, dir *os.File, name string) (net.Conn, error) {
	raw, err := dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	for {
		var conn net.Conn
		var derr error
		// Control keeps the descriptor open meanwhile.
		if err := raw.Control(func(fd uintptr) {
			conn, derr = d.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", fmt.Sprint(fd), name))
		}); err != nil {
			return nil, err
		}
		if op := (*net.OpError)(nil); errors.As(derr, &op) {
			derr = op.Err
		}
		if !errors.Is(derr, unix.EAGAIN) {
			return conn, derr
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backlogWait):
		}
	}
}

// PeerUID asks the kernel who connected to a Unix socket: the user that the peer
// was when it did.
func PeerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("no peer credentials on a %s connection", c.LocalAddr().Network())
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, cerr
	}
	return cred.Uid, nil
}
