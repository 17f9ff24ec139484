// Command snapfs saves the workspaces of agents' sandboxes as checkpoints, shows
// every checkpoint as a read-only directory, and restores them.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	// Who reads our output may go away: what was stored by then is stored, and its
	// id has to be told.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := interruptible(context.Background())
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args)
	stop()
	os.Exit(code)
}

// interruptible returns a context that the signals for ending a program end, but for those
// that whoever started this one has ignored, as nohup does.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	ends = slices.DeleteFunc(ends, signal.Ignored)
	if len(ends) == 0 { // which would mean all
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, ends...)
}
