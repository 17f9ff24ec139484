package fs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/child"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// health says whether somebody serves a mount.
type health int

const (
	alive health = iota // or nothing is known to the contrary
	dead                // its daemon is gone
	mute                // it does not answer in time
)

// answerTime is how long a mount has to answer before it is taken for mute.
const answerTime = time.Second

// probe asks a mount for its totals, by statfs(2) in another process: one that
// waits for a daemon which never answers cannot always be killed, and this one
// may be that daemon. stat(2) would not do, since the kernel answers it for the
// root of a mount from memory. The mount is asked as the user who mounted it: the
// kernel tells others, root too, nothing but zeros. The process gets the mount as
// a descriptor, so that it needs no right to the path.
func probe(ctx context.Context, mountpoint string) health {
	entry, _, found := ourMount(mountpoint)
	if !found {
		return alive
	}
	// O_PATH reaches the mount's root without asking its daemon.
	fd, err := unix.Open(mountpoint, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return alive
	}
	root := os.NewFile(uintptr(fd), mountpoint)
	defer root.Close()
	var out bytes.Buffer
	cmd := exec.Command("stat", "-f", "/proc/self/fd/3")
	cmd.Env = child.Env("LC_ALL=C")
	cmd.Dir = "/"
	cmd.Stderr = &out
	cmd.ExtraFiles = []*os.File{root}
	cmd.WaitDelay = answerTime
	uid, known := mountOption(entry, "user_id")
	if gid, ok := mountOption(entry, "group_id"); known && ok && os.Geteuid() == 0 && uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	if err := cmd.Start(); err != nil {
		return alive
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		// ENOTCONN, in the words of the usual C libraries.
		if err != nil && strings.Contains(out.String(), "not connected") {
			return dead
		}
		return alive
	case <-time.After(answerTime):
	case <-ctx.Done():
	}
	_ = cmd.Process.Kill()
	return mute
}

// recoverAt takes away what daemons that are gone left at a mountpoint. It fails
// with [snapshot.ErrMounted] where a mount is that lives, or that this one would
// lie in.
func recoverAt(ctx context.Context, at string, log *slog.Logger) error {
	for {
		mounts, err := snapshot.Mountpoints()
		if err != nil {
			return err
		}
		other, found := snapshot.Mountpoint{}, false
		for _, m := range mounts { // the last is the topmost
			if snapshot.Within(at, m.Mountpoint) {
				other, found = m, true
			}
		}
		if !found {
			return nil
		}
		state := probe(ctx, other.Mountpoint)
		if state != dead || other.Mountpoint != at {
			return occupied(at, other, state)
		}
		log.Warn("taking away the mount of a daemon that is gone", "mountpoint", at, "store", other.Store)
		if err := Unmount(at, true); err != nil {
			return snapshot.WithHint(fmt.Errorf("%s: the daemon of the mount there is gone, and the mount does not go: %w: %w", tree.Quote(at), err, snapshot.ErrMounted),
				"umount -l %s, as root", tree.QuoteShell(at))
		}
	}
}

// occupied says who is at a mountpoint.
func occupied(at string, other snapshot.Mountpoint, state health) error {
	text := fmt.Sprintf("%s: a snapfs mount is at %s already", tree.Quote(at), tree.Quote(other.Mountpoint))
	if state == dead {
		err := fmt.Errorf("%s, and its daemon is gone: %w", text, snapshot.ErrMounted)
		return snapshot.WithHint(err, "snapfs umount %s", tree.QuoteShell(other.Mountpoint))
	}
	pid := servedBy(other.Store)
	if pid > 0 {
		text += fmt.Sprintf(", served by process %d", pid)
	}
	text += " for the store " + tree.Quote(other.Store)
	if state != mute {
		return fmt.Errorf("%s: %w", text, snapshot.ErrMounted)
	}
	err := fmt.Errorf("%s, and it does not answer: %w", text, snapshot.ErrMounted)
	return snapshot.WithHint(err, "if the process hangs, end it, or take the mount away: snapfs umount --lazy %s", tree.QuoteShell(other.Mountpoint))
}

// servedBy returns the process that listens on a store's socket, or 0.
func servedBy(store string) int {
	dir, err := os.Open(store)
	if err != nil {
		return 0
	}
	defer dir.Close()
	// Through the descriptor: the kernel takes socket paths of at most 107 bytes.
	conn, err := net.DialTimeout("unix", filepath.Join("/proc/self/fd", fmt.Sprint(dir.Fd()), snapshot.SocketFile), answerTime)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
