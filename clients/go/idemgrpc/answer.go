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
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Domain is the ErrorInfo domain of the guard's answers.
const Domain = "idem"

// keepKey is the entry of an ErrorInfo's metadata that says, "true" or "false", whether a
// repetition must carry the same key.
const keepKey = "keep_key"

// Reason is why a call was answered by its guard, or what its guard adds to the answer.
// It is that of an ErrorInfo in [Domain].
type Reason = guard.Reason

// The reasons; docs/guards.md has their codes.
const (
	// ReasonKeyRequired: there is no key.
	ReasonKeyRequired Reason = guard.KeyRequired
	// ReasonKeyInvalid: it can't be a key, or there are two.
	ReasonKeyInvalid Reason = guard.KeyInvalid
	// ReasonRequestTooLarge: it is larger than what a fingerprint is made of.
	ReasonRequestTooLarge Reason = guard.RequestTooLarge
	// ReasonRequestRefused: no fingerprint can be made of the request.
	ReasonRequestRefused Reason = guard.RequestRefused
	// ReasonInProgress: another call is on it.
	ReasonInProgress Reason = guard.InProgress
	// ReasonFingerprintMismatch: the key was first used for something else.
	ReasonFingerprintMismatch Reason = guard.FingerprintMismatch
	// ReasonKeyMayHaveExpired: the record may have been forgotten.
	ReasonKeyMayHaveExpired Reason = guard.KeyMayHaveExpired
	// ReasonOutcomeUnknown: it may have been done; nobody repeats it before somebody has found
	// out. On a handler's own status: so it ended.
	ReasonOutcomeUnknown Reason = guard.OutcomeUnknown
	// ReasonNotExecuted: it was certainly not done; repeat it.
	ReasonNotExecuted Reason = guard.NotExecuted
	// ReasonAnswerNotKept: it is done, and its answer can't be given again.
	ReasonAnswerNotKept Reason = guard.AnswerNotKept
	// ReasonNotRecorded: a refusal that the daemon could not be told.
	ReasonNotRecorded Reason = guard.NotRecorded
	// ReasonNotStarted: there was no time for it, or the caller has gone.
	ReasonNotStarted Reason = guard.NotStarted
	// ReasonGuardUnavailable: the daemon can't be reached; the handler did not run.
	ReasonGuardUnavailable Reason = guard.Unavailable
	// ReasonGuardRefused: the daemon refused what the server asked of it: its configuration is
	// wrong, and the call was not executed.
	ReasonGuardRefused Reason = guard.Misconfigured
)

// KeepKey says, on the client's side, whether a repetition of a call that ended with err
// must carry the same key. It is true in all doubt, and where nothing is said. Of a
// refusal of the handler's that is recorded, and so the last word, it is false where
// [UnaryClientInterceptor] has seen the call.
func KeepKey(err error) bool {
	if err == nil || errors.As(err, new(*recordedError)) {
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

// refusal is an answer of the guard's own; the detail is what its reason does not say,
// retry 0 = not said.
func refusal(reason Reason, retry time.Duration, detail string) *status.Status {
	code, text := said(reason)
	if detail != "" {
		text += ": " + detail
	}
	return hinted(status.New(code, text), reason, retry)
}

// said is how a reason is put: not in NotExecuted and NotRecorded, which are added to
// answers of handlers only.
func said(reason Reason) (codes.Code, string) {
	switch reason {
	case ReasonKeyRequired:
		return codes.InvalidArgument, "the call needs a key, the same on every retry"
	case ReasonKeyInvalid:
		return codes.InvalidArgument, "it can't be a key"
	case ReasonRequestTooLarge:
		return codes.ResourceExhausted, "the request is too large"
	case ReasonRequestRefused:
		return codes.InvalidArgument, "no fingerprint can be made of the request"
	case ReasonInProgress:
		return codes.Aborted, "the call is under way elsewhere: repeat it later, with the same key"
	case ReasonFingerprintMismatch:
		return codes.FailedPrecondition, "the key was first used for another request: a new request, also a corrected one, needs a new key"
	case ReasonKeyMayHaveExpired:
		return codes.FailedPrecondition, "the key is so old that its record may have been forgotten: find out whether it was done"
	case ReasonOutcomeUnknown:
		return codes.FailedPrecondition, "an earlier call may have been executed: nobody repeats it before somebody has found out; keep the key"
	case ReasonAnswerNotKept:
		return codes.FailedPrecondition, "the call is done; its answer was not kept"
	case ReasonNotStarted:
		return codes.Unavailable, "the call was not started: repeat it with the same key"
	case ReasonGuardUnavailable:
		return codes.Unavailable, "the guard can't be reached; the call was not executed: repeat it with the same key"
	}
	return codes.Internal, "the guard is not set up for this call"
}

// refusalOf is the answer where Do ended without the handler and without a replay.
func refusalOf(err error) *status.Status {
	r := guard.RefusalOf(err)
	if r.Reason != ReasonNotStarted {
		return refusal(r.Reason, r.Retry, r.Detail)
	}
	code, text := said(r.Reason)
	switch { // the context which ended the call says it better
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return hinted(status.New(code, text), r.Reason, r.Retry)
}

// hinted adds a reason and whether to keep the key to a status.
func hinted(s *status.Status, reason Reason, retry time.Duration) *status.Status {
	return detailed(s, infoOf(reason), retry)
}

func infoOf(reason Reason) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{
		Domain: Domain, Reason: string(reason), Metadata: map[string]string{keepKey: strconv.FormatBool(guard.KeepKey(reason))},
	}
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

// notKept is the answer where it is done and the response can't be given again.
func notKept(r *idem.Result) *status.Status {
	info := infoOf(ReasonAnswerNotKept)
	for name, value := range map[string]string{"decision_id": r.GetDecisionId(), "body_ref": r.GetBodyRef()} {
		if value != "" {
			info.Metadata[name] = value
		}
	}
	return detailed(status.New(said(ReasonAnswerNotKept)), info, 0)
}
