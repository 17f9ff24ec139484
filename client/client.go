// Package client reaches a store through the daemon that holds it.
//
// [Open] is what a program calls: it connects to the store's daemon, or works in
// its own process when there is none, and waits for whoever else has the store.
// [Holder] is the connection: a [snapshot.Holder] over HTTP on the Unix socket in
// the store's directory. Only the index is asked for across it; pack files are
// read and written by the calling process itself.
//
// The package also has what both sides of the connection must agree on: the
// binary bodies, and the table between errors and their codes, so that
// [errors.Is] and the texts that users see are the same with and without a
// daemon. The server imports it for that.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

const (
	// idleTimeout is how long an unused connection is kept; the daemon keeps it
	// longer, so that no request meets a connection that is being closed.
	idleTimeout = 30 * time.Second
	// idleConns is how many unused connections are kept: one for each of the
	// parallel readers of a restore.
	idleConns = 32
)

// A Holder speaks with a store's daemon. It implements [snapshot.Holder].
type Holder struct {
	dir   *os.File // the store, for dialing
	http  *http.Client
	cache *locations
}

var _ snapshot.Holder = (*Holder)(nil)

// Dial connects to the daemon that serves the store in dir. It fails with
// [ErrNoDaemon] when nobody listens there, with [ErrClosing] when the daemon is
// about to end, and with [snapshot.ErrForbidden] when it does not speak with this user.
func Dial(ctx context.Context, dir string) (*Holder, error) {
	f, err := os.Open(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	h := &Holder{dir: f, cache: newLocations()}
	h.http = &http.Client{Transport: &http.Transport{
		DialContext:         h.dial,
		DisableCompression:  true,
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
	}}
	if err := h.call(ctx, request{method: http.MethodGet, path: "/readyz"}, nil); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close ends the connection; sessions must be closed before.
func (h *Holder) Close() error {
	h.http.CloseIdleConnections()
	if err := h.dir.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// dial connects to the socket.
func (h *Holder) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := socket.Dial(ctx, h.dir, snapshot.SocketFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tree.Quote(filepath.Join(h.dir.Name(), snapshot.SocketFile)), err)
	}
	return conn, nil
}

// request is one call of the API.
type request struct {
	method string
	path   string // escaped
	query  url.Values
	body   []byte // nil: none
	media  string // of the body; empty: JSON
	status int    // of success; 0: 200
	other  int    // another status of success; 0: none
}

// pathOf joins the segments of a path, each of them percent-encoded once: also a
// dot, which would be lost when the path is cleaned.
func pathOf(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(url.PathEscape(s), ".", "%2E"))
	}
	return b.String()
}

// send sends a request and returns the reply if it has the wanted status.
func (h *Holder) send(ctx context.Context, r request) (*http.Response, error) {
	target := "http://snapfs" + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		media := r.media
		if media == "" {
			media = "application/json"
		}
		req.Header.Set("Content-Type", media)
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return nil, h.lost(ctx, err)
	}
	want := r.status
	if want == 0 {
		want = http.StatusOK
	}
	if resp.StatusCode != want && (r.other == 0 || resp.StatusCode != r.other) {
		defer resp.Body.Close()
		return nil, replyError(resp)
	}
	return resp, nil
}

// lost names the failure of a connection.
func (h *Holder) lost(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the made-up URL
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, iofs.ErrPermission), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("connect to the daemon: %w", err)
	}
	// No socket, nobody behind it, or a connection that broke: the same in the
	// end, there is no daemon any more.
	return fmt.Errorf("%w: %w", ErrNoDaemon, err)
}

// data sends a request and returns the reply's body.
func (h *Holder) data(ctx context.Context, r request) ([]byte, error) {
	resp, err := h.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, h.lost(ctx, err)
	}
	return data, nil
}

// call sends a request and decodes the JSON of the reply into out, unless that is
// nil.
func (h *Holder) call(ctx context.Context, r request, out any) error {
	data, err := h.data(ctx, r)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("reply of the daemon to %s %s: %w", r.method, r.path, err)
	}
	return nil
}
