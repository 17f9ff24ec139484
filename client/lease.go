package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// LeaseToken is the body of a request to renew a lease.
type LeaseToken struct {
	Token string `json:"token" doc:"what the lease was acquired with"`
}

// AcquireLease implements [snapshot.Holder].
func (h *Holder) AcquireLease(ctx context.Context, req snapshot.LeaseRequest) (snapshot.Lease, error) {
	// Looked at here as well: JSON cannot carry every wrong one to the daemon.
	err := index.AcquireLease{Org: "any", Thread: req.Thread, Token: req.Token, Owner: req.Owner, TTL: req.TTL}.Validate()
	if err != nil {
		return snapshot.Lease{}, err
	}
	return h.lease(ctx, http.MethodPost, http.StatusCreated, req.Thread, req)
}

// lease sends a request with a body and takes a lease in.
func (h *Holder) lease(ctx context.Context, method string, status int, thread string, in any) (l snapshot.Lease, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return l, err
	}
	err = h.call(ctx, request{method: method, path: pathOf("v1", "threads", thread, "lease"), body: body, status: status}, &l)
	return l, err
}

// lost refuses a lease that there cannot be.
func lost(thread, token string) error {
	if index.ValidID("thread id", thread) == nil && index.ValidToken(token) {
		return nil
	}
	return fmt.Errorf("thread %q: %w", thread, index.ErrWriterLost)
}

// RenewLease implements [snapshot.Holder].
func (h *Holder) RenewLease(ctx context.Context, thread, token string) (snapshot.Lease, error) {
	if err := lost(thread, token); err != nil {
		return snapshot.Lease{}, err
	}
	return h.lease(ctx, http.MethodPut, http.StatusOK, thread, LeaseToken{Token: token})
}

// ReleaseLease implements [snapshot.Holder].
func (h *Holder) ReleaseLease(ctx context.Context, thread, token string) error {
	if err := lost(thread, token); err != nil {
		return err
	}
	return h.call(ctx, request{
		method: http.MethodDelete, path: pathOf("v1", "threads", thread, "lease"), query: url.Values{"token": {token}}, status: http.StatusNoContent,
	}, nil)
}

// Lease implements [snapshot.Holder].
func (h *Holder) Lease(ctx context.Context, thread string) (l snapshot.Lease, err error) {
	if index.ValidID("thread id", thread) != nil {
		return l, fmt.Errorf("thread %q: %w", thread, index.ErrNoWriter)
	}
	err = h.call(ctx, request{method: http.MethodGet, path: pathOf("v1", "threads", thread, "lease")}, &l)
	return l, err
}
