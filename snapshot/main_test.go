package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/policy"
)

// childEnv makes the test binary be one of the children.
const childEnv = "SNAPFS_TEST_CHILD"

func TestMain(m *testing.M) {
	what := os.Getenv(childEnv)
	if what == "" {
		os.Exit(m.Run())
	}
	out, err := children[what](context.Background(), os.Args[1:])
	res := childResult{Out: out}
	if err != nil {
		res.Err = err.Error()
		var p *capture.ProblemsError
		if errors.As(err, &p) {
			for _, one := range p.Problems {
				res.Problems = append(res.Problems, one.Path)
			}
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(res)
}

// children are what the test binary does as another process. A child opens the
// store of its first argument.
var children = map[string]func(ctx context.Context, args []string) (string, error){
	"save": func(ctx context.Context, args []string) (string, error) { // workspace, thread, excludes
		s, err := Open(ctx, args[0], Options{Create: true})
		if err != nil {
			return "", err
		}
		defer s.Close()
		opt := SaveOptions{Workspace: args[1], Thread: args[2], Force: true}
		for _, p := range args[3:] {
			opt.Files.Exclude = append(opt.Files.Exclude, policy.Rule{Pattern: p, Source: "--exclude"})
		}
		res, err := s.Save(ctx, opt)
		return res.Checkpoint.ID, err
	},
	"restore": func(ctx context.Context, args []string) (string, error) { // ref, dir
		s, err := Open(ctx, args[0], Options{})
		if err != nil {
			return "", err
		}
		defer s.Close()
		_, err = s.Restore(ctx, args[1], RestoreOptions{Dir: args[2]})
		return "", err
	},
	"stuck restore": stuckRestore,
}

// childResult is what a child says when it ends by itself.
type childResult struct {
	Out      string
	Err      string
	Problems []string
}

// ordinary is the user of the tests that need one without rights.
const ordinary = 1000

// childCommand prepares a child; as root it runs as uid.
func childCommand(t *testing.T, uid uint32, what string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what, "HOME=/nonexistent", "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	return cmd
}

// asUser runs a child as an ordinary user and returns what it says.
func asUser(t *testing.T, what string, args ...string) childResult {
	t.Helper()
	cmd := childCommand(t, ordinary, what, args...)
	out, err := cmd.Output()
	require.NoError(t, err)
	var res childResult
	require.NoError(t, json.Unmarshal(out, &res))
	return res
}

// userDir is a temporary directory that an ordinary user may enter and fill.
func userDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		require.NoError(t, disktest.LetIn(filepath.Dir(dir)))
		require.NoError(t, os.Chown(dir, ordinary, ordinary))
	}
	return dir
}

// openStore opens the store in dir, making it if need be. When the test ends, it
// must be without a fault.
func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		defer s.Close()
		if h := s.holder.(*localHolder); !t.Failed() && !h.closed {
			require.Empty(t, faults(t, s))
		}
	})
	return s
}

// newStore makes a store in a directory of its own.
func newStore(t *testing.T) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "store"))
}

// faults is what is wrong with a store.
func faults(t *testing.T, s *Store) []string {
	t.Helper()
	var found []string
	// The test's own context has ended when its cleanup runs.
	_, err := s.Verify(context.Background(), VerifyOptions{Data: true}, func(problem string) error {
		found = append(found, problem)
		return nil
	})
	require.NoError(t, err)
	return found
}

// save saves everything in a workspace and returns the checkpoint.
func save(t *testing.T, s *Store, workspace, thread string) Checkpoint {
	t.Helper()
	res, err := s.Save(t.Context(), SaveOptions{Workspace: workspace, Thread: thread, Files: policy.FilesOptions{NoDefaults: true}})
	require.NoError(t, err)
	return res.Checkpoint
}

// restored restores a checkpoint into a new directory.
func restored(t *testing.T, s *Store, ref string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	t.Cleanup(func() { removable(dir) })
	res, err := s.Restore(t.Context(), ref, RestoreOptions{Dir: dir})
	require.NoError(t, err)
	require.Empty(t, res.Incomplete)
	return dir
}

// removable gives the owner back what a test took away, for the cleanup.
func removable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d iofs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// write makes files with their directories; a name that ends in a slash is an
// empty directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, data := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
	}
}

// node is all that must come back of an entry.
type node struct {
	Mode   uint32 // with the kind
	Mtime  unix.Timespec
	Size   int64
	Sum    string // of the content, or a link's target
	XAttrs map[string]string
	Link   string // the first name of a file with several names in the directory
}

// look describes a directory and everything below it, by path; it is ".".
func look(t *testing.T, dir string) map[string]node {
	t.Helper()
	all := map[string]node{}
	inodes := map[uint64]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		n := node{Mode: st.Mode, Mtime: st.Mtim, XAttrs: xattrs(t, path)}
		switch {
		case d.Type() == iofs.ModeSymlink:
			n.Sum, err = os.Readlink(path)
		case d.Type().IsRegular():
			var data []byte
			data, err = os.ReadFile(path)
			n.Size, n.Sum = st.Size, cas.Data.Sum(data).String()
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = rel
				}
				n.Link = inodes[st.Ino]
			}
		}
		all[rel] = n
		return err
	}))
	return all
}

// xattrs are the attributes that are content.
func xattrs(t *testing.T, path string) map[string]string {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, buf)
	if err != nil || n == 0 {
		return nil
	}
	var all map[string]string
	for name := range bytes.SplitSeq(buf[:n-1], []byte{0}) {
		if !bytes.HasPrefix(name, []byte("user.")) && !bytes.HasPrefix(name, []byte("system.posix_acl_")) {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(path, string(name), value)
		require.NoError(t, err)
		if all == nil {
			all = map[string]string{}
		}
		all[string(name)] = fmt.Sprintf("%x", value[:n])
	}
	return all
}

// smallDisk mounts a tmpfs of a size, which may have a unit, until the test ends.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// needRoot skips what only root can set up.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// tempFiles are the files that unfinished saves have in a store.
func tempFiles(t *testing.T, s *Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
