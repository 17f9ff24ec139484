package snapshot

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// ThreadFor says which thread a save of a directory goes to when none is named:
// the one that this very directory (path, inode and birth time of its root) was
// last saved to; else the directory's own name, if no thread has it. It fails
// with [ErrThreadUnclear]: many sandboxes call their workspace alike.
func (s *Store) ThreadFor(ctx context.Context, workspace string) (string, error) {
	if id, err := s.remembered(workspace); err != nil || id != "" {
		return id, err
	}
	name := filepath.Base(workspace)
	name = strings.ToValidUTF8(name, "\uFFFD")
	if err := index.ValidID("thread id", name); err != nil {
		return "", WithHint(fmt.Errorf("%s gives no name for a thread: %w", quoted(workspace), ErrThreadUnclear), "name one with --thread")
	}
	_, err := s.holder.Thread(ctx, name)
	if errors.Is(err, index.ErrThreadNotFound) {
		return name, nil
	}
	if err != nil {
		return "", err
	}
	err = fmt.Errorf("a thread %s exists, and %s was not saved to it before: %w", quoted(name), workspace, ErrThreadUnclear)
	return "", WithHint(err, "name the thread: --thread %s to go on with that one, or another name", quoted(name))
}

// LastThread returns the thread that a directory was last saved to. It fails with
// [ErrThreadUnclear] for one that was not saved to this store from its place.
func (s *Store) LastThread(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory: %w", quoted(dir), errors.Join(ErrRefused, err))
	}
	thread, err := s.remembered(real)
	if err != nil {
		return "", err
	}
	if thread == "" {
		err := fmt.Errorf("%s was not saved to this store: %w", quoted(dir), ErrThreadUnclear)
		return "", WithHint(err, "save it, or compare it with a checkpoint: snapfs diff REF %s", tree.QuoteShell(dir))
	}
	return thread, nil
}

// remembered returns the thread that a workspace was last saved to; "": nobody knows.
func (s *Store) remembered(workspace string) (string, error) {
	if s.dir == "" {
		return "", nil
	}
	w, _, err := s.WorkspaceAt(workspace)
	if err == nil {
		return cmp.Or(s.lastSaved(w).Thread, w.Thread), nil
	}
	if !errors.Is(err, ErrNoWorkspace) {
		return "", err
	}
	memory, err := s.memory(workspace)
	if err != nil {
		return "", err
	}
	id, _ := os.ReadFile(memory) // without one that can be read nothing is remembered
	return string(id), nil
}

// memoryDirName is the folder, in cache/, that remembers workspaces' threads.
const memoryDirName = "threads"

// memory is the file that remembers a workspace's thread.
func (s *Store) memory(workspace string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, workspace, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("workspace %s: %w", workspace, err)
	}
	sum := blake3.Sum256(fmt.Appendf(nil, "%d %d.%09d %s", st.Ino, st.Btime.Sec, st.Btime.Nsec, workspace))
	return filepath.Join(s.dir, cacheDir, memoryDirName, hex.EncodeToString(sum[:16])), nil
}

// remember notes the thread that a workspace was saved to. It is only a
// convenience: a failure is logged and the save stays a success.
func (s *Store) remember(workspace, thread string) {
	if s.dir == "" {
		return
	}
	memory, err := s.memory(workspace)
	if err == nil {
		if old, rerr := os.ReadFile(memory); rerr == nil && string(old) == thread {
			return
		}
		err = cacheFolder(s.fsys, s.dir, filepath.Dir(memory))
	}
	if err == nil {
		err = cacheFile(s.fsys, s.dir, memory, []byte(thread))
	}
	if err != nil {
		s.log.Warn("cannot remember the workspace's thread", "workspace", workspace, "thread", thread, "error", err)
	}
}
