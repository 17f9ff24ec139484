package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/snapfs/snapfs/client"
)

// outer is around all routes: who may ask, what becomes of a panic, and errors of
// the mux in the form of all others.
func (s *Server) outer(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer s.recover(rec, r)
		if err := s.allowed(r); err != nil {
			writeError(rec, outward(err))
			return
		}
		r.Header.Del("Accept") // JSON, whatever is wished for
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: s.bodyTimeout}
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			mux.ServeHTTP(&plainError{recorder: rec}, r)
			return
		}
		mux.ServeHTTP(rec, r)
	})
}

// recover turns a panic into a 500 and a line in the log.
func (s *Server) recover(w *recorder, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.wrote {
		panic(http.ErrAbortHandler) // the reply is cut off, so that it does not look whole
	}
	writeError(w, &Error{
		ErrorBody: client.ErrorBody{Code: client.CodeInternal, Message: "internal error, see the daemon's log"},
		status:    http.StatusInternalServerError,
	})
}

// recorder notes whether a reply has begun.
type recorder struct {
	http.ResponseWriter
	wrote bool
}

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) {
	r.wrote = true
	r.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// plainError replaces the mux's own texts by our form.
type plainError struct{ *recorder }

// WriteHeader implements [http.ResponseWriter].
func (p *plainError) WriteHeader(status int) {
	message := "no such route"
	if status == http.StatusMethodNotAllowed {
		message = "this route has other methods: " + p.Header().Get("Allow")
	}
	body, err := json.Marshal(client.ErrorBody{Code: client.CodeNoRoute, Message: message})
	if err != nil {
		panic(err) // two strings
	}
	p.Header().Set("Content-Type", "application/json")
	p.recorder.WriteHeader(status)
	_, _ = p.recorder.Write(body) // the peer may have gone
}

// Write implements [http.ResponseWriter].
func (p *plainError) Write(b []byte) (int, error) { return len(b), nil }

// timedBody gives the peer a limited time to send a body, from the first read on.
// At its end the connection's deadline goes away again: with one left over, the
// request's context would end with it, while its handler works.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration
	begun   bool
}

// Read implements [io.Reader].
func (t *timedBody) Read(b []byte) (int, error) {
	if !t.begun {
		t.begun = true
		_ = t.control.SetReadDeadline(time.Now().Add(t.limit)) // only on real connections
	}
	n, err := t.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		_ = t.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Close implements [io.Closer].
func (t *timedBody) Close() error {
	err := t.ReadCloser.Close()
	_ = t.control.SetReadDeadline(time.Time{})
	return err
}
