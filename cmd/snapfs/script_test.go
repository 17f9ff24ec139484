package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/snapshot"
)

// programEnv makes the test binary be the program: a daemon is started by the
// path of the binary, not by its name.
const programEnv = "SNAPFS_TEST_PROGRAM"

// patience bounds every wait of the scripts.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
	}
	testscript.Main(tests{m}, map[string]func(){"snapfs": main})
}

// tests are those of this package.
type tests struct{ *testing.M }

// Run runs them, and removes what they share.
func (m tests) Run() int {
	defer func() { _ = os.RemoveAll(builtDir) }()
	return m.M.Run()
}

// builtDir has the program that [built] has made; empty: nobody has asked.
var builtDir string

// built returns the directory with the program as users have it: without the race detector,
// with which it starts several times as slowly.
var built = sync.OnceValues(func() (dir string, err error) {
	if builtDir, err = os.MkdirTemp("", "snapfs-bin-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(builtDir, program), ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return builtDir, os.Chmod(builtDir, 0o755) // users who are not root call it, too
})

// programDir returns a directory for PATH that has the program: the tests' own binary with
// SNAPFS_LARGE=1, else what users have.
func programDir(t *testing.T) string {
	t.Helper()
	if !soak.Large() {
		dir, err := built()
		require.NoError(t, err)
		return dir
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(dir, program)))
	return dir
}

func TestScripts(t *testing.T) {
	bin := programDir(t)
	root := ""
	if dir, err := os.MkdirTemp("/dev/shm", "snapfs-test-"); err == nil { // nobody needs these stores to be durable
		root = dir
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	testscript.Run(t, testscript.Params{
		WorkdirRoot:         root,
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setup(env, bin) },
		Condition:           condition(t),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    code,
			"user":    asUser,
			"spoil":   spoil,
			"id":      keepID,
			"damaged": damaged,
			"decided": decided,
			"until":   until,
			"holds":   holds,
			"signal":  signalProcess,
			"saving":  saving,
			"same":    same,
			"means":   means,
			"cut":     cut,
		},
	})
}

// setup gives every script a store and a home of its own, and ends whatever the
// script leaves.
func setup(env *testscript.Env, bin string) error {
	store := filepath.Join(env.WorkDir, "store")
	scripts, err := filepath.Abs("../../scripts")
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"SNAPFS_STORE": store, programEnv: "1", "HOME": filepath.Join(env.WorkDir, "home"), "TZ": "UTC", "LC_ALL": "C", "SCRIPTS": scripts,
		// The race detector sleeps for a second before a program ends.
		"GORACE": "atexit_sleep_ms=10",
	} {
		env.Setenv(name, value)
	}
	if !soak.Large() {
		env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	}
	state := &scriptState{store: store}
	env.Values[stateKey{}] = state
	env.Defer(func() {
		if err := state.end(env.WorkDir); err != nil {
			env.T().Log(err)
			env.T().FailNow()
		}
	})
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o755)
}

type stateKey struct{}

// scriptState is what a script's commands share.
type scriptState struct {
	store   string
	damaged bool      // Verify has to find something in the end
	held    *os.File  // the store's lock, while the script has it
	save    io.Closer // the script's own save under way
}

func stateOf(ts *testscript.TestScript) *scriptState { return ts.Value(stateKey{}).(*scriptState) }

// end takes the script's mounts away, ends its daemon, and verifies its store.
func (s *scriptState) end(work string) error {
	if s.held != nil {
		release(s.held)
	}
	if s.save != nil {
		_ = s.save.Close() // its daemon may be gone
	}
	if err := unmountAll(work); err != nil {
		return err
	}
	if err := s.endHolder(); err != nil {
		return err
	}
	store, err := snapshot.Open(context.Background(), s.store, snapshot.Options{Verb: "test"})
	if errors.Is(err, snapshot.ErrNoStore) || errors.Is(err, snapshot.ErrNotAStore) || errors.Is(err, snapshot.ErrNewerStore) {
		return nil
	}
	if err != nil {
		return err
	}
	var found []string
	_, err = store.Verify(context.Background(), snapshot.VerifyOptions{Data: true}, func(problem string) error {
		found = append(found, problem)
		return nil
	})
	if err == nil && s.damaged != (len(found) > 0) {
		err = fmt.Errorf("verify found %q", found)
	}
	return errors.Join(err, store.Close())
}

// unmountAll takes away what the program has mounted below a directory, and for stores in
// it. Who serves only that ends then.
func unmountAll(dir string) error {
	table, err := snapshot.MountTable()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(table) {
		ours := m.Type == snapshot.MountType || m.Type == snapshot.OverlayType
		if ours && (snapshot.Within(m.Mountpoint, dir) || snapshot.Within(m.Source, dir)) {
			_ = fs.Unmount(m.Mountpoint, true)
		}
	}
	return nil
}

// endHolder ends whoever still has the store: a daemon whose mount was taken away
// ends by itself, or is killed.
func (s *scriptState) endHolder() error {
	deadline := time.Now().Add(patience)
	for {
		store, err := snapshot.Open(context.Background(), s.store, snapshot.Options{Verb: "test"})
		var locked *snapshot.LockedError
		if err == nil {
			return store.Close()
		}
		if !errors.As(err, &locked) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("killed: %w", err), syscall.Kill(locked.PID, syscall.SIGKILL))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// condition says what this machine can do.
func condition(t *testing.T) func(string) (bool, error) {
	fuse := canMount()
	if !fuse && os.Getenv("SNAPFS_NEED_FUSE") == "1" {
		t.Fatal("FUSE is needed: no /dev/fuse, or no fusermount3")
	}
	return func(cond string) (bool, error) {
		switch cond {
		case "fuse":
			return fuse, nil
		case "root":
			return os.Geteuid() == 0, nil
		}
		return false, fmt.Errorf("unknown condition %q", cond)
	}
}

func canMount() bool {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	_, err = exec.LookPath("fusermount3")
	return os.Geteuid() == 0 || err == nil
}

// code N PROGRAM ARGUMENTS... runs a program, which has to end with exit code N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGUMENTS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// id NAME keeps the only line of the last stdout in the variable NAME.
func keepID(ts *testscript.TestScript, neg bool, args []string) {
	out := ts.ReadFile("stdout")
	line, rest, ok := strings.Cut(out, "\n")
	if neg || len(args) != 1 || !ok || line == "" || rest != "" {
		ts.Fatalf("not one line: %q", out)
	}
	ts.Setenv(args[0], line)
}

// [!] damaged TEXT changes one byte of the packs where TEXT is, so that verify
// has to find it; "! damaged" says that nothing is wrong any more.
func damaged(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		stateOf(ts).damaged = false
		return
	}
	packs, err := filepath.Glob(filepath.Join(stateOf(ts).store, "packs/*/*.pack"))
	ts.Check(err)
	found := false
	for _, path := range packs {
		data, err := os.ReadFile(path)
		ts.Check(err)
		if at := strings.Index(string(data), args[0]); at >= 0 {
			data[at] ^= 1
			found = true
			ts.Check(os.Chmod(path, 0o600))
			ts.Check(os.WriteFile(path, data, 0o600))
		}
	}
	if !found {
		ts.Fatalf("no pack holds %q", args[0])
	}
	stateOf(ts).damaged = true
}

// [!] until PATTERN [TEXT] waits until a file exists, and has the text in it, or
// with "until free" until nobody has the store.
func until(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.Now().Add(patience)
	for {
		done := false
		if args[0] == "free" {
			f, err := os.Open(filepath.Join(stateOf(ts).store, "lock"))
			ts.Check(err)
			done = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
			release(f)
		} else {
			paths, err := filepath.Glob(ts.MkAbs(args[0]))
			ts.Check(err)
			done = len(paths) > 0
			if done && len(args) > 1 {
				data, err := os.ReadFile(paths[0])
				done = err == nil && strings.Contains(string(data), args[1])
			}
		}
		if done != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited for %q in vain", args)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// holds takes the store's lock, as a verb that does not serve has it, until the
// script says "! holds".
func holds(ts *testscript.TestScript, neg bool, args []string) {
	state := stateOf(ts)
	if neg || len(args) > 0 {
		release(state.held)
		return
	}
	f, err := os.OpenFile(filepath.Join(state.store, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	ts.Check(err)
	state.held = f
	ts.Check(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	ts.Check(f.Truncate(0))
	_, err = f.WriteAt(fmt.Appendf(nil, "%d save\n", os.Getpid()), 0)
	ts.Check(err)
}

// saving THREAD begins a save through the daemon and lets it last, as a save of much
// would, until the script says "! saving".
func saving(ts *testscript.TestScript, neg bool, args []string) {
	state := stateOf(ts)
	if neg {
		ts.Check(state.save.Close())
		state.save = nil
		return
	}
	holder, err := client.Dial(context.Background(), state.store)
	ts.Check(err)
	session, err := holder.Begin(context.Background(), snapshot.BeginRequest{Thread: args[0], PID: os.Getpid()})
	ts.Check(err)
	state.save = closers{session, holder}
	ts.Setenv("SAVER", strconv.Itoa(os.Getpid()))
}

// closers are closed one after the other.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// release gives a lock free, also if another script forks at this moment.
func release(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

// signal NAME sends a signal to whoever has the store.
func signalProcess(ts *testscript.TestScript, neg bool, args []string) {
	sig := unix.SignalNum("SIG" + args[0])
	if neg || len(args) != 1 || sig == 0 {
		ts.Fatalf("usage: signal NAME")
	}
	data, err := os.ReadFile(filepath.Join(stateOf(ts).store, "lock"))
	ts.Check(err)
	pid, _, _ := strings.Cut(string(data), " ")
	n, err := strconv.Atoi(pid)
	ts.Check(err)
	if n == os.Getpid() {
		ts.Fatalf("the test itself has the store")
	}
	ts.Check(syscall.Kill(n, sig))
}

// same DIR DIR compares two trees with diff(1): contents, links and names.
func same(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("diff", "-r", "--no-dereference", args[0], args[1])
	if (err != nil) != neg {
		ts.Fatalf("diff: %v", err)
	}
}

// means ID REF... requires that every reference means the checkpoint.
func means(ts *testscript.TestScript, neg bool, args []string) {
	for _, ref := range args[1:] {
		ts.Check(ts.Exec("snapfs", "show", "--json", ref))
		if out := ts.ReadFile("stdout"); neg || !strings.HasPrefix(out, `{"id":"`+args[0]+`",`) {
			ts.Fatalf("%s means %s", ref, out)
		}
	}
}
