package fs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// childEnv makes the test binary be a daemon: a process never touches a mount
// that it serves itself.
const childEnv = "SNAPFS_TEST_CHILD"

// The values of childEnv: a daemon that has to end cleanly, one whose mounts are
// in use when it ends, one of an ordinary user (see [TestOrdinaryUser]), and no
// daemon but an ordinary user who saves.
const (
	childClean = "clean"
	childBusy  = "busy"
	childUser  = "user"
	childSaves = "saves"
)

// patience bounds every wait of the tests.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		if how == childSaves {
			saveAsNobody(os.Args[1], os.Args[2], os.Args[3])
		}
		if how == childUser {
			becomeNobody(os.Args[2])
		}
		if err := serve(os.Args[1], how == childBusy); err != nil {
			fmt.Fprintln(os.Stderr, "daemon:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serve holds the store in dir and serves it on its socket, until its input
// ends, SIGTERM comes, or the last mount is gone. Unless its mounts are in use
// then, it fails when it leaves a goroutine or a descriptor behind.
func serve(dir string, busy bool) error {
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	ctx, cancel := context.WithCancel(signals)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
		time.AfterFunc(2*patience, func() { abandon(dir) })
	}()
	known, files := goleak.IgnoreCurrent(), openFiles()
	err := serveUntil(ctx, dir)
	cancel()
	stop()
	if err != nil || busy {
		return err
	}
	if err := goleak.Find(known); err != nil {
		return err
	}
	if more := slices.DeleteFunc(openFiles(), func(f string) bool { return slices.Contains(files, f) }); len(more) > 0 {
		return fmt.Errorf("still open: %q", more)
	}
	return nil
}

func serveUntil(ctx context.Context, dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store, err := snapshot.Open(ctx, dir, snapshot.Options{Verb: "serve", Logger: log})
	if err != nil {
		return err
	}
	mounts, err := fs.NewMounts(store, log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	l, err := server.ListenSocket(dir)
	if err != nil {
		return errors.Join(err, mounts.Close(), store.Close())
	}
	srv := server.New(store, server.Options{Mounter: mounts, Logger: log, Grace: time.Millisecond})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Println("ready")
	for more := true; more; {
		select {
		case <-ctx.Done():
			more = false
		case <-mounts.Gone():
			more = !mounts.None()
		}
	}
	bye, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(srv.Shutdown(bye), <-served, mounts.Close(), store.Close())
}

// abandon ends a daemon that does not end by itself although its test is over.
func abandon(dir string) {
	mounts, _ := snapshot.Mountpoints()
	for _, m := range mounts {
		if m.Store == dir {
			_ = fs.Unmount(m.Mountpoint, true)
		}
	}
	os.Exit(3)
}

// openFiles lists what this process has open but for what the runtime opens.
func openFiles() []string {
	var open []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasSuffix(to, "/fd") {
			open = append(open, e.Name()+" "+to)
		}
	}
	return open
}

// daemon is another process that serves a store.
type daemon struct {
	t       *testing.T
	dir     string
	store   *snapshot.Store // through the daemon
	cmd     *exec.Cmd
	stdin   io.Closer
	exited  chan struct{}
	log     logBuffer
	damaged bool // Verify has to find something in the end
	ended   bool
}

// logBuffer is what the daemon wrote to stderr.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// needFuse skips a test where nothing can be mounted.
func needFuse(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		require.NoError(t, f.Close())
		if os.Geteuid() != 0 {
			_, err = exec.LookPath("fusermount3")
		}
	}
	if err != nil && os.Getenv("SNAPFS_NEED_FUSE") == "1" {
		t.Fatalf("FUSE is needed: %v", err)
	}
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
}

// start starts a daemon on a new store; it ends with the test.
func start(t *testing.T) *daemon {
	t.Helper()
	return startAs(t, newStore(t), childClean)
}

// newStore makes an empty store in a directory of the test.
func newStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	require.NoError(t, snapshot.Create(dir))
	return dir
}

// startAs starts a daemon on the store in dir, of one of the kinds above.
func startAs(t *testing.T, dir, how string, args ...string) *daemon {
	t.Helper()
	needFuse(t)
	d := &daemon{t: t, dir: dir, exited: make(chan struct{})}
	self, err := os.Executable()
	require.NoError(t, err)
	d.cmd = exec.Command(self, append([]string{dir}, args...)...)
	d.cmd.Env = append(os.Environ(), childEnv+"="+how, "GORACE=atexit_sleep_ms=10") // else it sleeps for a second at its end
	d.cmd.Dir = "/"
	d.cmd.Stderr = &d.log
	if how == childUser {
		d.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	stdin, err := d.cmd.StdinPipe()
	require.NoError(t, err)
	d.stdin = stdin
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(d.end)
	_, err = io.ReadFull(stdout, make([]byte, len("ready\n")))
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	require.NoError(t, err, "%s", &d.log)
	d.store, err = client.Open(t.Context(), dir, snapshot.Options{}, nil)
	require.NoError(t, err)
	return d
}

// logs waits until the daemon's log holds text: it comes through a pipe, and may
// be here later than the answer to the request that it speaks of.
func (d *daemon) logs(text string) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return strings.Contains(d.log.String(), text) }, patience, time.Millisecond, "no %q in the log", text)
}

// end ends the daemon, whatever state it is in, and looks at what it left.
func (d *daemon) end() {
	if d.ended {
		return
	}
	d.ended = true
	d.t.Helper()
	if d.store != nil {
		_ = d.store.Close()
	}
	_ = d.stdin.Close()
	select {
	case <-d.exited:
	case <-time.After(patience):
		_ = d.cmd.Process.Signal(syscall.SIGQUIT) // it says where it hangs
		time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
		<-d.exited
		d.t.Errorf("the daemon had to be killed")
	}
	for _, at := range d.mounted() {
		_ = fs.Unmount(at, true)
		d.t.Errorf("the daemon left its mount at %s", at)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.t.Errorf("the daemon's exit code is %d", code)
	}
	if d.t.Failed() {
		d.t.Logf("the daemon's log:\n%s", &d.log)
	}
	verify(d.t, d.dir, d.damaged)
}

// verify looks for damage in a store that nobody has open.
func verify(t *testing.T, dir string, damaged bool) {
	t.Helper()
	s, err := snapshot.Open(context.Background(), dir, snapshot.Options{})
	require.NoError(t, err)
	var found []string
	_, err = s.Verify(context.Background(), snapshot.VerifyOptions{Data: true}, func(problem string) error {
		found = append(found, problem)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, damaged, len(found) > 0, "%q", found)
}

// mounted lists the daemon's mountpoints.
func (d *daemon) mounted() []string {
	all, err := snapshot.Mountpoints()
	require.NoError(d.t, err)
	var at []string
	for _, m := range all {
		if m.Store == d.dir {
			at = append(at, m.Mountpoint)
		}
	}
	return at
}

// kill ends the daemon as a crash would, and leaves its mounts to the test, at
// whose end they go.
func (d *daemon) kill() {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Kill())
	d.gone()
	d.ended = true
	_ = d.stdin.Close()
	require.NoError(d.t, d.store.Close())
	d.t.Cleanup(func() {
		for _, at := range d.mounted() {
			_ = fs.Unmount(at, true)
		}
	})
}

// mount has the daemon mount the store at a new directory, which it returns.
func (d *daemon) mount() string {
	d.t.Helper()
	return d.mountWith(snapshot.MountRequest{})
}

// mountWith is mount with the options of req.
func (d *daemon) mountWith(req snapshot.MountRequest) string {
	d.t.Helper()
	req.Mountpoint = filepath.Join(d.t.TempDir(), "m")
	require.NoError(d.t, os.Mkdir(req.Mountpoint, 0o755))
	require.NoError(d.t, d.store.Holder().Mount(d.t.Context(), req))
	return req.Mountpoint
}

// umount has the daemon take a mount away.
func (d *daemon) umount(at string, lazy bool) error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	return d.store.Holder().Unmount(ctx, snapshot.UnmountRequest{Mountpoint: at, Lazy: lazy})
}

// requests returns the counts of the kernel's requests but for FORGET, which it
// sends when it likes.
func (d *daemon) requests() map[string]uint64 {
	d.t.Helper()
	st, err := d.store.Stats(d.t.Context())
	require.NoError(d.t, err)
	delete(st.Fuse.Requests, "FORGET")
	return st.Fuse.Requests
}

// gone waits until the daemon has ended.
func (d *daemon) gone() {
	d.t.Helper()
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.t.Fatal("the daemon does not end")
	}
}

// save saves a directory and returns the checkpoint's directory on a mount.
func (d *daemon) save(opt snapshot.SaveOptions) snapshot.Checkpoint {
	d.t.Helper()
	res, err := d.store.Save(d.t.Context(), opt)
	require.NoError(d.t, err)
	return res.Checkpoint
}

// dirOf returns the directory of a checkpoint's files on a mount.
func dirOf(at string, cp snapshot.Checkpoint) string {
	return filepath.Join(at, "threads", snapshot.EncodeName(cp.Thread), snapshot.EncodeName(cp.ID), "files")
}
