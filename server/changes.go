package server

import (
	"context"
	"net/http"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// Changes, once begun, are not broken off when the peer goes away: what they did
// is committed, and the mounts are to show it.

type renameInput struct {
	ID   string `path:"id" doc:"the checkpoint's id, percent-encoded once"`
	Body client.Rename
}

func (s *Server) rename(ctx context.Context, in *renameInput) (*checkpointOutput, error) {
	cp, err := s.store.Holder().Rename(context.WithoutCancel(ctx), in.ID, in.Body.Name)
	return &checkpointOutput{Body: cp}, err
}

// deletedOutput says whether a deletion is done.
type deletedOutput struct{ Status int }

func deleted(done bool, err error) (*deletedOutput, error) {
	if done {
		return &deletedOutput{Status: http.StatusNoContent}, err
	}
	return &deletedOutput{Status: http.StatusAccepted}, err
}

func (s *Server) deleteCheckpoint(ctx context.Context, in *struct {
	ID     string `path:"id" doc:"the checkpoint's id, percent-encoded once"`
	NoWait bool   `query:"noWait" doc:"reply 202 once it is decided, if it is not done by then"`
}) (*deletedOutput, error) {
	return deleted(s.store.Holder().Delete(context.WithoutCancel(ctx), in.ID, snapshot.DeleteOptions{NoWait: in.NoWait}))
}

func (s *Server) deleteThread(ctx context.Context, in *struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once"`
	NoWait bool   `query:"noWait" doc:"reply 202 once it is decided, if it is not done by then"`
}) (*deletedOutput, error) {
	return deleted(s.store.Holder().DeleteThread(context.WithoutCancel(ctx), in.Thread, snapshot.DeleteOptions{NoWait: in.NoWait}))
}

type forgetOutput struct{ Body snapshot.Forgotten }

func (s *Server) forget(ctx context.Context, in *struct{ Body snapshot.ForgetSome }) (*forgetOutput, error) {
	res, err := s.store.Holder().Forget(context.WithoutCancel(ctx), in.Body)
	return &forgetOutput{Body: res}, err
}

type artifactsOutput struct{ Body client.Artifacts }

func (s *Server) artifacts(ctx context.Context, in *threadInput) (*artifactsOutput, error) {
	list, err := s.store.Holder().Artifacts(ctx, in.Thread)
	return &artifactsOutput{Body: client.Artifacts{Artifacts: list}}, err
}

func (s *Server) removeArtifact(ctx context.Context, in *struct {
	Thread   string `path:"thread" doc:"the thread's id, percent-encoded once"`
	Artifact string `path:"artifact" doc:"the artifact's id, percent-encoded once"`
}) (*struct{}, error) {
	return nil, s.store.RemoveArtifact(context.WithoutCancel(ctx), in.Thread, in.Artifact)
}

type addArtifactInput struct {
	ID   string `path:"id"`
	Body snapshot.Artifact
}

// addArtifact gives a session's thread an artifact whose content was put.
func (s *Server) addArtifact(ctx context.Context, in *addArtifactInput) (*struct{}, error) {
	o, err := s.sessions.find(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, o.AddArtifact(context.WithoutCancel(ctx), in.Body)
}

type gcOutput struct{ Body snapshot.GCResult }

// gc may be broken off at any point: what it did until then is whole.
func (s *Server) gc(ctx context.Context, in *struct{ Body snapshot.GCRequest }) (*gcOutput, error) {
	res, err := s.store.GC(ctx, in.Body)
	return &gcOutput{Body: res}, err
}

type repairOutput struct{ Body snapshot.RepairResult }

// repair may be broken off at any point, as gc may.
func (s *Server) repair(ctx context.Context, in *struct{ Body snapshot.RepairRequest }) (*repairOutput, error) {
	res, err := s.store.Holder().Repair(ctx, in.Body)
	return &repairOutput{Body: res}, err
}

func (s *Server) distrust(ctx context.Context, in *struct{ Body client.Distrust }) (*struct{}, error) {
	objects, err := in.Body.Located()
	if err != nil {
		return nil, badRequest(err)
	}
	return nil, s.store.Holder().Distrust(context.WithoutCancel(ctx), objects)
}
