package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/snapfs/snapfs/snapshot"
)

// peerKey is where a connection's context has the user id of its peer.
type peerKey struct{}

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
