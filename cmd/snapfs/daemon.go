package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/child"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// readyFlag is for the program itself: it starts its daemon with a pipe on which
// that says when the mount is usable, or why it is not.
const readyFlag = "ready-fd"

// maxLog is how long the daemon's log grows before it is put aside, in bytes.
const maxLog = 10 << 20

// goodbye bounds how long a daemon that ends waits for verbs under way.
const goodbye = 10 * time.Second

// outcome is what a daemon tells the process that started it.
type outcome struct {
	Code    int    `json:"code"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// startDaemon starts this program again, in the background, and waits until its
// mount is usable.
func startDaemon(c *cli.Context, dir string, req snapshot.MountRequest) error {
	if err := snapshot.Create(dir); err != nil && !errors.Is(err, snapshot.ErrLocked) {
		return err
	}
	args, err := logFlags(c)
	if err != nil {
		return err
	}
	args = append(args, "--store", dir, "mount", "--"+readyFlag, "3")
	return startBackground(c.Context, "the daemon", filepath.Join(dir, snapshot.LogFile), append(args, again(req)...)...)
}

// startBackground starts this program again with some arguments, in the background, and
// waits until it says on its descriptor 3 that it is ready, or why it is not. It logs to a
// file.
func startBackground(ctx context.Context, what, logFile string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start %s: %w", what, err)
	}
	log, err := openLog(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", what, err)
	}
	defer ready.Close()
	closeInChildren()
	cmd := exec.Command(self, args...)
	cmd.Dir = "/" // it must not keep a directory busy
	cmd.Env = child.Env()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return fmt.Errorf("start %s: %w", what, err)
	}
	theirs.Close()
	go func() { _ = cmd.Wait() }()
	text, err := readOutcome(ctx, ready)
	if err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return err
	}
	var out outcome
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("%s ended before it was ready; its log is %s", what, log.Name())
	}
	if out.Message == "" {
		return nil
	}
	failed := errors.New(out.Message)
	if out.Hint != "" {
		failed = snapshot.WithHint(failed, "%s", out.Hint)
	}
	return &codeError{code: out.Code, err: failed}
}

// closeInChildren keeps what a shell has left open from a process that stays: it would keep
// that busy, or a pipe from ending.
func closeInChildren() {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > unix.Stderr {
			syscall.CloseOnExec(fd)
		}
	}
}

// logFlags make the daemon log as this process was told to. It runs in another
// directory.
func logFlags(c *cli.Context) ([]string, error) {
	flags := []string{"--log-level", c.String("log-level"), "--log-format", c.String("log-format")}
	if path := c.String("log-file"); path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
		flags = append(flags, "--log-file", abs)
	}
	return flags, nil
}

// readOutcome reads what the daemon says, or gives up with the context.
func readOutcome(ctx context.Context, ready *os.File) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })
	defer stop()
	text, err := io.ReadAll(ready)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return text, err
}

// openLog opens a daemon's log in the store, or below it. In another user's store it becomes that
// user's, who could not start a daemon otherwise; so it must be a file, and not a
// link to somebody else's.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	var st, store unix.Stat_t
	err = errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Stat(filepath.Dir(path), &store))
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1) {
		err = errors.New("it is not a file of its own")
	}
	if err == nil && os.Geteuid() == 0 && st.Uid != store.Uid {
		err = f.Chown(int(store.Uid), int(store.Gid))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the daemon's log %s: %w", quote(path), err), f.Close())
	}
	return f, nil
}

// daemonLog is the log of a daemon in the background: standard error, where a
// panic ends too. A long one is put aside, and another one begun.
type daemonLog struct {
	path string
	mu   sync.Mutex
}

// Write implements [io.Writer].
func (l *daemonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &st); err == nil && st.Size > 0 && st.Size+int64(len(p)) > maxLog {
		if err := l.rotate(); err != nil {
			fmt.Fprintf(os.Stderr, "put the log aside: %v\n", err)
		}
	}
	return os.Stderr.Write(p)
}

// rotate makes standard error a new log, and the old one daemon.log.old.
func (l *daemonLog) rotate() error {
	if err := os.Rename(l.path, l.path+".old"); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	f, err := openLog(l.path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Dup3(int(f.Fd()), unix.Stderr, 0), f.Close())
}

// inBackground is the daemon's side of startDaemon.
func inBackground(c *cli.Context) error {
	tell, err := teller(c)
	if err != nil {
		return err
	}
	err = serve(c, request(c, c.Args().First()), tell)
	if err != nil {
		tell(err) // after a success the pipe is closed, and nobody listens
	}
	return err
}

// teller returns what tells the process that started this one that it is ready, or why it
// is not.
func teller(c *cli.Context) (tell func(error), err error) {
	ready := os.NewFile(uintptr(c.Int(readyFlag)), "ready")
	if ready == nil {
		return nil, usagef("--%s is for the program itself", readyFlag)
	}
	syscall.CloseOnExec(c.Int(readyFlag))
	return func(err error) {
		out := outcome{}
		if err != nil {
			out = outcome{Code: exitCode(err), Message: err.Error(), Hint: snapshot.Hint(err)}
		}
		text, _ := json.Marshal(out)
		_, _ = ready.Write(text)
		_ = ready.Close()
	}, nil
}

// serve holds the store, mounts it, and serves the store's socket until the last
// mount is gone or a signal comes. ready is called once the mount is usable.
// Where another daemon serves the store already, that one gets the mount; one
// that is about to end is waited for.
func serve(c *cli.Context, req snapshot.MountRequest, ready func(error)) error {
	for {
		err := serveOrJoin(c, req, ready)
		if !ended(err) || c.Context.Err() != nil {
			return err
		}
	}
}

func serveOrJoin(c *cli.Context, req snapshot.MountRequest, ready func(error)) error {
	rules, retain, err := configuredRetention(c)
	if err != nil {
		return err
	}
	store, err := openStoreAs(c, snapshot.Options{Create: true, Background: true})
	if err != nil {
		return err
	}
	log, err := logger(c, logOf(c, store.Dir()))
	if err != nil {
		return errors.Join(err, store.Close())
	}
	mounts, err := fs.NewMounts(store, log)
	if errors.Is(err, snapshot.ErrUnsupported) {
		return errors.Join(joinDaemon(c, store, req, ready), store.Close())
	}
	if err != nil {
		return errors.Join(err, store.Close())
	}
	stop := func() {}
	if retain {
		stop = startRetention(c.Context, store, rules)
	}
	err = serveMounts(c.Context, store, mounts, log, req, ready, stop)
	stop()
	return errors.Join(err, store.Close())
}

// logOf is where the daemon of this process logs.
func logOf(c *cli.Context, dir string) io.Writer {
	if c.IsSet(readyFlag) {
		return &daemonLog{path: filepath.Join(dir, snapshot.LogFile)}
	}
	return os.Stderr
}

// joinDaemon has a running daemon mount.
func joinDaemon(c *cli.Context, store *snapshot.Store, req snapshot.MountRequest, ready func(error)) error {
	if c.Bool("foreground") {
		err := fmt.Errorf("a daemon serves this store already: %w", snapshot.ErrMounted)
		return snapshot.WithHint(err, "without --foreground, it gets the mount")
	}
	if err := store.Holder().Mount(c.Context, req); err != nil {
		return err
	}
	ready(nil)
	return nil
}

// serveMounts is the daemon's life.
func serveMounts(ctx context.Context, store *snapshot.Store, mounts *fs.Mounts, log *slog.Logger, req snapshot.MountRequest, ready func(error), stop func()) error {
	// The own mount comes first: once the socket is there, others add theirs, and
	// rely on this process to live.
	err := mounts.Mount(ctx, req)
	if err != nil {
		return errors.Join(err, mounts.Close())
	}
	listener, err := server.ListenSocket(store.Dir())
	if err != nil {
		return errors.Join(err, mounts.Close())
	}
	srv := server.New(store, server.Options{Mounter: mounts, Logger: log, Version: version})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	ready(nil)
	err = live(ctx, mounts, served, log)
	stop()
	// No new mounts from here on, and none left behind.
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	return errors.Join(err, srv.Shutdown(bye), mounts.Close())
}

// live waits for the end.
func live(ctx context.Context, mounts *fs.Mounts, served <-chan error, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			log.Info("ending: signal received")
			return nil
		case err := <-served:
			return fmt.Errorf("serve the store's socket: %w", err)
		case <-mounts.Gone():
			if mounts.None() {
				log.Info("ending: the last mount is gone", "pid", strconv.Itoa(os.Getpid()))
				return nil
			}
		}
	}
}
