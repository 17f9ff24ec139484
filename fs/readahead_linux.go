package fs

import (
	"fmt"
	"os"
)

// readAhead is how far the kernel reads ahead of a program that reads a file in
// order, in KiB: enough for some chunks to be decoded at once.
const readAhead = 4096

// raiseReadAhead has the kernel read further ahead than it does by itself, which
// only root may ask for. It looks for the mount in the table: to touch it would be
// to wait for ourselves.
func (m *Mount) raiseReadAhead() {
	entry, _, found := ourMount(m.mountpoint)
	if !found {
		return
	}
	path := fmt.Sprintf("/sys/class/bdi/%s/read_ahead_kb", entry.Device)
	if err := os.WriteFile(path, fmt.Appendln(nil, readAhead), 0); err != nil {
		m.log.Debug("the kernel does not read further ahead", "error", err)
	}
}
