package idem

import (
	"context"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The coalescer's own calls: those of the service, sent together where there is company.

// Reserve implements idemdv1.IdempotencyServiceClient. In a batch nothing waits: who has
// to goes on alone.
func (c *coalescer) Reserve(ctx context.Context, r *idemdv1.ReserveRequest, o ...grpc.CallOption) (*idemdv1.ReserveResponse, error) {
	single := func() (*idemdv1.ReserveResponse, error) { return c.IdempotencyServiceClient.Reserve(ctx, r, o...) }
	command := &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Reserve{Reserve: r}}
	joined := true
	response, err := together(ctx, c, command, (*idemdv1.BatchOutcome).GetReserve, func() (*idemdv1.ReserveResponse, error) {
		joined = false
		return single()
	})
	if joined && response.GetInProgress() != nil && r.GetWait().AsDuration() > 0 {
		return single()
	}
	return response, err
}

// Extend implements idemdv1.IdempotencyServiceClient.
func (c *coalescer) Extend(ctx context.Context, r *idemdv1.ExtendRequest, o ...grpc.CallOption) (*idemdv1.ExtendResponse, error) {
	single := func() (*idemdv1.ExtendResponse, error) { return c.IdempotencyServiceClient.Extend(ctx, r, o...) }
	command := &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Extend{Extend: r}}
	return together(ctx, c, command, (*idemdv1.BatchOutcome).GetExtend, single)
}

// Complete implements idemdv1.IdempotencyServiceClient.
func (c *coalescer) Complete(ctx context.Context, r *idemdv1.CompleteRequest, o ...grpc.CallOption) (*idemdv1.CompleteResponse, error) {
	single := func() (*idemdv1.CompleteResponse, error) { return c.IdempotencyServiceClient.Complete(ctx, r, o...) }
	command := &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Complete{Complete: r}}
	return together(ctx, c, command, (*idemdv1.BatchOutcome).GetComplete, single)
}

// Fail implements idemdv1.IdempotencyServiceClient.
func (c *coalescer) Fail(ctx context.Context, r *idemdv1.FailRequest, o ...grpc.CallOption) (*idemdv1.FailResponse, error) {
	single := func() (*idemdv1.FailResponse, error) { return c.IdempotencyServiceClient.Fail(ctx, r, o...) }
	command := &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Fail{Fail: r}}
	return together(ctx, c, command, (*idemdv1.BatchOutcome).GetFail, single)
}

// Lookup implements idemdv1.IdempotencyServiceClient. One that waits goes alone.
func (c *coalescer) Lookup(ctx context.Context, r *idemdv1.LookupRequest, o ...grpc.CallOption) (*idemdv1.LookupResponse, error) {
	single := func() (*idemdv1.LookupResponse, error) { return c.IdempotencyServiceClient.Lookup(ctx, r, o...) }
	if r.GetWait().AsDuration() > 0 {
		return single()
	}
	command := &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Lookup{Lookup: r}}
	return together(ctx, c, command, (*idemdv1.BatchOutcome).GetLookup, single)
}

// together sends a command with others, or on its own if there are none.
func together[Response any](
	ctx context.Context, c *coalescer, command *idemdv1.BatchCommand, part func(*idemdv1.BatchOutcome) *Response, single func() (*Response, error),
) (*Response, error) {
	if ownMetadata(ctx) {
		return single()
	}
	if c.goesAlone() {
		defer c.landed()
		return single()
	}
	// As bytes, for the caller may use its request again as soon as it has left.
	encoded, err := proto.Marshal(command)
	if err != nil || len(encoded) > maxJoinedBytes {
		return single() // whose error says what is wrong
	}
	call := &joined{ctx: ctx, encoded: encoded, done: make(chan struct{})}
	c.join(call)
	select {
	case <-call.done:
	case <-ctx.Done():
		c.leave(call)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	switch refused := call.outcome.GetError(); {
	case call.single:
		return single()
	case call.err != nil:
		return nil, call.err
	case refused != nil:
		return nil, status.FromProto(&spb.Status{Code: refused.GetCode(), Message: refused.GetMessage(), Details: refused.GetDetails()}).Err()
	}
	if response := part(call.outcome); response != nil {
		return response, nil
	}
	return nil, status.Error(codes.Internal, "idem: a command of a batch was answered by another one's outcome")
}

// ownMetadata: the call carries something that its neighbours don't.
func ownMetadata(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md) > 0
}
