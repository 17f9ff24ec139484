package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// peerKey is where a connection's context has the user id of its peer.
type peerKey struct{}

// peerUID asks the kernel who connected to a Unix socket: the user that the peer
// was when it did.
func peerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("no peer credentials on a %s connection", c.LocalAddr().Network())
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, cerr
	}
	return cred.Uid, nil
}

// connContext notes the peer of a new connection.
func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	uid, err := s.peer(c)
	if err != nil {
		s.log.Warn("connection from nobody known", "error", err)
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// allowed refuses all but the store's owner and root.
func (s *Server) allowed(r *http.Request) error {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	if !ok {
		return fmt.Errorf("%w: who asks is not known", snapshot.ErrForbidden)
	}
	if uid != 0 && uid != s.owner {
		return fmt.Errorf("%w: the store belongs to user %d, not to %d", snapshot.ErrForbidden, s.owner, uid)
	}
	return nil
}
