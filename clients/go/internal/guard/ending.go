package guard

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/idemd/idemd/clients/go/idem"
)

// RetryPause is when to come back where the daemon does not say.
const RetryPause = time.Second

// Recorded reads how an attempt of Do's own ended: why its key goes on (empty: it is
// over), until when the answer is replayed, and why it could not be recorded.
func Recorded(answer *idem.Answer, err error) (reason Reason, expires time.Time, unrecorded error) {
	switch e := err.(type) { //nolint:errorlint // Do's own error: what it wraps may be another Do's
	case nil:
		return "", answer.ExpiresAt, answer.Unrecorded
	case *idem.NotExecutedError:
		return NotExecuted, time.Time{}, e.Unrecorded
	case *idem.FinalError:
		if e.Unrecorded != nil {
			return NotRecorded, time.Time{}, e.Unrecorded
		}
		return "", e.ExpiresAt, nil
	case *idem.UnresolvedError:
		return OutcomeUnknown, time.Time{}, e.Unrecorded
	}
	return OutcomeUnknown, time.Time{}, err
}

// Refusal is what the caller is told where Do ended without the handler and without a
// replay.
type Refusal struct {
	Reason Reason
	// Detail is what the reason does not say; never a text that was meant for the server.
	Detail string
	// Retry is when to come back; 0 = not said.
	Retry time.Duration
}

// RefusalOf reads the error of such a Do.
func RefusalOf(err error) Refusal {
	switch e := err.(type) { //nolint:errorlint // Do's own error: what it wraps may be another Do's
	case *idem.InProgressError:
		return Refusal{Reason: InProgress, Retry: orPause(e.RetryAfter)}
	case *idem.UnresolvedError:
		return Refusal{Reason: OutcomeUnknown, Retry: e.RetryAfter}
	case *idem.NotExecutedError: // it was granted and given back
		return Refusal{Reason: NotStarted, Retry: RetryPause}
	case *idem.Error:
		return refusedBy(e)
	}
	return Refusal{Reason: Misconfigured, Detail: "the guard failed"}
}

// refusedBy is what the daemon refused, or did not answer.
func refusedBy(e *idem.Error) Refusal {
	switch e.Reason {
	case idem.FingerprintMismatch:
		return Refusal{Reason: FingerprintMismatch}
	case idem.KeyMayHaveExpired:
		return Refusal{Reason: KeyMayHaveExpired}
	case idem.KeyInvalid:
		return Refusal{Reason: KeyInvalid, Detail: e.Message}
	}
	switch {
	case ended(e):
		return Refusal{Reason: NotStarted, Retry: RetryPause}
	case permanent(e.Code):
		return Refusal{Reason: Misconfigured, Detail: said(e)}
	}
	return Refusal{Reason: Unavailable, Retry: max(e.RetryAfter, RetryPause)}
}

func orPause(d time.Duration) time.Duration {
	if d <= 0 {
		return RetryPause
	}
	return d
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
func said(e *idem.Error) string {
	if e.Reason != "" {
		return string(e.Reason)
	}
	return e.Code.String()
}

// ended: by its context.
func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Unreachable is true where Do ended because the daemon gave no decision, and the caller is still there.
func Unreachable(ctx context.Context, err error) bool {
	refused, is := err.(*idem.Error) //nolint:errorlint // not one within another
	if !is || ctx.Err() != nil || ended(err) {
		return false
	}
	switch refused.Code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Canceled, codes.Internal, codes.Unknown: // what a proxy or a broken stream says
		return refused.Reason == ""
	}
	return false
}
