package fs

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/snapshot"
)

// tableEntry is one line of the mount table, see proc_pid_mountinfo(5). Names are
// escaped as they stand there.
type tableEntry struct {
	id, parent string
	device     string // major:minor
	mountpoint string
	kind       string
	options    string // of the file system
}

// escaped writes a path as the mount table does.
var escaped = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// mountTable reads the mount table of this process. It touches no mount.
func mountTable() ([]tableEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []tableEntry
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if ok && len(left) > 5 && len(right) > 2 {
			all = append(all, tableEntry{id: left[0], parent: left[1], device: left[2], mountpoint: left[4], kind: right[0], options: right[2]})
		}
	}
	return all, lines.Err()
}

// ourMount finds the topmost snapfs mount at a place, and the whole table.
func ourMount(at string) (ours tableEntry, all []tableEntry, found bool) {
	all, err := mountTable()
	if err != nil {
		return ours, nil, false
	}
	for _, e := range all {
		if e.kind == snapshot.MountType && e.mountpoint == escaped.Replace(at) {
			ours, found = e, true
		}
	}
	return ours, all, found
}

// option returns a number among the file system's options.
func (e tableEntry) option(name string) (uint32, bool) {
	for _, o := range strings.Split(e.options, ",") {
		if text, ok := strings.CutPrefix(o, name+"="); ok {
			n, err := strconv.ParseUint(text, 10, 32)
			return uint32(n), err == nil
		}
	}
	return 0, false
}
