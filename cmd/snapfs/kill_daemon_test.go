package main

import (
	"bytes"
	"context"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// daemonProcess is a daemon in the foreground.
type daemonProcess struct {
	cmd   *exec.Cmd
	log   *mountLog
	ended chan struct{}
}

// mountLog is what a daemon writes. mounted is closed when it says that its mount
// can be used.
type mountLog struct {
	mu      sync.Mutex
	text    bytes.Buffer
	mounted chan struct{}
	said    bool
}

func (l *mountLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if !l.said && bytes.Contains(l.text.Bytes(), []byte("msg=mounted")) {
		l.said = true
		close(l.mounted)
	}
	return len(p), nil
}

func (l *mountLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// guard takes the mount away with the end of the test, also when that panics or is
// killed: then the guard's input ends. It is no child of the test's process group.
func (r *rounds) guard() {
	script := `cat >/dev/null; "$1" umount --lazy "$2" 2>/dev/null || umount -l "$2" 2>/dev/null || fusermount3 -u -z "$2" 2>/dev/null; true`
	cmd := exec.Command("sh", "-c", script, "sh", r.bin, r.mount)
	cmd.Env = r.command(context.Background()).Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() {
		if r.d != nil {
			r.killDaemon()
		}
		_ = stdin.Close()
		_ = cmd.Wait()
		require.False(r.t, r.mounted(), "%s is left mounted", r.mount)
	})
}

// mounted looks into the mount table, not at the mount.
func (r *rounds) mounted() bool {
	mounts, err := snapshot.Mountpoints()
	require.NoError(r.t, err)
	for _, m := range mounts {
		if m.Mountpoint == r.mount {
			return true
		}
	}
	return false
}

func (r *rounds) launchDaemon() {
	log := &mountLog{mounted: make(chan struct{})}
	d := &daemonProcess{cmd: r.command(context.Background(), "--log-level", "info", "mount", "--foreground", r.mount), log: log, ended: make(chan struct{})}
	d.cmd.Stderr = log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(r.t, d.cmd.Start())
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait()
	}()
	r.d = d
}

// startDaemon mounts where the last daemon may have left a dead mount. One in
// three is killed while it starts, and another one follows.
func (r *rounds) startDaemon() {
	if took := r.took["mount"]; took > 0 && r.rnd.IntN(3) == 0 {
		r.launchDaemon()
		timer := time.NewTimer(time.Duration(r.rnd.Int64N(int64(took))))
		defer timer.Stop()
		r.tries["mount"]++
		select {
		case <-r.d.log.mounted:
		case <-timer.C:
			r.hits["mount"]++
		}
		r.killDaemon()
	}
	start := time.Now()
	r.launchDaemon()
	select {
	case <-r.d.log.mounted:
		r.took["mount"] = time.Since(start)
	case <-r.d.ended:
		r.require(false, "the daemon ended: %s", r.d.log)
	case <-time.After(patience):
		r.require(false, "the daemon does not mount: %s", r.d.log)
	}
	r.newMount = true
}

func (r *rounds) killDaemon() {
	_ = r.d.cmd.Process.Kill()
	<-r.d.ended
	r.d = nil
}

// stopDaemon ends it as a user would.
func (r *rounds) stopDaemon() {
	if r.d == nil {
		r.startDaemon()
	}
	d := r.d
	require.NoError(r.t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.ended:
	case <-time.After(patience):
		r.require(false, "the daemon does not end: %s", d.log)
	}
	r.d = nil
	r.require(d.cmd.ProcessState.Success(), "the daemon ended with %s: %s", d.cmd.ProcessState, d.log)
	r.require(!r.mounted(), "%s is left mounted", r.mount)
}
