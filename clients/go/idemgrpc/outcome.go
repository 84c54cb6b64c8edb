package idemgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
)

// Outcome is what a status other than OK means for the key.
type Outcome int

const (
	// Undeclared is an error that says nothing itself: may have happened (External),
	// rolled back (Transactional).
	Undeclared Outcome = iota
	// Final is a refusal for good. The same status is replayed.
	Final
	// NotExecuted is certainly not done. The next call runs the handler again.
	NotExecuted
	// Unknown may have happened. In External nobody repeats it.
	Unknown
)

// DefaultOutcome is the table for who has none of their own. A Final is what the same
// request would be told again: InvalidArgument, NotFound, AlreadyExists,
// FailedPrecondition, OutOfRange, Unauthenticated, PermissionDenied, Unimplemented. All
// else is Undeclared, ResourceExhausted too: a response over a limit comes after the
// effect.
func DefaultOutcome(code codes.Code) Outcome {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return Final
	}
	return Undeclared
}

// declared adds what a status means to the handler's error, unless the handler has said
// it itself.
func declared(err error, o Outcome) error {
	if idem.Declared(err) {
		return err
	}
	switch o {
	case Final:
		return idem.Final(err)
	case NotExecuted:
		return idem.NotExecuted(err)
	case Unknown:
		return idem.Unknown(err)
	}
	return err
}

// statusOf is what gRPC would make of a handler's error. Wrappers that add nothing to
// the text, as declarations are, are looked through: the message shall not tell of them.
func statusOf(err error) *status.Status {
	for {
		inner := errors.Unwrap(err)
		if inner == nil || inner.Error() != err.Error() {
			break
		}
		err = inner
	}
	if s, is := status.FromError(err); is {
		return s
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err)
	}
	return status.New(codes.Unknown, err.Error())
}
