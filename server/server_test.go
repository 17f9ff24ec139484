package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer makes a server of an empty store.
func newServer(t *testing.T, opt Options) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	store, err := snapshot.Open(t.Context(), dir, snapshot.Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		found, err := store.Holder().Check(context.Background())
		require.NoError(t, err)
		require.Empty(t, found)
		require.NoError(t, store.Close())
	})
	return New(store, opt)
}

// ask sends one request as the store's owner.
func ask(t *testing.T, s *Server, method, target, body string, header ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a session that should not begin would stay open
	defer cancel()
	r := httptest.NewRequestWithContext(context.WithValue(ctx, peerKey{}, s.owner), method, target, nil)
	if body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// refused decodes a reply that is an error.
func refused(t *testing.T, resp *http.Response, body string) client.ErrorBody {
	t.Helper()
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"), body)
	var e client.ErrorBody
	require.NoError(t, json.Unmarshal([]byte(body), &e), body)
	require.NotEmpty(t, e.Code)
	require.NotEmpty(t, e.Message)
	return e
}

// save makes a checkpoint.
func save(t *testing.T, s *Server, thread, id string) snapshot.Checkpoint {
	t.Helper()
	workspace := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(workspace, "f"), []byte(id), 0o644))
	res, err := s.store.Save(t.Context(), snapshot.SaveOptions{Workspace: workspace, Thread: thread, ID: id})
	require.NoError(t, err)
	return res.Checkpoint
}

func TestOddIDsInPaths(t *testing.T) {
	s := newServer(t, Options{})
	escape := func(id string) string { return strings.ReplaceAll(url.PathEscape(id), ".", "%2E") }
	for _, id := range []string{
		"plain", "a/b", "/a", "a/", "//", "a//b", "..", ".", "../..", "a/../b", "a/checkpoints", "%2F", "a%2Fb", "%", "%25", "%zz",
		" ", "a b", "a+b", "\U0001F600", "\u00e9", "a@b", "@", "?", "a?b", "a&b=c", "#", ";", "{thread}", "checkpoints",
		strings.Repeat("/", 512), strings.Repeat("x", 512),
	} {
		save(t, s, id, id)
		resp, body := ask(t, s, "GET", "/v1/threads/"+escape(id), "")
		require.Equal(t, 200, resp.StatusCode, "%q: %s", id, body)
		var th snapshot.Thread
		require.NoError(t, json.Unmarshal([]byte(body), &th))
		require.Equal(t, id, th.ID)
		resp, body = ask(t, s, "GET", "/v1/threads/"+escape(id)+"/checkpoints?limit=1", "")
		require.Equal(t, 200, resp.StatusCode, "%q: %s", id, body)
		var list client.Checkpoints
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Len(t, list.Checkpoints, 1)
		require.Equal(t, id, list.Checkpoints[0].ID)
		for _, target := range []string{"/v1/checkpoints/" + escape(id), "/v1/resolve?ref=" + url.QueryEscape(id)} {
			resp, body = ask(t, s, "GET", target, "")
			require.Equal(t, 200, resp.StatusCode, "%s: %s", target, body)
			var cp snapshot.Checkpoint
			require.NoError(t, json.Unmarshal([]byte(body), &cp))
			require.Equal(t, list.Checkpoints[0], cp)
		}
	}
}

func TestCheckpointByIDAlone(t *testing.T) {
	s := newServer(t, Options{})
	save(t, s, "t", "20260101-000000-aabbcc11")
	save(t, s, "t", "20260101-000000-aabbcc22")
	for _, ref := range []string{"t@latest", "aabbcc11", "aabbcc", "nothing"} {
		resp, body := ask(t, s, "GET", "/v1/checkpoints/"+url.PathEscape(ref), "")
		require.Equal(t, 404, resp.StatusCode, ref)
		require.Equal(t, client.Code("CHECKPOINT_NOT_FOUND"), refused(t, resp, body).Code)
	}
}

func TestBadRequests(t *testing.T) {
	s := newServer(t, Options{})
	keys := func(n, size int) string { return strings.Repeat("\x01", n*size) }
	const hash = "0000000000000000000000000000000000000000000000000000000000000000"
	for _, test := range []struct {
		method, target, body string
		status               int
		code                 client.Code
		message              string
	}{
		{"GET", "/v1/threads?limit=-1", "", 422, client.CodeBadRequest, "query.limit"},
		{"GET", "/v1/threads?limit=x", "", 422, client.CodeBadRequest, "query.limit"},
		{"GET", "/v1/threads?order=up", "", 422, client.CodeBadRequest, "unknown query parameter"},
		{"GET", "/v1/threads?before=nothing", "", 404, "THREAD_NOT_FOUND", ""},
		{"GET", "/v1/threads/nothing", "", 404, "THREAD_NOT_FOUND", `"nothing"`},
		{"GET", "/v1/threads/nothing/checkpoints", "", 404, "THREAD_NOT_FOUND", ""},
		{"GET", "/v1/resolve", "", 422, client.CodeBadRequest, "query.ref"},
		{"GET", "/v1/resolve?ref=nothing", "", 404, "CHECKPOINT_NOT_FOUND", ""},
		{"GET", "/v1/nothing", "", 404, client.CodeNoRoute, ""},
		{"GET", "/", "", 404, client.CodeNoRoute, ""},
		{"PUT", "/v1/threads", "", 405, client.CodeNoRoute, "GET"},
		{"POST", "/v1/locate", "", 400, client.CodeBadRequest, "body is required"},
		{"POST", "/v1/locate", keys(1, 32), 400, client.CodeBadRequest, "32 bytes"},
		{"POST", "/v1/locate", "\x09" + keys(1, 32), 400, client.CodeBadRequest, "namespace 9"},
		{"POST", "/v1/locate", keys(client.MaxKeys+1, client.KeySize), 413, "TOO_LARGE", "too large"},
		{"GET", "/v1/threads/nothing/lease", "", 404, "NO_WRITER", `"nothing"`},
		{"POST", "/v1/threads/t/lease", `{"token":"short","ttlNs":60000000000}`, 400, "INVALID", "token"},
		{"POST", "/v1/threads/t/lease", `{"token":"0123456789abcdef"}`, 422, client.CodeBadRequest, "ttlNs"},
		{"POST", "/v1/threads/t/lease", `{"token":"0123456789abcdef","ttlNs":5}`, 400, "INVALID", "5ns"},
		{"POST", "/v1/threads/t/lease", `{"token":"0123456789abcdef","ttlNs":60000000000,"thread":"u"}`, 422, client.CodeBadRequest, "body.thread"},
		{"PUT", "/v1/threads/t/lease", `{"token":"nothing"}`, 409, "WRITER_LOST", ""},
		{"PUT", "/v1/threads/t/lease", `{}`, 422, client.CodeBadRequest, "token"},
		{"DELETE", "/v1/threads/t/lease?token=nothing", "", 409, "WRITER_LOST", ""},
		{"DELETE", "/v1/threads/t/lease", "", 422, client.CodeBadRequest, "query.token"},
		{"POST", "/v1/sessions", `{"thread":"t","lease":"nothing"}`, 409, "WRITER_LOST", ""},
		{"POST", "/v1/sessions", "", 400, client.CodeBadRequest, "body is required"},
		{"POST", "/v1/sessions", "{", 400, client.CodeBadRequest, "EOF"},
		{"POST", "/v1/sessions", "{} {}", 400, client.CodeBadRequest, "goes on"},
		{"POST", "/v1/sessions", "{}", 422, client.CodeBadRequest, "thread"},
		{"POST", "/v1/sessions", "[]", 422, client.CodeBadRequest, "object"},
		{"POST", "/v1/sessions", "null", 422, client.CodeBadRequest, "object"},
		{"POST", "/v1/sessions", `{"thread":7}`, 422, client.CodeBadRequest, "body.thread"},
		{"POST", "/v1/sessions", `{"thread":"t","pid":"x"}`, 422, client.CodeBadRequest, "body.pid"},
		{"POST", "/v1/sessions", `{"thread":"t","colour":"red"}`, 422, client.CodeBadRequest, "body.colour"},
		{"POST", "/v1/sessions", `{"thread":"t","Thread":"u"}`, 422, client.CodeBadRequest, "body.Thread"},
		{"POST", "/v1/sessions", "{\"thread\":\"\xff\"}", 400, client.CodeBadRequest, "UTF-8"},
		{"POST", "/v1/sessions", `{"thread":""}`, 400, "INVALID", "empty"},
		{"POST", "/v1/sessions", `{"thread":"` + strings.Repeat("x", 70000) + `"}`, 413, "TOO_LARGE", "too large"},
		{"POST", "/v1/sessions/nothing/have?ns=files", keys(1, 32), 410, "SESSION_OVER", ""},
		{"POST", "/v1/sessions/nothing/have?ns=nothing", keys(1, 32), 422, client.CodeBadRequest, "query.ns"},
		{"POST", "/v1/sessions/nothing/have", keys(1, 32), 422, client.CodeBadRequest, "query.ns"},
		{"POST", "/v1/sessions/nothing/have?ns=files", keys(client.MaxKeys+1, 32), 413, "TOO_LARGE", ""},
		{"POST", "/v1/sessions/nothing/packs/00", "", 410, "SESSION_OVER", ""},
		{"POST", "/v1/sessions/nothing/packs/00", "bytes", 501, "UNSUPPORTED", ""},
		{"POST", "/v1/sessions/nothing/publish", `{"record":"` + hash + `"}`, 410, "SESSION_OVER", ""},
		{"POST", "/v1/sessions/nothing/publish", `{"record":"zz"}`, 422, client.CodeBadRequest, "body.record"},
		{"DELETE", "/v1/sessions/nothing", "", 410, "SESSION_OVER", ""},
		{"POST", "/v1/mounts", `{"mountpoint":"/mnt"}`, 501, "UNSUPPORTED", ""},
		{"POST", "/v1/mounts", `{"allowOther":true}`, 422, client.CodeBadRequest, "mountpoint"},
		{"DELETE", "/v1/mounts", "", 422, client.CodeBadRequest, "query.mountpoint"},
		{"DELETE", "/v1/mounts?mountpoint=%2Fmnt", "", 404, "NOT_MOUNTED", ""},
	} {
		t.Run(fmt.Sprintf("%s %s %.20q", test.method, test.target, test.body), func(t *testing.T) {
			resp, body := ask(t, s, test.method, test.target, test.body)
			require.Equal(t, test.status, resp.StatusCode, body)
			e := refused(t, resp, body)
			require.Equal(t, test.code, e.Code, body)
			require.Contains(t, e.Message, test.message)
		})
	}
	resp, body := ask(t, s, "POST", "/v1/sessions", "thread=t", "Content-Type", "text/plain")
	require.Equal(t, 415, resp.StatusCode, body)
	refused(t, resp, body)
}

func TestAcceptIsNoTrap(t *testing.T) {
	s := newServer(t, Options{})
	for _, accept := range []string{"text/html", "a;,b", ";", "a;q", "application/cbor", "*/*;q=0", ","} {
		resp, body := ask(t, s, "GET", "/v1/threads", "", "Accept", accept)
		require.Equal(t, 200, resp.StatusCode, body)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.JSONEq(t, `{"threads":[]}`, body)
	}
}

func TestEverySentinelHasAStatus(t *testing.T) {
	for _, sentinel := range client.Sentinels() {
		e := outward(fmt.Errorf("do this: %w", sentinel.Err))
		require.Equal(t, sentinel.Code, e.Code)
		require.GreaterOrEqual(t, e.status, 400)
	}
	require.Equal(t, 500, outward(errors.New("trouble")).status)
}

func TestOpenAPI(t *testing.T) {
	s := newServer(t, Options{Version: "1.2.3"})
	resp, body := ask(t, s, "GET", "/openapi.json", "")
	require.Equal(t, 200, resp.StatusCode)
	var doc struct {
		Info  struct{ Version string }
		Paths map[string]map[string]struct {
			Responses   map[string]any
			RequestBody struct{ Content map[string]any }
		}
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Equal(t, "1.2.3", doc.Info.Version)
	for path, methods := range map[string][]string{
		"/healthz": {"get"}, "/readyz": {"get"}, "/v1/threads": {"get"}, "/v1/threads/{thread}": {"get", "delete"},
		"/v1/threads/{thread}/checkpoints": {"get"}, "/v1/checkpoints/{id}": {"get", "patch", "delete"}, "/v1/resolve": {"get"}, "/v1/stats": {"get"}, "/v1/published": {"get"}, "/v1/usage": {"get"},
		"/v1/check": {"post"}, "/v1/locate": {"post"}, "/v1/sessions": {"post"}, "/v1/sessions/{id}": {"delete"},
		"/v1/sessions/{id}/have": {"post"}, "/v1/sessions/{id}/packs/{pack}": {"post"}, "/v1/sessions/{id}/publish": {"post"},
		"/v1/mounts": {"post", "delete"}, "/v1/gc": {"post"}, "/v1/repair": {"post"}, "/v1/distrust": {"post"}, "/v1/forget": {"post"}, "/v1/sessions/{id}/artifacts": {"post"},
		"/v1/threads/{thread}/lease":     {"get", "post", "put", "delete"},
		"/v1/threads/{thread}/artifacts": {"get"}, "/v1/threads/{thread}/artifacts/{artifact}": {"delete"},
	} {
		require.Len(t, doc.Paths[path], len(methods), path)
		for _, m := range methods {
			require.NotEmpty(t, doc.Paths[path][m].Responses, path)
			require.Contains(t, doc.Paths[path][m].Responses, "default", "%s %s has no error", m, path)
		}
		delete(doc.Paths, path)
	}
	require.Empty(t, doc.Paths)
	require.Contains(t, doc.Components.Schemas, "SessionStart")
	schema, err := json.Marshal(doc.Components.Schemas["Error"])
	require.NoError(t, err)
	for _, field := range []string{"code", "message", "hint", "details"} {
		require.Contains(t, string(schema), `"`+field+`"`)
	}
}
