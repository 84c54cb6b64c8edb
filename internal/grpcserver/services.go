package grpcserver

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// anonymous is the actor of verdicts while callers have no identity.
const anonymous = "anonymous"

// idempotency serves IdempotencyService.
type idempotency struct {
	idemdv1.UnimplementedIdempotencyServiceServer
	engine *engine.Engine
}

// run has the engine run a command and expects one kind of outcome.
func run[O reservation.Outcome](ctx context.Context, e *engine.Engine, command reservation.Command) (answer O, err error) {
	outcome, err := e.Do(ctx, command)
	if err != nil {
		return answer, statusOf(err)
	}
	answer, ok := outcome.(O)
	if !ok {
		return answer, statusOf(fmt.Errorf("%T was answered %T", command, outcome))
	}
	return answer, nil
}

// checkWait refuses a wait out of range. Until waiting is built, calls answer at once.
func checkWait(wait *durationpb.Duration) error {
	if err := reservation.CheckWait(orZero(wait)); err != nil {
		return statusOf(err)
	}
	return nil
}

// Reserve implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Reserve(ctx context.Context, r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	if err := checkWait(r.GetWait()); err != nil {
		return nil, err
	}
	outcome, err := run[reservation.Outcome](ctx, s.engine, reserveOf(r))
	if err != nil {
		return nil, err
	}
	return protoDecision(outcome), nil
}

// Extend implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Extend(ctx context.Context, r *idemdv1.ExtendRequest) (*idemdv1.ExtendResponse, error) {
	o, err := run[*reservation.Extended](ctx, s.engine, extendOf(r))
	if err != nil {
		return nil, err
	}
	return &idemdv1.ExtendResponse{
		LeaseExpiresAt: protoTime(o.LeaseExpiresAt), LeaseRemaining: durationpb.New(max(0, o.LeaseRemaining)), Clamped: o.Clamped,
	}, nil
}

// Complete implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Complete(ctx context.Context, r *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, completeOf(r))
	if err != nil {
		return nil, err
	}
	return &idemdv1.CompleteResponse{Version: o.Version, ExpiresAt: protoTime(o.ExpiresAt), Repeated: o.Repeated}, nil
}

// Fail implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Fail(ctx context.Context, r *idemdv1.FailRequest) (*idemdv1.FailResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, failOf(r))
	if err != nil {
		return nil, err
	}
	return &idemdv1.FailResponse{Version: o.Version, ExpiresAt: protoTime(o.ExpiresAt), Repeated: o.Repeated}, nil
}

// Lookup implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Lookup(ctx context.Context, r *idemdv1.LookupRequest) (*idemdv1.LookupResponse, error) {
	if err := checkWait(r.GetWait()); err != nil {
		return nil, err
	}
	command := &reservation.Lookup{Address: addressOf(r)}
	found, err := run[*reservation.Found](ctx, s.engine, command)
	if err != nil {
		return nil, err
	}
	return &idemdv1.LookupResponse{Reservation: protoReservation(command.Address, found)}, nil
}

// operator serves OperatorService.
type operator struct {
	idemdv1.UnimplementedOperatorServiceServer
	engine *engine.Engine
}

// Resolve implements idemdv1.OperatorServiceServer.
func (s *operator) Resolve(ctx context.Context, r *idemdv1.ResolveRequest) (*idemdv1.ResolveResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, resolveOf(r, anonymous))
	if err != nil {
		return nil, err
	}
	return &idemdv1.ResolveResponse{Version: o.Version, Repeated: o.Repeated}, nil
}
