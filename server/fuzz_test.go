package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// FuzzRequests: no request makes the daemon panic or fail inside, and none but one that
// fits is answered with success. What a request may name lies in the store.
func FuzzRequests(f *testing.F) {
	store, err := snapshot.Open(f.Context(), filepath.Join(f.TempDir(), "store"), snapshot.Options{Create: true})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, store.Close()) })
	s := New(store, Options{Grace: time.Nanosecond})
	routes := []struct{ method, path, kind string }{
		{"POST", "/v1/sessions", "application/json"},
		{"POST", "/v1/sessions/X/publish", "application/json"},
		{"POST", "/v1/sessions/X/have?namespace=files", "application/octet-stream"},
		{"POST", "/v1/sessions/X/artifacts", "application/json"},
		{"POST", "/v1/sessions/X/packs/X", "application/json"},
		{"POST", "/v1/locate", "application/octet-stream"},
		{"POST", "/v1/distrust", "application/json"},
		{"POST", "/v1/gc", "application/json"},
		{"POST", "/v1/check", "application/json"},
		{"PATCH", "/v1/checkpoints/X", "application/json"},
		{"DELETE", "/v1/checkpoints/X", ""},
		{"DELETE", "/v1/threads/X", ""},
		{"GET", "/v1/threads/X", ""},
		{"GET", "/v1/threads/X/checkpoints?limit=3&before=X", ""},
		{"GET", "/v1/resolve?ref=X", ""},
	}
	for i := range routes {
		f.Add(i, "id", []byte(`{"thread":"t","record":"`+strings.Repeat("0", 64)+`","name":"n"}`))
		f.Add(i, "..", []byte(`{"thread":"\ud800"}`))
		f.Add(i, "a/b", make([]byte, 33))
	}
	f.Fuzz(func(t *testing.T, route int, id string, body []byte) {
		if route < 0 {
			return
		}
		r := routes[route%len(routes)]
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // a session stays open
		defer cancel()
		target := "http://daemon" + strings.ReplaceAll(r.path, "X", strings.ReplaceAll(url.QueryEscape(id), "+", "%20"))
		req := httptest.NewRequestWithContext(context.WithValue(ctx, peerKey{}, s.owner), r.method, target, nil)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
		if r.kind != "" {
			req.Header.Set("Content-Type", r.kind)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s %s: %s", r.method, target, w.Body)
		require.Less(t, w.Body.Len(), 1<<20)
		if w.Code >= 400 && ctx.Err() == nil {
			refused(t, w.Result(), w.Body.String())
		}
	})
}
