// Command snapfs saves the workspaces of agents' sandboxes as checkpoints, shows
// every checkpoint as a read-only directory, and restores them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Who reads our output may go away: what was stored by then is stored, and its
	// id has to be told.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args)
	stop()
	os.Exit(code)
}
