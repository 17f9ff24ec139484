package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/client"
)

// statuses is the table from an error's code to the HTTP status; which error has
// which code stands in [client.Sentinels]. A code that is not here is trouble of
// the server: 500.
func statuses(code client.Code) int {
	switch code {
	case client.CodeBadRequest, "INVALID", "AMBIGUOUS":
		return http.StatusBadRequest
	case "FORBIDDEN", "PERMISSION":
		return http.StatusForbidden
	case client.CodeNoRoute, "THREAD_NOT_FOUND", "CHECKPOINT_NOT_FOUND", "ENTRY_NOT_FOUND",
		"MISSING_BLOB", "NOT_MOUNTED", "NO_WORKSPACE", "NO_STORE", "FILE_NOT_FOUND", "ARTIFACT_NOT_FOUND", "NO_CONVERSATION", "NO_WRITER":
		return http.StatusNotFound
	case "WRITER_CONFLICT", "WRITER_LOST", "STALE_HEAD", "DUPLICATE_ID", "DUPLICATE_NAME", "DELETING", "BUSY", "THREAD_NOT_EMPTY", "DIVERGED", "THREAD_UNCLEAR",
		"MOUNTED", "MOUNT_BUSY", "WORKSPACE_STATE", "REFUSED", "UNFINISHED_WORKSPACE", "UNFINISHED_TARGET", "TARGET_NOT_EMPTY", "NOT_A_STORE":
		return http.StatusConflict
	case "SESSION_OVER":
		return http.StatusGone
	case "TOO_LARGE":
		return http.StatusRequestEntityTooLarge
	case "UNSAVABLE", "METACOPY", "INVALID_TREE", "BAD_ARCHIVE":
		return http.StatusUnprocessableEntity
	case "UNSUPPORTED":
		return http.StatusNotImplemented
	case "CLOSING", "CLOSED", "NO_DAEMON", "LOCKED", "INDEX_IN_USE":
		return http.StatusServiceUnavailable
	case "NO_SPACE":
		return http.StatusInsufficientStorage
	default: // INTERNAL, CORRUPT, INDEX_CORRUPT, COMMITTED, NEWER_STORE, NEWER_FORMAT
		return http.StatusInternalServerError
	}
}

// Error is the body of every reply that is an error.
type Error struct {
	client.ErrorBody
	status int
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// GetStatus implements [huma.StatusError].
func (e *Error) GetStatus() int { return e.status }

// outward makes the reply of an error.
func outward(err error) *Error {
	body := client.NewErrorBody(err)
	return &Error{ErrorBody: body, status: statuses(body.Code)}
}

// setUpHuma sets what huma keeps in variables of its package: its own errors (a
// request that does not fit its schema) get the form of all others, and the case
// of a field's name counts.
var setUpHuma = sync.OnceFunc(func() {
	huma.NewError = requestError
	huma.ValidateStrictCasing = true
})

// requestError is an error that huma found in a request.
func requestError(status int, msg string, errs ...error) huma.StatusError {
	e := &Error{ErrorBody: client.ErrorBody{Code: client.CodeBadRequest, Message: msg}, status: status}
	switch status {
	case http.StatusInternalServerError:
		e.Code = client.CodeInternal
	case http.StatusRequestEntityTooLarge:
		e.Code = "TOO_LARGE"
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		line := err.Error()
		// Without the value: a body need not come back.
		var detail huma.ErrorDetailer
		if errors.As(err, &detail) {
			d := detail.ErrorDetail()
			line = strings.TrimPrefix(d.Location+": "+d.Message, ": ")
		}
		e.Details = append(e.Details, line)
	}
	if len(e.Details) > 0 {
		e.Message += ": " + strings.Join(e.Details, "; ")
	}
	return e
}

// writeError replies with an error outside of huma.
func writeError(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_ = jsonFormat.Marshal(w, e) // the peer may have gone
}

// jsonFormat is JSON without HTML escapes, and without bytes that are not UTF-8,
// which encoding/json would replace silently.
var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	},
	Unmarshal: func(data []byte, v any) error {
		if !utf8.Valid(data) {
			return fmt.Errorf("body is not valid UTF-8")
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v); err != nil {
			return err
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return errors.New("body goes on after the JSON document")
		}
		return nil
	},
}
