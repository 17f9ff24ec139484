package main

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cut DIR NAME PROGRAM ARGUMENTS... runs a program and kills it once it has made the
// entry NAME, a pattern, in the existing directory DIR.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: cut DIR NAME PROGRAM ARGUMENTS...")
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	ts.Check(err)
	watch := os.NewFile(uintptr(fd), "inotify")
	defer watch.Close()
	_, err = unix.InotifyAddWatch(fd, ts.MkAbs(args[0]), unix.IN_CREATE)
	ts.Check(err)
	path, err := exec.LookPath(args[2])
	ts.Check(err)
	cmd := exec.Command(path, args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "SNAPFS_STORE", programEnv, "HOME", "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(cmd.Start())
	seen := created(watch, args[1])
	_ = cmd.Process.Kill()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !seen || !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		ts.Fatalf("not killed in time: %q made: %v, %v", args[1], seen, err)
	}
}

// created waits until an entry is made in the watched directory.
func created(watch *os.File, pattern string) bool {
	_ = watch.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 1<<16)
	for {
		n, err := watch.Read(buf)
		if err != nil {
			return false
		}
		for event := buf[:n]; len(event) >= unix.SizeofInotifyEvent; {
			length := int(binary.NativeEndian.Uint32(event[12:]))
			name := unix.ByteSliceToString(event[unix.SizeofInotifyEvent:][:length])
			if ok, _ := filepath.Match(pattern, name); ok {
				return true
			}
			event = event[unix.SizeofInotifyEvent+length:]
		}
	}
}
