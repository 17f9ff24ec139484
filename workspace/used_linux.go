package workspace

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// mountedStill looks through the mount tables of all processes for a mount with a source,
// and says where it is; empty: nowhere.
func mountedStill(source string) (string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "", fmt.Errorf("look who else has it mounted: %w", err)
	}
	looked := map[uint64]bool{} // mount namespaces
	for _, e := range entries {
		var st unix.Stat_t
		proc := filepath.Join("/proc", e.Name())
		if unix.Stat(filepath.Join(proc, "ns/mnt"), &st) != nil || looked[st.Ino] {
			continue
		}
		looked[st.Ino] = true
		f, err := os.Open(filepath.Join(proc, "mountinfo"))
		if err != nil {
			continue // it has ended
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			_, after, _ := strings.Cut(lines.Text(), " - ")
			if of := strings.Fields(after); len(of) > 1 && of[1] == source && len(fields) > 4 {
				_ = f.Close()
				return fmt.Sprintf("at %s in the mount namespace of process %s", fields[4], e.Name()), nil
			}
		}
		_ = f.Close()
	}
	return "", nil
}

// fingerprint is the same as long as nothing in an upper layer changes.
func fingerprint(upper string) (string, error) {
	sum := blake3.New()
	err := filepath.WalkDir(upper, func(path string, d iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: path, Err: err}
		}
		_, err = fmt.Fprintf(sum, "%q %d %d %d.%d\n", path, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
		return err
	})
	if errors.Is(err, iofs.ErrNotExist) {
		return "", nil // it changes, or there is none
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}
