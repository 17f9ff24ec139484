// Package scripts_test runs the scripts as their callers do, with the program as
// it is built.
package scripts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait.
const patience = 30 * time.Second

// TestMain builds the program and puts it and the scripts where PATH leads to.
func TestMain(m *testing.M) {
	bin, err := os.MkdirTemp("", "snapfs-bin-")
	if err != nil {
		panic(err)
	}
	code := 1
	if err := prepare(bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(bin)
	os.Exit(code)
}

// inputs looks at all that the tests run. They do not import it, so that go test
// would take an old result for a new one.
var inputs = sync.OnceValue(func() error {
	return filepath.WalkDir("..", func(path string, d iofs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case ext == ".go" || ext == ".mod" || ext == ".sh":
			_, err = os.Stat(path)
		}
		return err
	})
})

func prepare(bin string) error {
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "snapfs"), "../cmd/snapfs").CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w: %s", err, out)
	}
	scripts, err := filepath.Glob("*.sh")
	if err != nil {
		return err
	}
	for _, script := range scripts { // copied, since other users run them too
		data, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(bin, script), data, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(bin, 0o755); err != nil {
		return err
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "SNAPFS_") && name != "SNAPFS_NEED_FUSE" {
			_ = os.Unsetenv(name)
		}
	}
	return os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// A world is a directory with a store and all that a test makes.
type world struct {
	*testing.T
	dir   string
	store string
	env   []string
	harm  bool // Verify has to find something in the end
}

// newWorld makes a world with an empty store, which is verified in the end.
func newWorld(t *testing.T) *world {
	t.Helper()
	require.NoError(t, inputs())
	root := "/dev/shm" // nobody needs these stores to be durable
	if _, err := os.Stat(root); err != nil {
		root = ""
	}
	dir, err := os.MkdirTemp(root, "snapfs-test-")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = exec.Command("chmod", "-R", "u+rwx", dir).Run()
		require.NoError(t, os.RemoveAll(dir))
	})
	require.NoError(t, os.Chmod(dir, 0o755))
	w := &world{T: t, dir: dir, store: filepath.Join(dir, "store")}
	w.env = append(os.Environ(), "HOME="+dir, "SNAPFS_STORE="+w.store)
	w.must("snapfs", "init")
	t.Cleanup(w.verify)
	return w
}

// eachWay runs a test without a daemon and with one.
func eachWay(t *testing.T, test func(w *world)) {
	t.Run("alone", func(t *testing.T) { test(newWorld(t)) })
	t.Run("daemon", func(t *testing.T) {
		needFuse(t)
		w := newWorld(t)
		mnt := w.mkdir("mnt")
		w.must("snapfs", "mount", mnt)
		t.Cleanup(func() { w.must("snapfs", "umount", "--lazy", mnt) })
		test(w)
	})
}

func needFuse(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		_ = f.Close()
		if os.Geteuid() != 0 {
			_, err = exec.LookPath("fusermount3")
		}
	}
	if err != nil && os.Getenv("SNAPFS_NEED_FUSE") == "1" {
		t.Fatalf("FUSE is needed: %v", err)
	}
	if err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
}

// needRoot skips what only root can try.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// verify reads the whole store, once its daemon has given it free.
func (w *world) verify() {
	w.env = os.Environ() // what the test has changed is its own affair
	got := w.run("snapfs", "--store", w.store, "verify", "--data")
	want := 0
	if w.harm {
		want = 8
	}
	require.Equal(w, want, got.code, "verify: %s%s", got.stdout, got.stderr)
}

// A result is how a program ended.
type result struct {
	code           int // -1: by a signal
	stdout, stderr string
}

// command prepares a program; it is killed when the patience ends.
func (w *world) command(name string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.dir, w.env, time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// exec looks a name up in our own PATH, which the world may have changed.
	for _, v := range slices.Backward(w.env) {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			for _, dir := range filepath.SplitList(path) {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					cmd.Path, cmd.Err = filepath.Join(dir, name), nil
					return cmd, &stdout, &stderr
				}
			}
			break
		}
	}
	return cmd, &stdout, &stderr
}

func (w *world) run(name string, args ...string) result {
	w.Helper()
	cmd, stdout, stderr := w.command(name, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs a program that has to succeed and returns what it prints.
func (w *world) must(name string, args ...string) string {
	w.Helper()
	got := w.run(name, args...)
	require.Equal(w, 0, got.code, "%s %q: %s", name, args, got.stderr)
	return got.stdout
}

// fails runs a program that has to end with a code, and say something.
func (w *world) fails(code int, text, name string, args ...string) {
	w.Helper()
	got := w.run(name, args...)
	require.Equal(w, code, got.code, "%s %q: %s", name, args, got.stderr)
	require.Contains(w, got.stderr, text)
	require.Empty(w, got.stdout)
}

// path is a path in the world.
func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// write makes a file, with the directories above it, and returns its path.
func (w *world) write(name, content string) string {
	w.Helper()
	path := w.path(name)
	require.NoError(w, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func (w *world) mkdir(name string) string {
	w.Helper()
	require.NoError(w, os.MkdirAll(w.path(name), 0o755))
	return w.path(name)
}

// names lists a directory.
func (w *world) names(name string) []string {
	w.Helper()
	entries, err := os.ReadDir(w.path(name))
	require.NoError(w, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// save saves a workspace with one file of a content to a thread.
func (w *world) save(thread, content string, flags ...string) {
	w.Helper()
	w.write("ws-"+content+"/f", content)
	w.must("snapfs", append(append([]string{"save", "--thread=" + thread}, flags...), "--", w.path("ws-"+content))...)
}

// damage changes one byte of what is stored.
func (w *world) damage(text string) {
	w.Helper()
	packs, err := filepath.Glob(w.path("store/packs/*/*.pack"))
	require.NoError(w, err)
	for _, pack := range packs {
		data, err := os.ReadFile(pack)
		require.NoError(w, err)
		if at := strings.Index(string(data), text); at >= 0 {
			data[at] ^= 1
			w.harm = true
			require.NoError(w, os.Chmod(pack, 0o600))
			require.NoError(w, os.WriteFile(pack, data, 0o600))
		}
	}
	require.True(w, w.harm, "no pack holds %q", text)
}

// until waits for something.
func (w *world) until(what string, done func() bool) {
	w.Helper()
	require.Eventually(w, done, patience, 2*time.Millisecond, what)
}

func (w *world) exists(pattern string) bool {
	found, err := filepath.Glob(w.path(pattern))
	require.NoError(w, err)
	return len(found) > 0
}

// A running program, in a process group of its own, ends with the test.
type running struct {
	*exec.Cmd
	w              *world
	stdout, stderr *bytes.Buffer
}

func (w *world) start(name string, args ...string) *running {
	w.Helper()
	r := &running{w: w}
	r.Cmd, r.stdout, r.stderr = w.command(name, args...)
	r.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(w, r.Start())
	w.Cleanup(func() {
		if r.ProcessState == nil {
			_ = syscall.Kill(-r.Process.Pid, syscall.SIGKILL)
			_ = r.Wait()
		}
	})
	return r
}

// end waits for the end and returns how it was.
func (r *running) end() result {
	r.w.Helper()
	err := r.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		require.NoError(r.w, err)
	}
	return result{r.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}
