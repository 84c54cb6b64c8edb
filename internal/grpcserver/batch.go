package grpcserver

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// Bounds of a batch.
const (
	maxBatchCommands = 1000
	maxBatchBytes    = 4 << 20
	// maxBatchAnswerBytes keeps the answer below what gRPC clients take by default (4 MiB),
	// with room for the outcomes that come after it is reached: each is a short refusal.
	maxBatchAnswerBytes = 4<<20 - maxBatchCommands*maxRefusalBytes
	maxRefusalBytes     = 512
)

// Batch implements idemdv1.IdempotencyServiceServer.
func (s *idempotency) Batch(ctx context.Context, r *idemdv1.BatchRequest) (*idemdv1.BatchResponse, error) {
	if refusal := checkBatch(r); refusal != nil {
		s.refused(refusal.Reason)
		return nil, statusOf(refusal)
	}
	commands := make([]reservation.Command, len(r.GetCommands()))
	answers := make([]engine.Answer, len(commands))
	var allowed []int
	at := traceOf(ctx)
	for i, c := range r.GetCommands() {
		request := requestOf(c)
		if request == nil {
			return nil, statusOf(reservation.Errorf(reservation.BatchInvalid, fmt.Sprintf("commands[%d]", i),
				"commands[%d] is none of reserve, extend, complete, fail, lookup", i))
		}
		// One that is not allowed fails itself only.
		if refusal := wall(identityOf(ctx), request); refusal != nil {
			s.refused(refusal.Reason)
			answers[i].Err = refusal
			continue
		}
		commands[i] = commandOf(c)
		if reserve, is := commands[i].(*reservation.Reserve); is {
			reserve.Trace = at
		}
		allowed = append(allowed, i)
	}
	for n, answer := range s.engine.DoAll(ctx, pick(commands, allowed)) {
		answers[allowed[n]] = answer
	}
	tracedBatch(ctx, answers)
	if err := ctx.Err(); err != nil {
		return nil, statusOf(err)
	}
	response := &idemdv1.BatchResponse{Outcomes: make([]*idemdv1.BatchOutcome, len(answers))}
	size := 0
	for i, a := range answers {
		outcome := protoOutcome(commands[i], a)
		if size += proto.Size(outcome); i > 0 && size > maxBatchAnswerBytes {
			size -= proto.Size(outcome)
			outcome = refused(statusOf(tooMuchForOneAnswer()))
		}
		response.Outcomes[i] = outcome
	}
	return response, nil
}

func checkBatch(r *idemdv1.BatchRequest) *reservation.Error {
	if n := len(r.GetCommands()); n == 0 || n > maxBatchCommands {
		return reservation.Errorf(reservation.BatchInvalid, "commands", "commands has %d entries; 1 to %d", n, maxBatchCommands)
	}
	if size := proto.Size(r); size > maxBatchBytes {
		return reservation.Errorf(reservation.BatchInvalid, "commands", "the batch has %d bytes, at most %d are taken", size, maxBatchBytes)
	}
	return nil
}

// tooMuchForOneAnswer is for what did not fit beside the outcomes before it. Repeating it
// does no harm: what was done is answered again.
func tooMuchForOneAnswer() *reservation.Error {
	return &reservation.Error{
		Reason: reservation.Overloaded, RetryAfter: 1, // at once
		Message: "the batch's answer is over 4 MiB without this outcome; repeat the command, with the same token",
	}
}

func pick(commands []reservation.Command, at []int) []reservation.Command {
	if len(at) == len(commands) {
		return commands
	}
	picked := make([]reservation.Command, len(at))
	for n, i := range at {
		picked[n] = commands[i]
	}
	return picked
}

// requestOf is the request that a command of a batch would be by itself; nil = there is
// none.
func requestOf(c *idemdv1.BatchCommand) addressed {
	switch is := c.GetCommand().(type) {
	case *idemdv1.BatchCommand_Reserve:
		return is.Reserve
	case *idemdv1.BatchCommand_Extend:
		return is.Extend
	case *idemdv1.BatchCommand_Complete:
		return is.Complete
	case *idemdv1.BatchCommand_Fail:
		return is.Fail
	case *idemdv1.BatchCommand_Lookup:
		return is.Lookup
	}
	return nil
}

func commandOf(c *idemdv1.BatchCommand) reservation.Command {
	switch is := c.GetCommand().(type) {
	case *idemdv1.BatchCommand_Reserve:
		return reserveOf(is.Reserve)
	case *idemdv1.BatchCommand_Extend:
		return extendOf(is.Extend)
	case *idemdv1.BatchCommand_Complete:
		return completeOf(is.Complete)
	case *idemdv1.BatchCommand_Fail:
		return failOf(is.Fail)
	case *idemdv1.BatchCommand_Lookup:
		return &reservation.Lookup{Address: addressOf(is.Lookup)}
	}
	return nil
}

// protoOutcome is what the command's own call would have answered.
func protoOutcome(command reservation.Command, a engine.Answer) *idemdv1.BatchOutcome {
	if a.Err != nil {
		return refused(statusOf(a.Err))
	}
	switch o := a.Outcome.(type) {
	case *reservation.Extended:
		return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Extend{Extend: protoExtended(o)}}
	case *reservation.Found:
		found := &idemdv1.LookupResponse{Reservation: protoReservation(command.Target(), o)}
		return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Lookup{Lookup: found}}
	case *reservation.Recorded:
		if _, failed := command.(*reservation.Fail); failed {
			return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Fail{Fail: protoFailed(o)}}
		}
		return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Complete{Complete: protoCompleted(o)}}
	}
	if decision := protoDecision(a.Outcome); decision != nil {
		return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Reserve{Reserve: decision}}
	}
	return refused(statusOf(fmt.Errorf("%T was answered %T", command, a.Outcome)))
}

func refused(err error) *idemdv1.BatchOutcome {
	said := status.Convert(err).Proto()
	return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Error{Error: &idemdv1.Status{
		Code: said.GetCode(), Message: said.GetMessage(), Details: said.GetDetails(),
	}}}
}
