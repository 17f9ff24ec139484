package fs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// maxRequest is the longest read that the kernel asks for at once, in bytes.
const maxRequest = 1 << 20

// A Mount is one mount that this process serves.
type Mount struct {
	*FS
	mountpoint string
	done       chan struct{}
}

// newMount mounts store at an absolute and existing directory and begins to
// serve it. It is usable when newMount returns.
func newMount(store *snapshot.Store, mountpoint string, opt Options) (*Mount, error) {
	m := &Mount{FS: New(store, opt), mountpoint: mountpoint, done: make(chan struct{})}
	server, err := m.attach(opt)
	if err != nil {
		return nil, fmt.Errorf("mount at %s: %w", mountpoint, err)
	}
	go func() {
		defer close(m.done)
		server.Serve()
	}()
	return m, nil
}

// attach mounts and answers the kernel's first request.
func (m *Mount) attach(opt Options) (*fuse.Server, error) {
	mo := &fuse.MountOptions{
		AllowOther:    opt.AllowOther,
		Options:       []string{"ro", "default_permissions"},
		FsName:        m.store.Dir(),
		Name:          "snapfs",
		MaxWrite:      maxRequest,
		MaxBackground: 64,
		// Plain read results would try to splice first.
		DisableSplice:            true,
		DisableXAttrs:            true,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		ExtraCapabilities:        fuse.CAP_NO_OPENDIR_SUPPORT,
		Logger:                   slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	}
	if !m.root {
		server, err := fuse.NewServer(m.FS, m.mountpoint, mo)
		if errors.Is(err, exec.ErrNotFound) {
			return nil, snapshot.WithHint(fmt.Errorf("fusermount3 is not installed: %w", err), "apt-get install fuse3, or mount as root")
		}
		return server, err
	}
	fd, err := mountDirect(m.mountpoint, mo)
	if err != nil {
		return nil, err
	}
	server, err := fuse.NewServer(m.FS, fmt.Sprintf("/dev/fd/%d", fd), mo)
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(m.mountpoint, unix.MNT_DETACH))
	}
	return server, nil
}

// mountDirect mounts as root. go-fuse could do that too, but would leave the
// descriptor open to every child, which then keeps a dead daemon's mount
// hanging instead of failing.
func mountDirect(mountpoint string, mo *fuse.MountOptions) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		err = fmt.Errorf("open /dev/fuse: %w", err)
		return -1, snapshot.WithHint(err, "load the kernel's fuse module, or pass /dev/fuse into the container")
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d,default_permissions",
		fd, unix.S_IFDIR, os.Geteuid(), os.Getegid(), mo.MaxWrite)
	if mo.AllowOther {
		options += ",allow_other"
	}
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if err := unix.Mount(mo.FsName, mountpoint, snapshot.MountType, flags, options); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("mount: %w", err)
	}
	return fd, nil
}

// Unmount takes a snapfs mount away, served by whomever. A lazy one goes when
// its last user has left. It fails with [snapshot.ErrBusy].
func Unmount(mountpoint string, lazy bool) error {
	err := unmount(mountpoint, lazy)
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%s is in use: %w", mountpoint, snapshot.ErrMountBusy)
		return snapshot.WithHint(err, "close what uses it (fuser -vm %s shows that), or add --lazy", mountpoint)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", mountpoint, err)
	}
	return nil
}

func unmount(mountpoint string, lazy bool) error {
	if os.Geteuid() == 0 {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH
		}
		return unix.Unmount(mountpoint, flags)
	}
	args := []string{"-u", mountpoint}
	if lazy {
		args = []string{"-u", "-z", mountpoint}
	}
	var out bytes.Buffer
	cmd := exec.Command("fusermount3", args...)
	cmd.Stderr = &out
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		if strings.Contains(text, "busy") {
			return unix.EBUSY
		}
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}
