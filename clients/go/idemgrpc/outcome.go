package idemgrpc

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idemd/idemd/clients/go/idem"
)

// Outcome is what a status other than OK means for the key.
type Outcome int

const (
	// OutcomeUndeclared says nothing itself: may have happened (External), rolled back
	// (Transactional). From Config.Outcome it means DefaultOutcome's word.
	OutcomeUndeclared Outcome = iota
	// OutcomeFinal is a refusal for good. The same status is replayed.
	OutcomeFinal
	// OutcomeNotExecuted is certainly not done. The next call runs the handler again.
	OutcomeNotExecuted
	// OutcomeUnknown may have happened. In External nobody repeats it.
	OutcomeUnknown
)

// DefaultOutcome is the table for who has none of their own. Final is what the same
// request would be told again: InvalidArgument, NotFound, AlreadyExists,
// FailedPrecondition, OutOfRange, Unauthenticated, PermissionDenied, Unimplemented. All
// else is Undeclared, ResourceExhausted too: a response over a limit comes after the
// effect.
func DefaultOutcome(code codes.Code) Outcome {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return OutcomeFinal
	}
	return OutcomeUndeclared
}

// declared adds what a status means to the handler's error, unless the handler has said
// it itself.
func declared(err error, o Outcome) error {
	if idem.Declared(err) {
		return err
	}
	switch o {
	case OutcomeFinal:
		return idem.Final(err)
	case OutcomeNotExecuted:
		return idem.NotExecuted(err)
	case OutcomeUnknown:
		return idem.Unknown(err)
	}
	return err
}

// ownStatus is the status of a handler's error, less what a guard has said in it, for that
// is about another key. another: it came of another guarded operation that the handler has
// made, and its code says how that one ended.
func ownStatus(err error) (own *status.Status, another bool) {
	s := statusOf(err)
	if infoIn(s) == nil {
		return s, !idem.Declared(err) && fromDo(err)
	}
	full := s.Proto()
	full.Details = slices.DeleteFunc(full.GetDetails(), func(detail *anypb.Any) bool {
		info := &errdetails.ErrorInfo{}
		return detail.UnmarshalTo(info) == nil && info.GetDomain() == Domain
	})
	return status.FromProto(full), true
}

// fromDo: there is an error of a Do in it.
func fromDo(err error) bool {
	var (
		final       *idem.FinalError
		notExecuted *idem.NotExecutedError
		unresolved  *idem.UnresolvedError
		inProgress  *idem.InProgressError
		refused     *idem.Error
	)
	return errors.As(err, &final) || errors.As(err, &notExecuted) || errors.As(err, &unresolved) ||
		errors.As(err, &inProgress) || errors.As(err, &refused)
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
