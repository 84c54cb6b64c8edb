package idem

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestAReserveThatGotNoAnswerIsWithdrawn(t *testing.T) {
	notFound, stale := refusal(codes.NotFound, ReservationNotFound), refusal(codes.FailedPrecondition, StaleToken)
	extended := &idemdv1.ExtendResponse{}
	for name, c := range map[string]struct {
		reserve, extend, fail []any
		fails                 bool // the key is given back with Fail
		took                  time.Duration
		hook                  string
	}{
		"it was granted":                     {extend: []any{extended}, fails: true, hook: "Withdrawn nil"},
		"it was still on its way":            {extend: []any{notFound, notFound, extended}, fails: true, took: time.Second, hook: "Withdrawn nil"},
		"another owner was before it":        {extend: []any{stale, extended}, fails: true, hook: "Withdrawn nil"},
		"it never came":                      {extend: []any{notFound}, took: 4 * time.Second, hook: "Withdrawn nil"},
		"another owner is on it":             {extend: []any{stale}, took: 4 * time.Second, hook: "Withdrawn nil"},
		"it has ended otherwise":             {extend: []any{refusal(codes.FailedPrecondition, AlreadyFinished)}, hook: "Withdrawn nil"},
		"the daemon comes back":              {extend: []any{away(), away(), extended}, fails: true, hook: "Withdrawn nil"},
		"the daemon comes back for the Fail": {extend: []any{extended}, fail: []any{away(), &idemdv1.FailResponse{}}, fails: true, hook: "Withdrawn nil"},
		"the daemon stays away":              {extend: []any{away()}, took: 2 * time.Minute, hook: "Withdrawn"},
		"it is refused":                      {extend: []any{refusal(codes.DataLoss, RecordUnreadable)}, hook: "Withdrawn"},
		"after a time in progress":           {reserve: []any{inProgress(time.Second), silence}, extend: []any{extended}, fails: true, hook: "Withdrawn nil"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			if c.reserve == nil {
				c.reserve = []any{silence}
			}
			s := script{"Reserve": c.reserve, "Extend": c.extend, "Fail": c.fail}
			bubble(t, s, Options{Hooks: seen.hooks()}, func(t *testing.T, client *Client, f *fake) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := client.Do(ctx, operation(), forbidden(t))
				if !errors.Is(err, context.DeadlineExceeded) || !KeepKey(err) {
					t.Errorf("answered %v", err)
				}
				began := time.Now()
				if err := client.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.took || took > c.took+3*time.Second {
					t.Errorf("the withdrawal took %v, want about %v", took, c.took)
				}
				told := requests[*idemdv1.FailRequest](f)
				if c.fails != (len(told) > 0) {
					t.Errorf("sent %s", f.sent())
				}
				for _, r := range told {
					if r.GetKind() != idemdv1.FailureKind_FAILURE_KIND_RETRYABLE ||
						string(r.GetOwnerToken()) != string(requests[*idemdv1.ReserveRequest](f)[0].GetOwnerToken()) {
						t.Errorf("told %v", r)
					}
				}
				if got := seen.list(); !slices.Equal(got, []string{c.hook}) {
					t.Errorf("hooks %v, want %s", got, c.hook)
				}
			})
		})
	}
}

func TestAWithdrawalThatAProxyRefusesIsTriedAgain(t *testing.T) {
	var seen events
	refused := status.Error(codes.Unauthenticated, "a proxy's word")
	s := script{"Reserve": {silence}, "Extend": {refused, refused, refused, refused, &idemdv1.ExtendResponse{}}}
	bubble(t, s, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = c.Do(ctx, operation(), forbidden(t))
		if err := c.Close(context.Background()); err != nil || len(requests[*idemdv1.FailRequest](f)) != 1 {
			t.Errorf("sent %s, %v", f.sent(), err)
		}
	})
	if got := seen.list(); !slices.Equal(got, []string{"Withdrawn nil"}) {
		t.Errorf("hooks %v", got)
	}
}

func TestWhatTheDaemonHasDecidedIsNotWithdrawn(t *testing.T) {
	for _, answer := range []any{
		inProgress(time.Second), replayOf(idemdv1.State_STATE_SUCCEEDED, ""), unresolvedFor(0), ownedFor(30 * time.Second),
		refusal(codes.FailedPrecondition, FingerprintMismatch), refusal(codes.InvalidArgument, KeyInvalid),
		status.Error(codes.PermissionDenied, "a proxy's word"), status.Error(codes.Unauthenticated, "a proxy's word"),
	} {
		bubble(t, script{"Reserve": {answer}}, Options{}, func(t *testing.T, c *Client, f *fake) {
			op := operation()
			op.Wait = -1
			_, _ = c.Do(t.Context(), op, returns(nil, nil))
			if err := c.Close(context.Background()); err != nil || len(requests[*idemdv1.ExtendRequest](f))+len(requests[*idemdv1.FailRequest](f)) > 0 {
				t.Errorf("after %v: sent %s", answer, f.sent())
			}
		})
	}
}

func TestAnAnswerEndsTheDoubtOfEarlierTries(t *testing.T) {
	for _, answer := range []any{ownedFor(30 * time.Second), replayOf(idemdv1.State_STATE_SUCCEEDED, "")} {
		bubble(t, script{"Reserve": {away(), answer}}, Options{}, func(t *testing.T, c *Client, f *fake) {
			if _, err := c.Do(t.Context(), operation(), returns(nil, nil)); err != nil {
				t.Error(err)
			}
			if err := c.Close(context.Background()); err != nil || len(requests[*idemdv1.ExtendRequest](f)) > 0 {
				t.Errorf("sent %s; %v", f.sent(), err)
			}
		})
	}
}

func TestAnAnswerWithoutAReasonIsWithdrawn(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.Canceled} {
		var seen events
		bubble(t, script{"Reserve": {status.Error(code, "a proxy's word")}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
			if _, err := c.Do(t.Context(), operation(), forbidden(t)); status.Code(err) != code {
				t.Errorf("answered %v", err)
			}
			if n := len(requests[*idemdv1.ReserveRequest](f)); n != brokenTries {
				t.Errorf("%v: tried %d times", code, n)
			}
			if err := c.Close(context.Background()); err != nil || len(seen.list()) != 1 {
				t.Errorf("after %v: hooks %v, %v", code, seen.list(), err)
			}
		})
	}
}
