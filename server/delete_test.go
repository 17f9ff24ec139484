package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// TestDeleteWithoutWaiting: 202 while mounts are being told, which take their time; then
// nothing finds it but its id, and who waits gets 204.
func TestDeleteWithoutWaiting(t *testing.T) {
	s := newServer(t, Options{})
	listen(t, s)
	ws := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(ws, "f"), []byte("1"), 0o600))
	for _, id := range []string{"a", "b"} {
		_, err := s.store.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t", ID: id})
		require.NoError(t, err)
	}
	told, leave := make(chan struct{}, 9), make(chan struct{})
	cancel, err := s.store.Subscribe(func(ctx context.Context, _ snapshot.Event) {
		told <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
	})
	require.NoError(t, err)
	defer cancel()
	resp, body := ask(t, s, "DELETE", "/v1/checkpoints/b?noWait=true", "")
	require.Equal(t, 202, resp.StatusCode, body)
	<-told
	resp, body = ask(t, s, "GET", "/v1/checkpoints/b", "")
	require.Equal(t, 200, resp.StatusCode, body)
	var cp snapshot.Checkpoint
	require.NoError(t, json.Unmarshal([]byte(body), &cp))
	require.Equal(t, "deleting", cp.Status)
	require.NotEmpty(t, cp.StatusMessage)
	resp, body = ask(t, s, "GET", "/v1/threads/t/checkpoints", "")
	require.Equal(t, 200, resp.StatusCode)
	require.NotContains(t, body, `"id":"b"`)
	_, body = ask(t, s, "GET", "/v1/threads/t/checkpoints?deleting=true", "")
	require.Contains(t, body, `"id":"b"`)
	resp, body = ask(t, s, "PATCH", "/v1/checkpoints/b", `{"name":"n"}`)
	require.Equal(t, 409, resp.StatusCode)
	require.Equal(t, client.Code("DELETING"), refused(t, resp, body).Code)
	resp, body = ask(t, s, "POST", "/v1/sessions", `{"thread":"t","id":"b"}`)
	require.Equal(t, 409, resp.StatusCode, body)

	// A client of this store is told the same.
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	remote := snapshot.New(s.store.Dir(), h, snapshot.Options{})
	_, err = remote.Resolve(t.Context(), "b")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	require.ErrorIs(t, err, index.ErrDeleting)
	cp, err = remote.Show(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, cp.Deleting())
	_, done, err := remote.BeginDelete(t.Context(), "b", snapshot.DeleteOptions{NoWait: true})
	require.NoError(t, err)
	require.False(t, done)
	close(leave)
	_, done, err = remote.BeginDelete(t.Context(), "b", snapshot.DeleteOptions{})
	if err == nil {
		require.True(t, done)
	} else {
		require.ErrorIs(t, err, index.ErrCheckpointNotFound, "it was done before it was asked for")
	}
	resp, _ = ask(t, s, "GET", "/v1/checkpoints/b", "")
	require.Equal(t, 404, resp.StatusCode)
	resp, body = ask(t, s, "DELETE", "/v1/threads/t", "")
	require.Equal(t, 204, resp.StatusCode, body)
}

// TestForgetThroughADaemon: more than one request takes, with ids that are long in JSON.
func TestForgetThroughADaemon(t *testing.T) {
	s := newServer(t, Options{})
	listen(t, s)
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	remote := snapshot.New(s.store.Dir(), h, snapshot.Options{})
	ws := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(ws, "f"), []byte("1"), 0o600))
	for i := range index.MaxForget + 3 {
		id := fmt.Sprintf("%s%03d", strings.Repeat("<", index.MaxID-3), i)
		_, err := s.store.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "a/b c", ID: id})
		require.NoError(t, err)
	}
	res, err := remote.Forget(t.Context(), snapshot.ForgetOptions{Thread: "a/b c", Rules: policy.Retention{KeepLast: 2}})
	require.NoError(t, err)
	require.Empty(t, res.Failed)
	require.Len(t, res.Dropped, index.MaxForget+1)
	require.Equal(t, 2, res.Kept)
	left, err := remote.Checkpoints(t.Context(), "a/b c", snapshot.Page{Deleting: true})
	require.NoError(t, err)
	require.Len(t, left, 2)
	_, err = remote.Forget(t.Context(), snapshot.ForgetOptions{Thread: "nobody", Rules: policy.Retention{KeepLast: 2}})
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	resp, body := ask(t, s, "POST", "/v1/forget", `{"thread":"a/b c","checkpoints":[`+strings.Repeat(`"x",`, index.MaxForget)+`"x"]}`)
	require.Equal(t, 422, resp.StatusCode, body)
}
