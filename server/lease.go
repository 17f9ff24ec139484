package server

import (
	"context"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

type leaseOutput struct{ Body snapshot.Lease }

func (s *Server) acquireLease(ctx context.Context, in *struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once; it need not be there"`
	Body   snapshot.LeaseRequest
}) (*leaseOutput, error) {
	in.Body.Thread = in.Thread
	l, err := s.store.Holder().AcquireLease(context.WithoutCancel(ctx), in.Body)
	return &leaseOutput{Body: l}, err
}

func (s *Server) renewLease(ctx context.Context, in *struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once"`
	Body   client.LeaseToken
}) (*leaseOutput, error) {
	l, err := s.store.RenewWriter(context.WithoutCancel(ctx), in.Thread, in.Body.Token)
	return &leaseOutput{Body: l}, err
}

func (s *Server) releaseLease(ctx context.Context, in *struct {
	Thread string `path:"thread" doc:"the thread's id, percent-encoded once"`
	Token  string `query:"token" required:"true" doc:"what the lease was acquired with"`
}) (*struct{}, error) {
	return nil, s.store.ReleaseWriter(context.WithoutCancel(ctx), in.Thread, in.Token)
}

func (s *Server) lease(ctx context.Context, in *threadInput) (*leaseOutput, error) {
	l, err := s.store.Writer(ctx, in.Thread)
	return &leaseOutput{Body: l}, err
}
