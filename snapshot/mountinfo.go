package snapshot

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// MountType is the file system type of our mounts in the mount table.
const MountType = "fuse.snapfs"

// A Mountpoint is a snapfs mount in this process's mount table.
type Mountpoint struct {
	Mountpoint string
	Store      string // directory of the store that it shows
	Device     string // major:minor
}

// Mountpoints lists the snapfs mounts, in the order of their mounting. It does
// not touch them: one whose daemon is gone would answer with an error, one that
// this process serves not at all.
func Mountpoints() ([]Mountpoint, error) {
	all, err := MountTable()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return ours(all), nil
}

// ours picks the snapfs mounts.
func ours(all []MountEntry) []Mountpoint {
	var mounts []Mountpoint
	for _, e := range all {
		if e.Type == MountType {
			mounts = append(mounts, Mountpoint{Mountpoint: e.Mountpoint, Store: e.Source, Device: e.Device})
		}
	}
	return mounts
}

// A MountEntry is one line of the mount table, see proc_pid_mountinfo(5).
type MountEntry struct {
	ID, Parent string
	Device     string // major:minor
	Root       string // of its file system, the directory that is seen there
	Mountpoint string
	Type       string
	Source     string
	Options    string // of the file system
}

// MountTable reads the mount table of this process, in the order of mounting. It
// touches no mount.
func MountTable() ([]MountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

func parseMounts(table io.Reader) ([]MountEntry, error) {
	var all []MountEntry
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// id, parent, major:minor, root, mountpoint, options, optional fields, "-",
		// type, source, super options. Only the space separates them: the other
		// white space stands unescaped in names.
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		all = append(all, MountEntry{
			ID: left[0], Parent: left[1], Device: left[2], Root: unescape(left[3]), Mountpoint: unescape(left[4]),
			Type: right[0], Source: unescape(right[1]), Options: right[2],
		})
	}
	return all, lines.Err()
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
