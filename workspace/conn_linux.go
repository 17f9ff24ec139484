package workspace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/internal/socket"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// ErrNoServer: no process serves the lower layers of the store in this mount namespace.
var ErrNoServer = errors.New("no server of lower layers")

// A Conn talks to the server of lower layers in this process's mount namespace.
type Conn struct {
	conn net.Conn
	in   *json.Decoder
}

// answerTime bounds how long the server may take for an answer.
const answerTime = 30 * time.Second

// Connect connects to the server of a store's lower layers in this mount namespace. Where
// there is none, start starts one; nil: it fails with [ErrNoServer].
func Connect(ctx context.Context, dir string, start func() error) (*Conn, error) {
	namespace, err := snapshot.MountNamespace()
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, dir, namespace)
	if !errors.Is(err, ErrNoServer) || start == nil {
		return c, err
	}
	// Of several that find none, one starts it.
	alone, err := os.OpenFile(filepath.Join(dir, snapshot.WorkspacesDir, "start.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == nil {
		defer alone.Close()
		err = unix.Flock(int(alone.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("start the server of lower layers: %w", err)
	}
	const tries = 3 // a server may be about to end
	for try := 1; ; try++ {
		if c, err := dial(ctx, dir, namespace); !errors.Is(err, ErrNoServer) {
			return c, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if try > tries {
			return nil, fmt.Errorf("it ended at once, its log is %s: %w", tree.Quote(filepath.Join(dir, LogFile)), ErrNoServer)
		}
		if err := start(); err != nil {
			return nil, fmt.Errorf("start the server of lower layers: %w", err)
		}
	}
}

// dial connects to the server in a mount namespace, and looks who is there: in another user's store that user must not pass
// for the server.
func dial(ctx context.Context, dir string, namespace uint64) (*Conn, error) {
	folder, err := os.Open(filepath.Join(dir, snapshot.WorkspacesDir))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, ErrNoServer
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the server of lower layers: %w", err)
	}
	defer folder.Close()
	conn, err := socket.Dial(ctx, folder, socketName(namespace))
	if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNoServer
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the server of lower layers: %w", err)
	}
	uid, err := socket.PeerUID(conn)
	if err == nil && int(uid) != os.Geteuid() {
		err = fmt.Errorf("the server of lower layers is user %d's: %w", uid, snapshot.ErrForbidden)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &Conn{conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}
	if _, err := c.ask(request{Op: opList}); err != nil { // it does not answer when it is about to end
		return nil, errors.Join(ErrNoServer, err, conn.Close())
	}
	return c, nil
}

// ask sends a request and waits for the answer.
func (c *Conn) ask(req request) (reply, error) {
	line, err := json.Marshal(req)
	if err != nil {
		return reply{}, err
	}
	var rep reply
	if err = c.conn.SetDeadline(time.Now().Add(answerTime)); err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err == nil {
		err = c.in.Decode(&rep)
	}
	if err != nil {
		return reply{}, fmt.Errorf("the server of lower layers does not answer: %w", err)
	}
	if rep.Problem != "" {
		err := errors.New(rep.Message)
		if is := problems[rep.Problem]; is != nil {
			err = &serverError{text: rep.Message, is: is}
		}
		return reply{}, err
	}
	return rep, nil
}

// serverError is what the server said, and what that means here.
type serverError struct {
	text string
	is   error
}

func (e *serverError) Error() string { return e.text }
func (e *serverError) Unwrap() error { return e.is }

// add has the checkpoint of a workspace shown, all objects of which lie in packs. Where it
// is shown already, none need be named: else it fails with errNeedPacks.
func (c *Conn) add(id string, record cas.Hash, packs []cas.PackID, xattrs bool) (fs.Lower, error) {
	req := request{Op: opAdd, ID: id, Record: record.String(), XAttrs: xattrs}
	for _, p := range packs {
		req.Packs = append(req.Packs, p.String())
	}
	rep, err := c.ask(req)
	return rep.Lower, err
}

// release says that a workspace is gone.
func (c *Conn) release(id string) error {
	_, err := c.ask(request{Op: opRelease, ID: id})
	return err
}

// workspaces returns the ids of those that the server knows.
func (c *Conn) workspaces() (map[string]bool, error) {
	rep, err := c.ask(request{Op: opList})
	ids := map[string]bool{}
	for _, id := range rep.Workspaces {
		ids[id] = true
	}
	return ids, err
}

// Close ends the connection. A second call does nothing.
func (c *Conn) Close() error {
	if err := c.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
