package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/child"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// Unmount takes a snapfs mount away, served by whomever. A lazy one goes when
// its last user has left, and so does one whose daemon is gone. It fails with
// [snapshot.ErrMountBusy], and says who uses the mount as far as this process may
// know.
func Unmount(mountpoint string, lazy bool) error {
	err := unmount(mountpoint, lazy)
	// Another process that only looks, such as a mount of ours that probes it, is
	// gone in an instant.
	for try := 0; errors.Is(err, unix.EBUSY) && try < 10; try++ {
		time.Sleep(20 * time.Millisecond)
		err = unmount(mountpoint, lazy)
	}
	if errors.Is(err, unix.EBUSY) {
		if probe(context.Background(), mountpoint) == dead {
			return Unmount(mountpoint, true)
		}
		who := "in use"
		if users := usersOf(mountpoint); len(users) > 0 {
			who = "in use by " + some(users)
		}
		err = fmt.Errorf("%s is %s: %w", tree.Quote(mountpoint), who, snapshot.ErrMountBusy)
		return snapshot.WithHint(err, "close what uses it, or add --lazy")
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", tree.Quote(mountpoint), err)
	}
	return nil
}

// named is how many users of a mount a message names.
const named = 5

// some joins the first of a list.
func some(all []string) string {
	if len(all) > named {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), len(all)-named)
	}
	return strings.Join(all, ", ")
}

func unmount(mountpoint string, lazy bool) error {
	if os.Geteuid() == 0 {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH
		}
		return unix.Unmount(mountpoint, flags)
	}
	program, err := fusermount()
	if err != nil {
		return err
	}
	args := []string{"-u", mountpoint}
	if lazy {
		args = []string{"-u", "-z", mountpoint}
	}
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stderr = &out
	cmd.Env = child.Env("LC_ALL=C")
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		if strings.Contains(text, "busy") {
			return unix.EBUSY
		}
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}
