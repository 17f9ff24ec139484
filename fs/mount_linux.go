package fs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/child"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// maxRequest is the longest read that the kernel asks for at once, in bytes.
const maxRequest = 1 << 20

// A Mount is one mount that this process serves.
type Mount struct {
	*FS
	mountpoint string
	target     string // what is given to mount(2); empty: the mountpoint
	ready      bool   // it is mounted; guarded by the mutex of [Mounts]
	done       chan struct{}
}

// prepare makes a mount of store at an absolute directory, to be started.
func prepare(store *snapshot.Store, mountpoint string, opt Options) *Mount {
	return &Mount{FS: New(store, opt), mountpoint: mountpoint, done: make(chan struct{})}
}

// start mounts and begins to serve. The mount is usable when start returns.
func (m *Mount) start(opt Options) error {
	conn, err := m.attach(opt)
	if err != nil {
		return fmt.Errorf("mount at %s: %w", tree.Quote(m.mountpoint), err)
	}
	m.conn = conn
	m.raiseReadAhead()
	go func() {
		defer close(m.done)
		conn.serve()
	}()
	return nil
}

// attach mounts and answers the kernel's first request.
func (m *Mount) attach(opt Options) (*conn, error) {
	proto := fuse.NewProtocolServer(m.FS, &fuse.MountOptions{
		MaxWrite:                 maxRequest,
		MaxBackground:            64,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		ExtraCapabilities:        fuse.CAP_NO_OPENDIR_SUPPORT,
		EnableAcl:                m.acls,
		Logger:                   slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	})
	mount := m.mountDirect
	if !m.root {
		mount = m.mountAsUser
	}
	fd, err := mount(opt.AllowOther)
	if err != nil {
		return nil, err
	}
	c, err := newConn(fd, m.FS, proto)
	if err != nil {
		return nil, errors.Join(err, Unmount(m.mountpoint, true))
	}
	return c, nil
}

// mountDirect mounts as root. The descriptor is closed in children: one that
// kept it would keep a dead daemon's mount hanging instead of failing.
func (m *Mount) mountDirect(allowOther bool) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, noDevice(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d,default_permissions",
		fd, unix.S_IFDIR, os.Geteuid(), os.Getegid(), maxRequest)
	if allowOther {
		options += ",allow_other"
	}
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if err := unix.Mount(m.dir, cmp.Or(m.target, m.mountpoint), snapshot.MountType, flags, options); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("mount: %w", err)
	}
	return fd, nil
}

// mountAsUser mounts as an ordinary user: fusermount3 does it, and hands over its
// descriptor through a socket.
func (m *Mount) mountAsUser(allowOther bool) (fd int, err error) {
	// fusermount3 asks for that too, and says why only on its own stderr.
	if err := unix.Access(m.mountpoint, unix.W_OK); err != nil {
		return -1, fmt.Errorf("no write access to the mountpoint: %w: %w", err, snapshot.ErrForbidden)
	}
	var st unix.Stat_t
	if err := unix.Stat(m.mountpoint, &st); err != nil {
		return -1, &os.PathError{Op: "stat", Path: m.mountpoint, Err: err}
	}
	if st.Mode&unix.S_ISVTX != 0 && st.Uid != m.uid {
		return -1, fmt.Errorf("the mountpoint is sticky, like /tmp, and somebody else's: %w", snapshot.ErrForbidden)
	}
	if err := userMayMount(allowOther); err != nil {
		return -1, err
	}
	program, err := fusermount()
	if err != nil {
		return -1, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, &os.SyscallError{Syscall: "socketpair", Err: err}
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "ours"), os.NewFile(uintptr(ends[1]), "theirs")
	defer ours.Close()
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	options := fmt.Sprintf("ro,nosuid,nodev,default_permissions,fsname=%s,subtype=snapfs,max_read=%d", escape.Replace(m.dir), maxRequest)
	if allowOther {
		options += ",allow_other"
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "-o", options, "--", m.mountpoint)
	cmd.Env = child.Env("_FUSE_COMMFD=3", "LC_ALL=C")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = &out
	err = cmd.Run()
	theirs.Close()
	if err != nil {
		return -1, fmt.Errorf("fusermount3 does not mount (%w): %s: %w", err, strings.Join(strings.Fields(out.String()), " "), snapshot.ErrForbidden)
	}
	return receiveFile(int(ours.Fd()))
}

// receiveFile takes a descriptor that was sent through a socket.
func receiveFile(socket int) (fd int, err error) {
	var data [4]byte
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, &os.SyscallError{Syscall: "recvmsg", Err: err}
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("fusermount3 sent no descriptor: %w", errors.Join(err, unix.EPROTO))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("fusermount3 sent no descriptor: %w", errors.Join(err, unix.EPROTO))
	}
	return fds[0], nil
}

// fuseConf is where the administrator says what ordinary users may do.
const fuseConf = "/etc/fuse.conf"

// userMayMount looks for what keeps an ordinary user from mounting. fusermount3
// would say it on its own stderr, which is not ours to give on.
func userMayMount(allowOther bool) error {
	if _, err := fusermount(); err != nil {
		return err
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case errors.Is(err, unix.EACCES):
		return snapshot.WithHint(fmt.Errorf("open /dev/fuse: %w", err), "let ordinary users use FUSE (chmod 666 /dev/fuse, or a udev rule), or mount as root")
	case err != nil:
		return noDevice(err)
	}
	_ = f.Close()
	if !allowOther {
		return nil
	}
	conf, err := os.ReadFile(fuseConf)
	if err == nil && !slices.ContainsFunc(strings.Split(string(conf), "\n"), func(line string) bool { return strings.TrimSpace(line) == "user_allow_other" }) ||
		errors.Is(err, iofs.ErrNotExist) {
		return snapshot.WithHint(fmt.Errorf("%s does not let ordinary users open a mount to others: %w", fuseConf, snapshot.ErrForbidden),
			"root can allow it with a line user_allow_other in %s", fuseConf)
	}
	return nil // what cannot be read, fusermount3 reads
}

// fusermount finds the program that mounts for ordinary users. It is looked for
// in /bin too, since a daemon may be started with little in its PATH.
func fusermount() (string, error) {
	path, err := exec.LookPath("fusermount3")
	if err != nil {
		path, err = exec.LookPath("/bin/fusermount3")
	}
	if err != nil {
		return "", snapshot.WithHint(fmt.Errorf("fusermount3 is not installed: %w", err), "apt-get install fuse3, or mount as root")
	}
	return path, nil
}

// noDevice explains that there is no FUSE.
func noDevice(err error) error {
	return snapshot.WithHint(fmt.Errorf("open /dev/fuse: %w", err), "load the kernel's fuse module (modprobe fuse), or pass /dev/fuse into the container")
}
