package fs

import (
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/snapshot"
)

// ourMount finds the topmost snapfs mount at a place, and the whole table.
func ourMount(at string) (ours snapshot.MountEntry, all []snapshot.MountEntry, found bool) {
	all, err := snapshot.MountTable()
	if err != nil {
		return ours, nil, false
	}
	for _, e := range all {
		if e.Type == snapshot.MountType && e.Mountpoint == at {
			ours, found = e, true
		}
	}
	return ours, all, found
}

// mountOption returns a number among the file system's options.
func mountOption(e snapshot.MountEntry, name string) (uint32, bool) {
	for _, o := range strings.Split(e.Options, ",") {
		if text, ok := strings.CutPrefix(o, name+"="); ok {
			n, err := strconv.ParseUint(text, 10, 32)
			return uint32(n), err == nil
		}
	}
	return 0, false
}
