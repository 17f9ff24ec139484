package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// Rename implements [snapshot.Holder].
func (h *Holder) Rename(ctx context.Context, id, name string) (snapshot.Checkpoint, error) {
	var cp snapshot.Checkpoint
	if err := pathCheckpoint(id); err != nil {
		return cp, err
	}
	if name != "" {
		if err := index.ValidName(name); err != nil { // JSON cannot carry every wrong one
			return cp, err
		}
	}
	body, err := json.Marshal(Rename{Name: name})
	if err != nil {
		return cp, err
	}
	err = h.call(ctx, request{method: http.MethodPatch, path: pathOf("v1", "checkpoints", id), body: body}, &cp)
	return cp, err
}

// pathCheckpoint refuses an id that no checkpoint can have, and so no path
// carries.
func pathCheckpoint(id string) error {
	if index.ValidCheckpointID(id) != nil {
		return fmt.Errorf("checkpoint %q: %w", id, index.ErrCheckpointNotFound)
	}
	return nil
}

// Delete implements [snapshot.Holder].
func (h *Holder) Delete(ctx context.Context, id string, opt snapshot.DeleteOptions) (bool, error) {
	if err := pathCheckpoint(id); err != nil {
		return false, err
	}
	return h.deletion(ctx, opt, "v1", "checkpoints", id)
}

// deletion asks for one: the reply says whether it is done.
func (h *Holder) deletion(ctx context.Context, opt snapshot.DeleteOptions, segments ...string) (bool, error) {
	r := request{method: http.MethodDelete, path: pathOf(segments...), status: http.StatusNoContent}
	if opt.NoWait {
		r.query, r.other = url.Values{"noWait": {"true"}}, http.StatusAccepted
	}
	resp, err := h.send(ctx, r)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusNoContent, resp.Body.Close()
}

// Forget implements [snapshot.Holder].
func (h *Holder) Forget(ctx context.Context, req snapshot.ForgetSome) (snapshot.Forgotten, error) {
	var res snapshot.Forgotten
	if err := pathID(req.Thread); err != nil {
		return res, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return res, err
	}
	err = h.call(ctx, request{method: http.MethodPost, path: "/v1/forget", body: body}, &res)
	return res, err
}

func (h *Holder) drop(ctx context.Context, segments ...string) error {
	return h.call(ctx, request{method: http.MethodDelete, path: pathOf(segments...), status: http.StatusNoContent}, nil)
}

// DeleteThread implements [snapshot.Holder].
func (h *Holder) DeleteThread(ctx context.Context, id string, opt snapshot.DeleteOptions) (bool, error) {
	if err := pathID(id); err != nil {
		return false, err
	}
	return h.deletion(ctx, opt, "v1", "threads", id)
}

// Artifacts implements [snapshot.Holder].
func (h *Holder) Artifacts(ctx context.Context, thread string) ([]snapshot.Artifact, error) {
	if err := pathID(thread); err != nil {
		return nil, err
	}
	var list Artifacts
	err := h.call(ctx, request{method: http.MethodGet, path: pathOf("v1", "threads", thread, "artifacts")}, &list)
	return list.Artifacts, err
}

// RemoveArtifact implements [snapshot.Holder].
func (h *Holder) RemoveArtifact(ctx context.Context, thread, id string) error {
	if err := pathID(thread); err != nil {
		return err
	}
	if index.ValidCheckpointID(id) != nil {
		return fmt.Errorf("artifact %q: %w", id, index.ErrArtifactNotFound)
	}
	return h.drop(ctx, "v1", "threads", thread, "artifacts", id)
}

// GC implements [snapshot.Holder].
func (h *Holder) GC(ctx context.Context, req snapshot.GCRequest) (snapshot.GCResult, error) {
	var res snapshot.GCResult
	body, err := json.Marshal(req)
	if err != nil {
		return res, err
	}
	err = h.call(ctx, request{method: http.MethodPost, path: "/v1/gc", body: body}, &res)
	return res, err
}

// maxRepair is how many packs one request names: it stays below what the daemon
// takes.
const maxRepair = 1000

// Repair implements [snapshot.Holder].
func (h *Holder) Repair(ctx context.Context, req snapshot.RepairRequest) (snapshot.RepairResult, error) {
	var all snapshot.RepairResult
	packs := req.Packs
	for first := true; first || len(packs) > 0; first = false {
		n := min(len(packs), maxRepair)
		body, err := json.Marshal(snapshot.RepairRequest{Packs: packs[:n:n]})
		if err != nil {
			return all, err
		}
		packs = packs[n:]
		var res snapshot.RepairResult
		if err := h.call(ctx, request{method: http.MethodPost, path: "/v1/repair", body: body}, &res); err != nil {
			return all, err
		}
		all.Add(res)
	}
	return all, nil
}

// Distrust implements [snapshot.Holder].
func (h *Holder) Distrust(ctx context.Context, objects []cas.Located) error {
	for batch := range slices.Chunk(objects, maxDistrust) {
		body, err := json.Marshal(newDistrust(batch))
		if err != nil {
			return err
		}
		if err := h.call(ctx, request{method: http.MethodPost, path: "/v1/distrust", body: body, status: http.StatusNoContent}, nil); err != nil {
			return err
		}
	}
	return nil
}

// maxDistrust is how many objects one request names: it stays far below what the
// daemon takes.
const maxDistrust = 64

// Distrust is the body of a request to note damaged objects: keys and locations
// as in a locate request and its reply.
type Distrust struct {
	Keys      []byte `json:"keys" doc:"33 bytes each"`
	Locations []byte `json:"locations" doc:"32 bytes each"`
}

func newDistrust(objects []cas.Located) Distrust {
	var keys []cas.Key
	var locs []cas.Location
	for _, o := range objects {
		keys, locs = append(keys, o.Key), append(locs, o.Location)
	}
	return Distrust{Keys: AppendKeys(nil, keys), Locations: AppendLocations(nil, locs)}
}

// Located is what the request names.
func (d Distrust) Located() ([]cas.Located, error) {
	keys, err := ParseKeys(d.Keys)
	if err != nil {
		return nil, err
	}
	locs, err := ParseLocations(d.Locations, len(keys))
	if err != nil {
		return nil, err
	}
	objects := make([]cas.Located, len(keys))
	for i := range keys {
		objects[i] = cas.Located{Key: keys[i], Location: locs[i]}
	}
	return objects, nil
}
