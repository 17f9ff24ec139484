package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// write makes a directory of the given files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// facts are what stat(2) and read(2) tell of an entry.
type facts struct {
	mode, nlink, uid, gid uint32
	size                  int64
	mtime                 unix.Timespec
	content               string // or the target of a symlink
}

// walk collects the facts of a tree, by path.
func walk(t *testing.T, root string) map[string]facts {
	t.Helper()
	all := map[string]facts{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all[rel], err = factsOf(path)
		return err
	}))
	return all
}

func factsOf(path string) (facts, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return facts{}, fmt.Errorf("lstat %s: %w", path, err)
	}
	f := facts{mode: st.Mode, nlink: uint32(st.Nlink), uid: st.Uid, gid: st.Gid, size: st.Size, mtime: st.Mtim}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f.nlink, f.size = 0, 0 // each file system's own
	case unix.S_IFLNK:
		f.content, err = os.Readlink(path)
	case unix.S_IFREG:
		var data []byte
		data, err = os.ReadFile(path)
		f.content = string(data)
	}
	return f, err
}

// stat returns what lstat(2) says.
func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st), path)
	return st
}
