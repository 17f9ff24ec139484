package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// Limits of request bodies in bytes. huma refuses a body that reaches its limit.
const (
	maxJSON   = 64 << 10
	maxLocate = client.MaxKeys*client.KeySize + 1
	maxHave   = client.MaxKeys*client.HashSize + 1
	// maxForget has room for as many ids as one change deletes, each byte escaped.
	maxForget = (index.MaxForget + 1) * 6 * index.MaxID
	// maxPublish has room for as many artifacts as an entry of the journal takes.
	maxPublish = 8 << 20
)

// routes registers every route.
func (s *Server) routes(api huma.API) {
	get := func(id, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary}
	}
	post := func(id, path, summary string, status int) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodPost, Path: path, Summary: summary, DefaultStatus: status}
	}
	drop := func(id, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodDelete, Path: path, Summary: summary, DefaultStatus: http.StatusNoContent}
	}
	register(s, api, get("healthz", "/healthz", "Whether the daemon lives"), s.healthz)
	register(s, api, get("readyz", "/readyz", "Whether the daemon takes requests; 503 when it is about to end"), s.readyz)
	register(s, api, get("list-threads", "/v1/threads", "Threads by last activity, newest first"), s.threads)
	register(s, api, get("get-thread", "/v1/threads/{thread}", "One thread"), s.thread)
	register(s, api, get("list-checkpoints", "/v1/threads/{thread}/checkpoints", "A thread's checkpoints, newest first"), s.checkpoints)
	register(s, api, get("get-checkpoint", "/v1/checkpoints/{id}", "The checkpoint with exactly this id"), s.checkpoint)
	rename := post("rename-checkpoint", "/v1/checkpoints/{id}", "Gives a checkpoint a name, or takes it away", http.StatusOK)
	rename.Method = http.MethodPatch
	register(s, api, rename, s.rename)
	register(s, api, drop("delete-checkpoint", "/v1/checkpoints/{id}", "Deletes a checkpoint; its thread's head moves to the newest one left"), s.deleteCheckpoint)
	register(s, api, drop("delete-thread", "/v1/threads/{thread}", "Deletes a thread with all of its checkpoints and artifacts"), s.deleteThread)
	forget := post("forget", "/v1/forget", "Deletes checkpoints of a thread, unless they have a name or are its head", http.StatusOK)
	forget.MaxBodyBytes = maxForget
	register(s, api, forget, s.forget)
	register(s, api, get("list-artifacts", "/v1/threads/{thread}/artifacts", "The artifacts that a thread has now, by id"), s.artifacts)
	register(s, api, drop("remove-artifact", "/v1/threads/{thread}/artifacts/{artifact}", "Takes an artifact away from a thread; checkpoints keep it"), s.removeArtifact)
	register(s, api, post("acquire-lease", "/v1/threads/{thread}/lease", "Makes who asks the single writer of a thread", http.StatusCreated), s.acquireLease)
	renew := post("renew-lease", "/v1/threads/{thread}/lease", "Gives a lease its whole time again", http.StatusOK)
	renew.Method = http.MethodPut
	register(s, api, renew, s.renewLease)
	register(s, api, drop("release-lease", "/v1/threads/{thread}/lease", "Ends a lease"), s.releaseLease)
	register(s, api, get("get-lease", "/v1/threads/{thread}/lease", "The lease that a thread has now, without its token"), s.lease)
	register(s, api, post("gc", "/v1/gc", "Frees what nothing refers to", http.StatusOK), s.gc)
	register(s, api, post("repair", "/v1/repair", "Moves damaged packs aside, after what can be read of them was copied", http.StatusOK), s.repair)
	register(s, api, get("resolve", "/v1/resolve", "The checkpoint that a reference means: an id, THREAD@NAME or the beginning of an id"), s.resolve)
	register(s, api, get("published", "/v1/published", "The checkpoint that had a sequence when it was published, whatever became of it since"), s.published)
	register(s, api, get("stats", "/v1/stats", "What the store holds and what the daemon did"), s.stats)
	register(s, api, get("usage", "/v1/usage", "What takes the room in the store, and what deleting each thread would free"), s.usage)
	register(s, api, post("check", "/v1/check", "Compares the index with itself", http.StatusOK), s.check)

	register(s, api, post("distrust", "/v1/distrust", "Notes objects that were found damaged: the next save of the same content stores it anew", http.StatusNoContent), s.distrust)

	locate := post("locate", "/v1/locate", "Where objects lie: 1 byte of namespace and 32 of hash each; replies 32 bytes each: pack (16), offset, stored and plain length (4 each, big-endian), kind, encoding, 2 of zero", http.StatusOK)
	locate.MaxBodyBytes, locate.Responses = maxLocate, binaryResponse("The locations; all zero: nowhere")
	register(s, api, locate, s.locate)

	begin := post("begin-session", "/v1/sessions", "Begins a save; the response stays open as long as the session", http.StatusCreated)
	begin.Responses = map[string]*huma.Response{"201": {
		Description: "One line of JSON, then nothing until the session is over",
		Content: map[string]*huma.MediaType{"application/x-ndjson": {
			Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[client.SessionStart](), true, "SessionStart"),
		}},
	}}
	register(s, api, begin, s.begin)
	register(s, api, drop("end-session", "/v1/sessions/{id}", "Ends a save"), s.endSession)
	have := post("have", "/v1/sessions/{id}/have", "Which objects are missing: 32 bytes of hash each; replies a bit each, lowest first, set for a missing one", http.StatusOK)
	have.MaxBodyBytes, have.Responses = maxHave, binaryResponse("The bitmap")
	register(s, api, have, s.have)
	register(s, api, post("add-pack", "/v1/sessions/{id}/packs/{pack}", "Takes over a closed pack from the store's tmp/", http.StatusNoContent), s.addPack)
	publish := post("publish", "/v1/sessions/{id}/publish", "Makes a record the head of the session's thread", http.StatusCreated)
	publish.MaxBodyBytes = maxPublish
	register(s, api, publish, s.publish)

	register(s, api, post("add-artifact", "/v1/sessions/{id}/artifacts", "Gives the session's thread an artifact whose content was put", http.StatusNoContent), s.addArtifact)

	register(s, api, post("mount", "/v1/mounts", "Shows the store at a mountpoint", http.StatusCreated), s.mount)
	register(s, api, drop("unmount", "/v1/mounts", "Ends a mount"), s.unmount)
}

// register adds one route. Its errors go through the table.
func register[I, O any](s *Server, api huma.API, op huma.Operation, fn func(context.Context, *I) (*O, error)) {
	op.BodyReadTimeout = -1 // see timedBody
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxJSON
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err == nil {
			return out, nil
		}
		var known huma.StatusError
		if errors.As(err, &known) {
			return nil, known
		}
		e := outward(err)
		if e.status == http.StatusInternalServerError && ctx.Err() == nil {
			s.log.Error("request failed", "operation", op.OperationID, "error", err)
		}
		return nil, e
	})
}

// badRequest is the error of a request that the API does not allow.
func badRequest(err error) error {
	return requestError(http.StatusBadRequest, err.Error())
}

type binaryOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func binary(b []byte) *binaryOutput { return &binaryOutput{ContentType: client.Binary, Body: b} }

// binaryResponse describes a reply of bytes.
func binaryResponse(description string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: description,
		Content:     map[string]*huma.MediaType{client.Binary: {Schema: &huma.Schema{Type: "string", Format: "binary"}}},
	}}
}

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

func (s *Server) healthz(context.Context, *struct{}) (*healthOutput, error) {
	out := &healthOutput{}
	out.Body.Status = "ok"
	return out, nil
}

func (s *Server) readyz(ctx context.Context, in *struct{}) (*healthOutput, error) {
	if s.refusing() {
		return nil, client.ErrClosing
	}
	return s.healthz(ctx, in)
}

type threadsInput struct {
	Limit  int    `query:"limit" minimum:"0" doc:"at most so many; 0: all"`
	Before string `query:"before" doc:"only what comes after this id in the listing"`
}

type threadsOutput struct{ Body client.Threads }

func (s *Server) threads(ctx context.Context, in *threadsInput) (*threadsOutput, error) {
	list, err := s.store.Threads(ctx, snapshot.Page{Limit: in.Limit, Before: in.Before})
	return &threadsOutput{Body: client.Threads{Threads: list}}, err
}

type threadInput struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once"`
}

type threadOutput struct{ Body snapshot.Thread }

func (s *Server) thread(ctx context.Context, in *threadInput) (*threadOutput, error) {
	t, err := s.store.Thread(ctx, in.Thread)
	return &threadOutput{Body: t}, err
}

type checkpointsInput struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once"`
	Limit  int    `query:"limit" minimum:"0" doc:"at most so many; 0: all"`
	Before string `query:"before" doc:"only what comes after this id in the listing"`
	// Deleting is for those who look how far a deletion is.
	Deleting bool `query:"deleting" doc:"also what is being deleted, alone or with its thread"`
}

type checkpointsOutput struct{ Body client.Checkpoints }

func (s *Server) checkpoints(ctx context.Context, in *checkpointsInput) (*checkpointsOutput, error) {
	list, err := s.store.Checkpoints(ctx, in.Thread, snapshot.Page{Limit: in.Limit, Before: in.Before, Deleting: in.Deleting})
	return &checkpointsOutput{Body: client.Checkpoints{Checkpoints: list}}, err
}

type checkpointOutput struct{ Body snapshot.Checkpoint }

// checkpoint finds by id alone: an exact id comes first in what a reference may
// mean.
func (s *Server) checkpoint(ctx context.Context, in *struct {
	ID string `path:"id" doc:"the checkpoint's id, percent-encoded once"`
}) (*checkpointOutput, error) {
	cp, err := s.store.Holder().Resolve(ctx, in.ID)
	if err == nil && cp.ID != in.ID || errors.Is(err, snapshot.ErrAmbiguous) {
		err = fmt.Errorf("checkpoint %q: %w", in.ID, index.ErrCheckpointNotFound)
	}
	return &checkpointOutput{Body: cp}, err
}

func (s *Server) resolve(ctx context.Context, in *struct {
	Ref string `query:"ref" required:"true" doc:"the reference"`
}) (*checkpointOutput, error) {
	cp, err := s.store.Holder().Resolve(ctx, in.Ref)
	return &checkpointOutput{Body: cp}, err
}

type publishedOutput struct{ Body snapshot.PublishedCheckpoint }

func (s *Server) published(ctx context.Context, in *struct {
	Sequence uint64 `query:"sequence" required:"true" doc:"of the checkpoint"`
}) (*publishedOutput, error) {
	p, err := s.store.Holder().Published(ctx, in.Sequence)
	return &publishedOutput{Body: p}, err
}

type statsOutput struct{ Body snapshot.Stats }

func (s *Server) stats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	st, err := s.store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	st.Daemon = os.Getpid()
	if m := s.opt.Mounter; m != nil {
		maps.Copy(st.Fuse.Requests, m.Requests())
		st.Mounts = append(st.Mounts, m.Mounts()...)
	}
	return &statsOutput{Body: st}, nil
}

type usageOutput struct{ Body snapshot.Usage }

func (s *Server) usage(ctx context.Context, _ *struct{}) (*usageOutput, error) {
	u, err := s.store.Usage(ctx)
	return &usageOutput{Body: u}, err
}

type checkOutput struct{ Body client.Findings }

func (s *Server) check(ctx context.Context, _ *struct{}) (*checkOutput, error) {
	found, err := s.store.Holder().Check(ctx)
	return &checkOutput{Body: client.Findings{Findings: found}}, err
}

func (s *Server) locate(ctx context.Context, in *struct {
	RawBody []byte `contentType:"application/octet-stream" doc:"keys of 33 bytes"`
}) (*binaryOutput, error) {
	keys, err := client.ParseKeys(in.RawBody)
	if err != nil {
		return nil, badRequest(err)
	}
	locs, err := s.store.Holder().Locate(ctx, keys)
	if err != nil {
		return nil, err
	}
	return binary(client.AppendLocations(make([]byte, 0, len(locs)*client.LocationSize), locs)), nil
}

func (s *Server) mount(ctx context.Context, in *struct{ Body snapshot.MountRequest }) (*struct{}, error) {
	if s.refusing() {
		return nil, client.ErrClosing
	}
	if s.opt.Mounter == nil {
		return nil, fmt.Errorf("mount: this daemon only serves the API: %w", snapshot.ErrUnsupported)
	}
	req := in.Body
	if len(req.Bytes) > 0 {
		req.Mountpoint, req.Bytes = string(req.Bytes), nil
	}
	return nil, s.opt.Mounter.Mount(ctx, req)
}

func (s *Server) unmount(ctx context.Context, in *struct {
	Mountpoint string `query:"mountpoint" required:"true" doc:"absolute path"`
	Lazy       bool   `query:"lazy" doc:"detach now, end when the last user has left"`
}) (*struct{}, error) {
	if s.opt.Mounter == nil {
		return nil, fmt.Errorf("%s: %w", tree.Quote(in.Mountpoint), snapshot.ErrNotMounted)
	}
	return nil, s.opt.Mounter.Unmount(ctx, snapshot.UnmountRequest{Mountpoint: in.Mountpoint, Lazy: in.Lazy})
}
