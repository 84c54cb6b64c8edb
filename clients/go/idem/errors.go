package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// domain is the ErrorInfo domain of idemd's reasons.
const domain = "idemd"

// ErrLeaseLost is the cause with which an owner's context is cancelled when its lease
// is over, or about to be.
var ErrLeaseLost = errors.New("idem: the lease is lost")

// Error is a call that idemd refused or that did not reach it. Branch on Reason (with
// errors.Is) or Code, not on Message.
type Error struct {
	Code codes.Code
	// Reason is empty where the refusal is not idemd's own: gRPC's, or a proxy's.
	Reason  Reason
	Message string
	// RetryAfter is when repeating can help; 0 = not said.
	RetryAfter time.Duration
	// Metadata has the offending "field", or the current "version".
	Metadata map[string]string

	ended error // of the context that ended the call
}

// Error implements error.
func (e *Error) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("idemd: %s: %s", e.Reason, e.Message)
	}
	return fmt.Sprintf("idemd: %s: %s", e.Code, e.Message)
}

// Is makes errors.Is work with a Reason.
func (e *Error) Is(target error) bool {
	reason, is := target.(Reason)
	return is && reason == e.Reason
}

// Unwrap is the error of the context that ended the call, if one did.
func (e *Error) Unwrap() error { return e.ended }

// GRPCStatus makes status.Code and status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// errorOf reads a gRPC error; nil is nil.
func errorOf(err error) *Error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Code: st.Code(), Message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain {
				e.Reason, e.Metadata = Reason(d.GetReason()), d.GetMetadata()
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// endedBy is the error of a call that its context ended; last is what the daemon had
// said until then, or nil.
func endedBy(ctx context.Context, last *Error) *Error {
	e := &Error{Code: status.FromContextError(ctx.Err()).Code(), Message: ctx.Err().Error(), ended: ctx.Err()}
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // the very same value
		e.ended = errors.Join(ctx.Err(), cause)
	}
	if last != nil && last.ended == nil {
		e.Reason, e.Metadata = last.Reason, last.Metadata
		e.Message += "; before: " + last.Message
	}
	return e
}

// InProgressError says that another owner is on it, or a retry is scheduled, and the
// time to wait is over. Repeat with the same key.
type InProgressError struct {
	// Attempt and Owner are those of who is on it.
	Attempt int32
	Owner   string
	// RetryAfter is when to ask again.
	RetryAfter time.Duration
	// Err is the error of the context, if that ended the wait.
	Err error
}

// Error implements error.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("idemd: in progress: attempt %d of %q; repeat with the same key after %v", e.Attempt, e.Owner, e.RetryAfter)
}

// Unwrap implements errors.Is.
func (e *InProgressError) Unwrap() error { return e.Err }

// UnresolvedError says that nobody knows whether the operation was executed. Keep the
// key, and find out before anybody repeats the effect.
type UnresolvedError struct {
	Unresolved
	// RetryAfter is when a repetition can bring more than now; 0 = not known.
	RetryAfter time.Duration
	// Err is why it is not known: what the function or Reconcile returned, or why a
	// verdict could not be recorded. Nil where another owner fell silent.
	Err error
	// Unrecorded is why the daemon could not be told that it is unknown, if that is so.
	Unrecorded error
}

// Error implements error.
func (e *UnresolvedError) Error() string {
	text := fmt.Sprintf("idemd: unresolved: attempt %d of %q may have been executed; find out, or repeat with the same key", e.Attempt, e.Owner)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap implements errors.Is.
func (e *UnresolvedError) Unwrap() error { return e.Err }

// FinalError says that the operation was refused for good, by this call's function or
// by an earlier one.
type FinalError struct {
	// Answer has the stored result, and whether this is a replay.
	Answer
	// Err is what the function returned; nil on a replay.
	Err error
}

// Error implements error.
func (e *FinalError) Error() string {
	if e.Err != nil {
		return "idemd: refused for good: " + e.Err.Error()
	}
	return fmt.Sprintf("idemd: refused for good by attempt %d (status %d)", e.Attempt, e.Result.GetStatus())
}

// Unwrap implements errors.Is.
func (e *FinalError) Unwrap() error { return e.Err }

// NotExecutedError says that the operation was certainly not executed. Repeating it with
// the same key is safe.
type NotExecutedError struct {
	// Attempt is the one that ended so.
	Attempt int32
	// Err is what the function returned, or why it was not started.
	Err error
	// Unrecorded is why the daemon could not be told, if it could not: then a
	// repetition hears "in progress" until the lease is over, and UNRESOLVED after that
	// under External.
	Unrecorded error
}

// Error implements error.
func (e *NotExecutedError) Error() string {
	text := "idemd: not executed, repeat with the same key"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap implements errors.Is.
func (e *NotExecutedError) Unwrap() error { return e.Err }

// KeepKey says whether a caller that wants to repeat the operation after err must do so
// with the same key. It is false after success, a final refusal that is recorded, and
// where the key belongs to another operation or can't be one; in all doubt it is true.
//
// The outermost of this package's errors decides: what is within it is its reason, and may
// be about another operation.
func KeepKey(err error) bool {
	keep, known := keepKey(err)
	return err != nil && (keep || !known)
}

// keepKey is known where there is one of this package's errors. Of several in one error, one
// that keeps the key is enough.
func keepKey(err error) (keep, known bool) {
	switch e := err.(type) { //nolint:errorlint // it walks the chain itself
	case *UnresolvedError, *InProgressError, *NotExecutedError:
		return true, true
	case *FinalError:
		// A refusal that is not recorded is not for good: another attempt may succeed.
		return e == nil || e.Unrecorded != nil, true
	case *Error:
		return e == nil || e.Reason != FingerprintMismatch && e.Reason != KeyInvalid, true
	case interface{ Unwrap() error }:
		return keepKey(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			k, is := keepKey(one)
			keep, known = keep || k, known || is
		}
	}
	return keep, known
}
