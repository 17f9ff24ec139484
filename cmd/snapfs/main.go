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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args)
	stop()
	os.Exit(code)
}
