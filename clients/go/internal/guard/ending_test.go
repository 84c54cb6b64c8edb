package guard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/idemd/idemd/clients/go/idem"
)

func TestACallerIsToldByTheKindOfItsRefusal(t *testing.T) {
	const later = 7 * time.Second
	for _, c := range []struct {
		err  error
		want Refusal
	}{
		{&idem.InProgressError{RetryAfter: 10 * time.Millisecond}, Refusal{InProgress, "", 10 * time.Millisecond}},
		{&idem.InProgressError{}, Refusal{InProgress, "", RetryPause}},
		{&idem.UnresolvedError{RetryAfter: later}, Refusal{OutcomeUnknown, "", later}},
		{&idem.UnresolvedError{}, Refusal{OutcomeUnknown, "", 0}},
		{&idem.NotExecutedError{}, Refusal{NotStarted, "", RetryPause}},
		{&idem.Error{Code: codes.FailedPrecondition, Reason: idem.FingerprintMismatch, Message: "secret"}, Refusal{FingerprintMismatch, "", 0}},
		{&idem.Error{Code: codes.FailedPrecondition, Reason: idem.KeyMayHaveExpired, Message: "secret"}, Refusal{KeyMayHaveExpired, "", 0}},
		{&idem.Error{Code: codes.InvalidArgument, Reason: idem.KeyInvalid, Message: "1 to 255 bytes"}, Refusal{KeyInvalid, "1 to 255 bytes", 0}},
		// It is this server's clock, as a rule: no reason to drop a key that may have been used.
		{&idem.Error{Code: codes.InvalidArgument, Reason: idem.TimeInvalid, Message: "ahead"}, Refusal{Misconfigured, "TIME_INVALID", 0}},
		{&idem.Error{Code: codes.PermissionDenied, Reason: "TENANT_FORBIDDEN", Message: "secret"}, Refusal{Misconfigured, "TENANT_FORBIDDEN", 0}},
		{&idem.Error{Code: codes.Unimplemented, Message: "secret"}, Refusal{Misconfigured, "Unimplemented", 0}},
		{&idem.Error{Code: codes.DataLoss, Reason: idem.RecordUnreadable, Message: "secret"}, Refusal{Misconfigured, "RECORD_UNREADABLE", 0}},
		{&idem.Error{Code: codes.Unavailable, RetryAfter: later, Message: "secret"}, Refusal{Unavailable, "", later}},
		{&idem.Error{Code: codes.ResourceExhausted, Message: "secret"}, Refusal{Unavailable, "", RetryPause}},
		{errors.New("secret"), Refusal{Misconfigured, "the guard failed", 0}},
		{fmt.Errorf("wrapped: %w", &idem.InProgressError{}), Refusal{Misconfigured, "the guard failed", 0}}, // no Do's own
	} {
		if got := RefusalOf(c.err); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
}

func TestAnAttemptsOwnEndingSaysWhetherItsKeyIsOver(t *testing.T) {
	until, silence := time.Unix(1, 0), errors.New("silence")
	refused := &idem.FinalError{Answer: idem.Answer{ExpiresAt: until}}
	lost := &idem.FinalError{Answer: idem.Answer{ExpiresAt: until, Unrecorded: silence}}
	for _, c := range []struct {
		answer     *idem.Answer
		err        error
		reason     Reason
		expires    time.Time
		unrecorded error
	}{
		{&idem.Answer{ExpiresAt: until}, nil, "", until, nil},
		{&idem.Answer{Unrecorded: silence}, nil, "", time.Time{}, silence},
		{nil, refused, "", until, nil},
		{nil, lost, NotRecorded, time.Time{}, silence},
		{nil, &idem.NotExecutedError{Unrecorded: silence}, NotExecuted, time.Time{}, silence},
		{nil, &idem.UnresolvedError{}, OutcomeUnknown, time.Time{}, nil},
		{nil, silence, OutcomeUnknown, time.Time{}, silence},
	} {
		reason, expires, unrecorded := Recorded(c.answer, c.err)
		if reason != c.reason || !expires.Equal(c.expires) || !errors.Is(unrecorded, c.unrecorded) || (unrecorded == nil) != (c.unrecorded == nil) {
			t.Errorf("%+v, %v: %s, %v, %v", c.answer, c.err, reason, expires, unrecorded)
		}
	}
}

func TestOnlyADaemonThatGaveNoDecisionIsUnreachable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&idem.Error{Code: codes.Unavailable}, true},
		{&idem.Error{Code: codes.Unavailable, Reason: idem.StoreUnavailable}, true},
		{&idem.Error{Code: codes.DeadlineExceeded}, true},
		{&idem.Error{Code: codes.Unknown}, true},
		{&idem.Error{Code: codes.Internal}, true},
		{&idem.Error{Code: codes.Internal, Reason: "ANY"}, false},
		{&idem.Error{Code: codes.ResourceExhausted}, false},
		{&idem.Error{Code: codes.PermissionDenied}, false},
		{&idem.UnresolvedError{Err: &idem.Error{Code: codes.Unavailable}}, false},
		{context.DeadlineExceeded, false},
	} {
		if got := Unreachable(t.Context(), c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if Unreachable(gone, &idem.Error{Code: codes.Unavailable}) {
		t.Error("the caller has gone")
	}
}
