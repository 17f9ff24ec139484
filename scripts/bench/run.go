package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// command is a program to run, which ends with the bench.
func (b *bench) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SNAPFS_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// timed runs a command and returns how long it took. code is how it has to end.
func timed(code int, cmd *exec.Cmd) (time.Duration, error) {
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("%s: %w", cmd, err)
	}
	// -1 is a signal
	if got := cmd.ProcessState.ExitCode(); got != code {
		return 0, fmt.Errorf("%s ended with %d: %.1000s", cmd, got, out)
	}
	return took, nil
}

// best is the shortest of three.
func best(run func() (time.Duration, error)) (time.Duration, error) {
	least := time.Duration(0)
	for range 3 {
		took, err := run()
		if err != nil {
			return 0, err
		}
		if least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// bestOf is the shortest of three runs of a command that ends with code.
func (b *bench) bestOf(code int, name string, args ...string) (time.Duration, error) {
	return best(func() (time.Duration, error) { return timed(code, b.command(name, args...)) })
}

// race runs all in turn, three times, and returns the shortest time of each. What the
// others left to be written is on the disk before each.
func race(runs ...func() (time.Duration, error)) ([]time.Duration, error) {
	least := make([]time.Duration, len(runs))
	for range 3 {
		for i, run := range runs {
			unix.Sync()
			took, err := run()
			if err != nil {
				return nil, err
			}
			if least[i] == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	return least, nil
}

// synced is the time of a command and of bringing the file system of path, which it
// wrote to, to the disk.
func synced(path string, cmd *exec.Cmd) (time.Duration, error) {
	start := time.Now()
	if _, err := timed(0, cmd); err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// tar is the time in which tar writes a directory to a file on the disk.
func (b *bench) tar(dir, out string) (time.Duration, error) {
	if err := os.RemoveAll(out); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := timed(0, b.command("tar", "cf", out, "-C", dir, ".")); err != nil {
		return 0, err
	}
	f, err := os.Open(out)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
