package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/soak"
)

// instantTest is a store with a checkpoint of many files, each of which says in its content
// which one it is, in a program of its own, and instant workspaces over it. The test itself
// may touch them: it serves nothing.
type instantTest struct {
	t     *testing.T
	dir   string
	bin   string
	store string
	base  string // where the files lie that were saved
	paths []string
}

func newInstantTest(t *testing.T, files int) *instantTest {
	t.Helper()
	if fuse, err := condition(t)("fuse"); err != nil || !fuse || os.Geteuid() != 0 {
		t.Skip("no FUSE, or not root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	it := &instantTest{t: t, dir: dir, bin: filepath.Join(programDir(t), program), store: filepath.Join(dir, "store"), base: filepath.Join(dir, "base")}
	for i := range files {
		path := fmt.Sprintf("d%d/e%d/f%d", i%17, i%5, i)
		it.paths = append(it.paths, path)
		at := filepath.Join(it.base, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, contentOf(path, 0), 0o644))
	}
	t.Cleanup(it.end)
	it.run("save", "--thread", "t", "--id", "base", it.base)
	return it
}

// contentOf is a version of a file: nobody can take it for another file, or for a mix.
func contentOf(path string, version int) []byte {
	line := fmt.Sprintf("%s %d\n", path, version)
	return bytes.Repeat([]byte(line), 20+len(path)%7*30)
}

func (it *instantTest) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), it.bin, args...)
	cmd.Env = append(os.Environ(), "SNAPFS_STORE="+it.store, programEnv+"=1", "HOME="+it.dir, "XDG_CONFIG_HOME="+it.dir, "GORACE=atexit_sleep_ms=10")
	cmd.Dir = "/"
	return cmd
}

func (it *instantTest) try(args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := it.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("snapfs %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSuffix(out.String(), "\n"), err
}

func (it *instantTest) run(args ...string) string {
	it.t.Helper()
	out, err := it.try(args...)
	require.NoError(it.t, err)
	return out
}

// processes are the programs of this store that run a verb, by their ids.
func (it *instantTest) processes(verb ...string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := "\x00" + string(line)
		if strings.Contains(args, "\x00"+it.store+"\x00") && strings.Contains(args, "\x00"+strings.Join(verb, "\x00")+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill ends them without a warning, and waits until they are gone.
func (it *instantTest) kill(verb ...string) int {
	pids := it.processes(verb...)
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	require.Eventually(it.t, func() bool { return len(it.processes(verb...)) == 0 }, patience, 5*time.Millisecond)
	return len(pids)
}

// end leaves neither mounts nor processes.
func (it *instantTest) end() {
	it.kill("workspace", "serve")
	it.kill("mount")
	require.NoError(it.t, unmountAll(it.dir))
}

// tree is a checkpoint's tree.
func (it *instantTest) tree(id string) string {
	doc := it.run("show", "--json", id)
	_, rest, _ := strings.Cut(doc, `"tree":"`)
	tree, _, found := strings.Cut(rest, `"`)
	require.True(it.t, found, doc)
	return tree
}

// requireFastIsFull saves a workspace by its changes, and reading all of it.
func (it *instantTest) requireFastIsFull(dir string) {
	it.t.Helper()
	fast := it.run("save", dir)
	full := it.run("save", "--full-scan", dir)
	require.Equal(it.t, it.tree(full), it.tree(fast))
}

// TestWorkspaceKilled: the server of lower layers, and now and then the daemon, is killed
// while programs write to a workspace. After a repair each write that had returned is
// there, nothing shows what is another file's, and a save is right.
func TestWorkspaceKilled(t *testing.T) {
	it := newInstantTest(t, 400)
	m, w := filepath.Join(it.dir, "m"), filepath.Join(it.dir, "w")
	require.NoError(t, os.Mkdir(m, 0o755))
	it.run("workspace", "create", "base", w, "--thread", "try")
	const writers = 4
	type state struct{ written, begun int } // versions
	states := make([]map[string]state, writers)
	for k := range states {
		states[k] = map[string]state{}
	}
	for round := range soak.Rounds(3, 100) {
		if len(it.processes("mount")) == 0 {
			it.run("mount", m)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for k := range writers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(round), uint64(k)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					path := it.paths[rnd.IntN(len(it.paths)/writers)*writers+k]
					if rnd.IntN(4) == 0 {
						path += ".new"
					}
					s := states[k][path]
					s.begun++
					states[k][path] = s
					if writeSynced(filepath.Join(w, path), contentOf(path, s.begun)) != nil {
						continue
					}
					s.written = s.begun
					states[k][path] = s
				}
			})
		}
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		require.Equal(t, 1, it.kill("workspace", "serve"))
		if round%2 == 0 {
			it.kill("mount")
		}
		time.Sleep(20 * time.Millisecond)
		close(stop)
		wg.Wait()
		require.Contains(t, it.run("workspace", "list", "--json"), `"state":"broken"`)
		it.run("workspace", "repair", w)
		for k := range writers {
			for path, s := range states[k] {
				data, err := os.ReadFile(filepath.Join(w, path))
				if s.written == 0 && errors.Is(err, os.ErrNotExist) {
					continue
				}
				require.NoError(t, err)
				switch {
				case bytes.Equal(data, contentOf(path, s.written)):
					s.begun = s.written
				case s.begun > s.written: // a write that did not return: each byte is of either, or is not there
					require.NoError(t, writeSynced(filepath.Join(w, path), contentOf(path, s.begun)))
					s.written = s.begun
				default:
					require.Failf(t, "wrong content", "%s: version %d was written, there is %.60q", path, s.written, data)
				}
				states[k][path] = s
			}
		}
		for i, path := range it.paths {
			if _, touched := states[i%writers][path]; !touched {
				data, err := os.ReadFile(filepath.Join(w, path))
				require.NoError(t, err)
				require.True(t, bytes.Equal(contentOf(path, 0), data), path)
			}
		}
		it.requireFastIsFull(w)
	}
	it.run("workspace", "remove", w)
	require.NoDirExists(t, w)
}

// writeSynced replaces a file's content in place, durably.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// TestWorkspaceStorm: collections, deletions and a daemon that comes and goes do not
// disturb who reads and writes in workspaces, not even of a checkpoint that was deleted.
func TestWorkspaceStorm(t *testing.T) {
	it := newInstantTest(t, 1500)
	m := filepath.Join(it.dir, "m")
	require.NoError(t, os.Mkdir(m, 0o755))
	var all []string
	for i := range 3 {
		w := filepath.Join(it.dir, fmt.Sprintf("w%d", i))
		it.run("workspace", "create", "base", w, "--thread", fmt.Sprintf("try%d", i))
		all = append(all, w)
	}
	it.run("delete", "--thread", "t")
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(soak.Rounds(2, 60))*time.Second)
	defer cancel()
	var reads, rounds atomic.Int64
	var failed atomic.Pointer[string]
	fail := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		failed.CompareAndSwap(nil, &text)
		cancel()
	}
	var wg sync.WaitGroup
	for k, w := range all {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(k)))
			for ctx.Err() == nil {
				path := it.paths[rnd.IntN(len(it.paths))]
				data, err := os.ReadFile(filepath.Join(w, path))
				if err != nil || !bytes.HasPrefix(data, []byte(path+" ")) {
					fail("read %s: %v: %.60q", path, err, data)
				}
				if n := reads.Add(1); n%50 == 0 {
					at := filepath.Join(w, path)
					if err := writeSynced(at, contentOf(path, int(n))); err != nil {
						fail("write: %v", err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			n := rounds.Add(1)
			id := fmt.Sprintf("s%d", n)
			steps := [][]string{
				{"mount", m}, {"save", "--id", id, all[n%3]}, {"save", "--thread", "other", "--id", "o" + id, it.base},
				{"gc"}, {"delete", id}, {"umount", "--lazy", m}, {"delete", "o" + id}, {"gc", "--purge"},
			}
			for _, args := range steps {
				if _, err := it.try(args...); err != nil {
					fail("%v", err)
					return
				}
			}
			_ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0o200) // what the kernel remembers of names
		}
	})
	wg.Wait()
	if text := failed.Load(); text != nil {
		t.Fatal(*text)
	}
	t.Logf("%d reads, %d rounds", reads.Load(), rounds.Load())
	require.Positive(t, rounds.Load())
	for _, w := range all {
		it.requireFastIsFull(w)
		it.run("workspace", "remove", w)
	}
	require.Eventually(t, func() bool { return len(it.processes("workspace", "serve")) == 0 }, patience, 10*time.Millisecond)
}
