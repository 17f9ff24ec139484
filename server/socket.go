package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
)

// ListenSocket listens on the socket in a store's directory, replacing one that
// an earlier daemon left. Only the process that has the store's lock may call it.
func ListenSocket(dir string) (net.Listener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := socket.Listen(d, snapshot.SocketFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", filepath.Join(dir, snapshot.SocketFile), err), d.Close())
	}
	return l, nil
}
