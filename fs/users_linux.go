package fs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// scanTime bounds the search for who uses a mount: /proc may make us wait for a
// process that itself waits.
const scanTime = 2 * time.Second

// usersOf lists what keeps a mount busy, as far as this process may look: other
// mounts on it, and processes that have their current or root directory, their
// program, an open file or mapped memory there. It reads /proc only and never
// walks into the mount, which this process may serve.
func usersOf(mountpoint string) []string {
	found := make(chan []string, 1)
	go func() {
		ours, table, ok := ourMount(mountpoint)
		if !ok {
			found <- nil
			return
		}
		var users []string
		for _, e := range table {
			if e.Parent == ours.ID {
				users = append(users, "the mount at "+tree.Quote(e.Mountpoint))
			}
		}
		found <- append(users, processesOn(mountpoint, ours)...)
	}()
	select {
	case users := <-found:
		return users
	case <-time.After(scanTime):
		return nil
	}
}

// processesOn names the processes that use a mount, by their ids.
func processesOn(mountpoint string, mount snapshot.MountEntry) []string {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && uses(filepath.Join("/proc", e.Name()), mountpoint, mount) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	var users []string
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		users = append(users, strings.TrimSpace(fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)))
	}
	return users
}

// uses reports whether a process, given by its directory in /proc, uses a mount.
func uses(proc, mountpoint string, mount snapshot.MountEntry) bool {
	for _, link := range []string{"cwd", "root", "exe"} {
		// The text of the link only. One that was deleted has a remark behind it.
		to, err := os.Readlink(filepath.Join(proc, link))
		if err == nil && snapshot.Within(to, mountpoint) {
			return true
		}
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fdinfo"))
	for _, fd := range fds {
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		if err == nil && mountID(string(info)) == mount.ID {
			return true
		}
	}
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	device := mapsDevice(mount.Device)
	for line := range strings.Lines(string(maps)) {
		// Range, permissions, offset, device, inode, path.
		if fields := strings.Fields(line); len(fields) > 4 && fields[3] == device {
			return true
		}
	}
	return false
}

// mountID returns the id of the mount that an open file is on, as its fdinfo says.
func mountID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

// mapsDevice writes a device as /proc/PID/maps does: two or more hex digits.
func mapsDevice(device string) string {
	major, minor, _ := strings.Cut(device, ":")
	hi, herr := strconv.ParseUint(major, 10, 32)
	lo, lerr := strconv.ParseUint(minor, 10, 32)
	if herr != nil || lerr != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x", hi, lo)
}
