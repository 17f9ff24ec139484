package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that a command gets when the program does. Those that stop and
// continue a job go to all of it by themselves.
var passedOn = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGALRM,
}

// execute runs a command in a directory, with this process's stdin, stdout and stderr, and
// returns its exit code: 128 and its number if a signal ended it. Signals are the command's
// meanwhile: ctx does not end it, and is of no use afterwards.
func execute(ctx context.Context, command []string, dir string, env []string) (code int, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if cmd.Err != nil {
		return 0, startError(command[0], cmd.Err)
	}
	// What this process ignores, its children would ignore, too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	defer signal.Ignore(unix.SIGPIPE)
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Reset(s) // it ended ctx so far
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err := cmd.Start(); err != nil {
		return 0, startError(command[0], err)
	}
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-signals:
				if !sharedTerminal(s, cmd.Process.Pid) {
					_ = cmd.Process.Signal(s) // it may have ended
				}
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-done
	var exited *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exited):
		return 0, startError(command[0], err)
	}
	if status, ok := exited.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exited.ExitCode(), nil
}

// sharedTerminal reports whether a signal probably came from the terminal, which gives it
// to the command as well: whoever sends one of these to this process alone is not told
// from it.
func sharedTerminal(s os.Signal, command int) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT && s != unix.SIGWINCH {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	theirs, gerr := unix.Getpgid(command)
	return err == nil && gerr == nil && group == unix.Getpgrp() && theirs == group
}
