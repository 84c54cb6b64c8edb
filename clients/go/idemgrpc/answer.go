package idemgrpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
)

// Domain is the ErrorInfo domain of the guard's answers.
const Domain = "idem"

// keepKey is the entry of an ErrorInfo's metadata that says, "true" or "false", whether a
// repetition must carry the same key.
const keepKey = "keep_key"

// retryUnreachable is when to come back where the daemon does not say.
const retryUnreachable = time.Second

// Reason is why a call was answered by its guard, or what its guard adds to the answer.
// It is that of an ErrorInfo in [Domain].
type Reason string

// The reasons; docs/guards.md has their codes.
const (
	// ReasonKeyRequired: there is no key.
	ReasonKeyRequired Reason = "KEY_REQUIRED"
	// ReasonKeyInvalid: it can't be a key, or there are two.
	ReasonKeyInvalid Reason = "KEY_INVALID"
	// ReasonRequestRefused: no fingerprint can be made of the request.
	ReasonRequestRefused Reason = "REQUEST_REFUSED"
	// ReasonInProgress: another call is on it.
	ReasonInProgress Reason = "IN_PROGRESS"
	// ReasonFingerprintMismatch: the key was first used for something else.
	ReasonFingerprintMismatch Reason = "FINGERPRINT_MISMATCH"
	// ReasonKeyMayHaveExpired: the record may have been forgotten.
	ReasonKeyMayHaveExpired Reason = "KEY_MAY_HAVE_EXPIRED"
	// ReasonOutcomeUnknown: it may have been done; nobody repeats it before somebody has found
	// out. On a handler's own status: so it ended.
	ReasonOutcomeUnknown Reason = "OUTCOME_UNKNOWN"
	// ReasonNotExecuted: it was certainly not done; repeat it.
	ReasonNotExecuted Reason = "NOT_EXECUTED"
	// ReasonAnswerNotKept: it is done, and its answer can't be given again.
	ReasonAnswerNotKept Reason = "ANSWER_NOT_KEPT"
	// ReasonNotRecorded: a refusal that the daemon could not be told.
	ReasonNotRecorded Reason = "NOT_RECORDED"
	// ReasonNotStarted: there was no time for it, or the caller has gone.
	ReasonNotStarted Reason = "NOT_STARTED"
	// ReasonGuardUnavailable: the daemon can't be reached; the handler did not run.
	ReasonGuardUnavailable Reason = "GUARD_UNAVAILABLE"
	// ReasonGuardRefused: the daemon refused what the server asked of it: its configuration is
	// wrong, and the call was not executed.
	ReasonGuardRefused Reason = "GUARD_REFUSED"
	// ReasonStreamNotGuarded: a streaming method has a guard.
	ReasonStreamNotGuarded Reason = "STREAM_NOT_GUARDED"
)

// KeepKey says, on the client's side, whether a repetition of a call that ended with err
// must carry the same key. It is true in all doubt, and where nothing is said.
func KeepKey(err error) bool {
	if err == nil {
		return false
	}
	info := infoIn(status.Convert(err))
	return info == nil || info.GetMetadata()[keepKey] != "false"
}

// ReasonOf reads what a guard said; empty: the error is not a guard's.
func ReasonOf(err error) Reason { return reasonIn(status.Convert(err)) }

func reasonIn(s *status.Status) Reason { return Reason(infoIn(s).GetReason()) }

func infoIn(s *status.Status) *errdetails.ErrorInfo {
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == Domain {
			return info
		}
	}
	return nil
}

// refusal is an answer of the guard's own; retry 0 = not said.
func refusal(code codes.Code, reason Reason, keep bool, retry time.Duration, text string) *status.Status {
	return hinted(status.New(code, text), reason, keep, retry)
}

// hinted adds a reason and whether to keep the key to a status.
func hinted(s *status.Status, reason Reason, keep bool, retry time.Duration) *status.Status {
	return detailed(s, &errdetails.ErrorInfo{
		Domain: Domain, Reason: string(reason), Metadata: map[string]string{keepKey: strconv.FormatBool(keep)},
	}, retry)
}

func detailed(s *status.Status, info *errdetails.ErrorInfo, retry time.Duration) *status.Status {
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(info)}
	if retry > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}))
	}
	full, err := s.WithDetails(details...)
	if err != nil { // a code that no status can have, or details over every bound
		return s
	}
	return full
}

// refusalOf is the answer where Do ended without the handler and without a replay.
func refusalOf(err error) *status.Status {
	switch e := err.(type) { //nolint:errorlint // Do's own error: what it wraps may be another Do's
	case *idem.InProgressError:
		return refusal(codes.Aborted, ReasonInProgress, true, e.RetryAfter, "the call is under way elsewhere: repeat it later, with the same key")
	case *idem.UnresolvedError:
		return refusal(codes.FailedPrecondition, ReasonOutcomeUnknown, true, e.RetryAfter,
			"an earlier call may have been executed: nobody repeats it before somebody has found out; keep the key")
	case *idem.NotExecutedError:
		return notStarted(e)
	case *idem.Error:
		return refusalBy(e)
	}
	return refusal(codes.Internal, ReasonGuardRefused, true, 0, "the guard failed")
}

// notStarted: it was granted and given back.
func notStarted(err error) *status.Status {
	const text = "the call was not started: repeat it with the same key"
	if code := endedCode(err); code != codes.OK {
		return refusal(code, ReasonNotStarted, true, 0, text)
	}
	return refusal(codes.Unavailable, ReasonNotStarted, true, retryUnreachable, text)
}

// endedCode is that of the context which ended a call; OK where none did.
func endedCode(err error) codes.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.OK
}

// refusalBy is the answer to what the daemon refused, or did not answer.
func refusalBy(refused *idem.Error) *status.Status {
	switch refused.Reason {
	case idem.FingerprintMismatch:
		return refusal(codes.FailedPrecondition, ReasonFingerprintMismatch, false, 0,
			"the key was first used for another request: a new request, also a corrected one, needs a new key")
	case idem.KeyMayHaveExpired:
		return refusal(codes.FailedPrecondition, ReasonKeyMayHaveExpired, true, 0,
			"the key is so old that its record may have been forgotten: find out whether it was done")
	case idem.KeyInvalid, idem.TimeInvalid:
		return refusal(codes.InvalidArgument, ReasonKeyInvalid, false, 0, "it can't be a key: "+refused.Message)
	}
	if code := endedCode(refused); code != codes.OK {
		return refusal(code, ReasonNotStarted, true, 0, "the call was not started: repeat it with the same key")
	}
	if permanent(refused.Code) {
		return refusal(codes.Internal, ReasonGuardRefused, true, 0, "the guard is not set up for this call: "+said(refused))
	}
	return refusal(codes.Unavailable, ReasonGuardUnavailable, true, max(refused.RetryAfter, retryUnreachable),
		"the guard can't be reached; the call was not executed: repeat it with the same key")
}

// permanent: repeating brings the same answer.
func permanent(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented,
		codes.DataLoss, codes.NotFound, codes.OutOfRange, codes.AlreadyExists:
		return true
	}
	return false
}

// said names a refusal without its text, which was meant for the server.
func said(refused *idem.Error) string {
	if refused.Reason != "" {
		return string(refused.Reason)
	}
	return refused.Code.String()
}

// notKept is the answer where it is done and the response can't be given again.
func notKept(r *idem.Result) *status.Status {
	info := &errdetails.ErrorInfo{Domain: Domain, Reason: string(ReasonAnswerNotKept), Metadata: map[string]string{keepKey: "false"}}
	for name, value := range map[string]string{"decision_id": r.GetDecisionId(), "body_ref": r.GetBodyRef()} {
		if value != "" {
			info.Metadata[name] = value
		}
	}
	return detailed(status.New(codes.FailedPrecondition, "the call is done; its answer was not kept"), info, 0)
}
