package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// maxRef is longer in bytes than any reference that can mean something: an id,
// an @ and a name.
const maxRef = index.MaxID + 1 + 4*index.MaxName

// Resolve implements [snapshot.Holder].
func (h *Holder) Resolve(ctx context.Context, ref string) (snapshot.Checkpoint, error) {
	var cp snapshot.Checkpoint
	if ref == "" || len(ref) > maxRef {
		err := fmt.Errorf("%.80q: %w", ref, index.ErrCheckpointNotFound)
		return cp, snapshot.WithHint(err, "snapfs list shows the threads, snapfs list THREAD their checkpoints")
	}
	err := h.call(ctx, request{method: http.MethodGet, path: "/v1/resolve", query: url.Values{"ref": {ref}}}, &cp)
	return cp, err
}

// Thread implements [snapshot.Holder].
func (h *Holder) Thread(ctx context.Context, id string) (snapshot.Thread, error) {
	var t snapshot.Thread
	if err := pathID(id); err != nil {
		return t, err
	}
	err := h.call(ctx, request{method: http.MethodGet, path: pathOf("v1", "threads", id)}, &t)
	return t, err
}

// pathID refuses a thread's id that no thread can have, and so no path carries.
func pathID(id string) error {
	if index.ValidID("thread id", id) != nil {
		return fmt.Errorf("thread %q: %w", id, index.ErrThreadNotFound)
	}
	return nil
}

// Threads implements [snapshot.Holder].
func (h *Holder) Threads(ctx context.Context, p snapshot.Page) ([]snapshot.Thread, error) {
	var list Threads
	p.Deleting = false // it is about checkpoints
	err := h.call(ctx, request{method: http.MethodGet, path: "/v1/threads", query: pageQuery(p)}, &list)
	return list.Threads, err
}

// Checkpoints implements [snapshot.Holder].
func (h *Holder) Checkpoints(ctx context.Context, thread string, p snapshot.Page) ([]snapshot.Checkpoint, error) {
	if err := pathID(thread); err != nil {
		return nil, err
	}
	var list Checkpoints
	err := h.call(ctx, request{method: http.MethodGet, path: pathOf("v1", "threads", thread, "checkpoints"), query: pageQuery(p)}, &list)
	return list.Checkpoints, err
}

func pageQuery(p snapshot.Page) url.Values {
	q := url.Values{}
	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Before != "" {
		q.Set("before", p.Before)
	}
	if p.Deleting {
		q.Set("deleting", "true")
	}
	return q
}

// Check implements [snapshot.Holder].
func (h *Holder) Check(ctx context.Context) ([]string, error) {
	var list Findings
	err := h.call(ctx, request{method: http.MethodPost, path: "/v1/check"}, &list)
	return list.Findings, err
}

// Stats implements [snapshot.Holder]. It counts what the daemon did too.
func (h *Holder) Stats(ctx context.Context) (snapshot.Stats, error) {
	var st snapshot.Stats
	err := h.call(ctx, request{method: http.MethodGet, path: "/v1/stats"}, &st)
	return st, err
}

// Published implements [snapshot.Holder].
func (h *Holder) Published(ctx context.Context, sequence uint64) (snapshot.PublishedCheckpoint, error) {
	var p snapshot.PublishedCheckpoint
	q := url.Values{"sequence": {strconv.FormatUint(sequence, 10)}}
	err := h.call(ctx, request{method: http.MethodGet, path: "/v1/published", query: q}, &p)
	return p, err
}

// Usage implements [snapshot.Holder].
func (h *Holder) Usage(ctx context.Context) (snapshot.Usage, error) {
	var u snapshot.Usage
	err := h.call(ctx, request{method: http.MethodGet, path: "/v1/usage"}, &u)
	return u, err
}

// Mount implements [snapshot.Holder].
func (h *Holder) Mount(ctx context.Context, req snapshot.MountRequest) error {
	if !utf8.ValidString(req.Mountpoint) {
		req.Bytes = []byte(req.Mountpoint)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	return h.call(ctx, request{method: http.MethodPost, path: "/v1/mounts", body: body, status: http.StatusCreated}, nil)
}

// Unmount implements [snapshot.Holder].
func (h *Holder) Unmount(ctx context.Context, req snapshot.UnmountRequest) error {
	q := url.Values{"mountpoint": {req.Mountpoint}}
	if req.Lazy {
		q.Set("lazy", "true")
	}
	return h.call(ctx, request{method: http.MethodDelete, path: "/v1/mounts", query: q, status: http.StatusNoContent}, nil)
}
