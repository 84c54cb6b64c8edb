package grpcserver

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// idempotency serves IdempotencyService.
type idempotency struct {
	idemdv1.UnimplementedIdempotencyServiceServer
	engine  *engine.Engine
	refused func(reservation.Reason)
}

// run has the engine run a command and expects one kind of outcome.
func run[O reservation.Outcome](ctx context.Context, e *engine.Engine, command reservation.Command) (O, error) {
	outcome, err := e.Do(ctx, command)
	traced(ctx, command, outcome, err)
	return expect[O](command, outcome, err)
}

// await is run for a command that may wait.
func await[O reservation.Outcome](ctx context.Context, e *engine.Engine, command reservation.Command, wait *durationpb.Duration) (O, error) {
	outcome, err := e.Await(ctx, command, orZero(wait))
	traced(ctx, command, outcome, err)
	return expect[O](command, outcome, err)
}

func expect[O reservation.Outcome](command reservation.Command, outcome reservation.Outcome, err error) (answer O, _ error) {
	if err != nil {
		return answer, statusOf(err)
	}
	answer, ok := outcome.(O)
	if !ok {
		return answer, statusOf(fmt.Errorf("%T was answered %T", command, outcome))
	}
	return answer, nil
}

// Reserve implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Reserve(ctx context.Context, r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	command := reserveOf(r)
	command.Trace = traceOf(ctx)
	outcome, err := await[reservation.Outcome](ctx, s.engine, command, r.GetWait())
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
	return protoExtended(o), nil
}

// Complete implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Complete(ctx context.Context, r *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, completeOf(r))
	if err != nil {
		return nil, err
	}
	return protoCompleted(o), nil
}

// Fail implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Fail(ctx context.Context, r *idemdv1.FailRequest) (*idemdv1.FailResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, failOf(r))
	if err != nil {
		return nil, err
	}
	return protoFailed(o), nil
}

// Lookup implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Lookup(ctx context.Context, r *idemdv1.LookupRequest) (*idemdv1.LookupResponse, error) {
	command := &reservation.Lookup{Address: addressOf(r)}
	found, err := await[*reservation.Found](ctx, s.engine, command, r.GetWait())
	if err != nil {
		return nil, err
	}
	return &idemdv1.LookupResponse{Reservation: protoReservation(command.Address, found)}, nil
}
