package idem

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// reconciled is an operation whose Reconcile gives the verdicts in order, and notes when
// it was asked.
func reconciled(asked *[]time.Time, verdicts ...Verdict) Operation {
	op := operation()
	op.Reconcile = func(_ context.Context, u *Unresolved) (Verdict, error) {
		*asked = append(*asked, time.Now())
		if u.Key != op.Key || u.Attempt != 1 || u.Owner != "another" || u.Version != 5 {
			return Verdict{}, errors.New("asked about something else")
		}
		return verdicts[min(len(*asked), len(verdicts))-1], nil
	}
	return op
}

func TestWithoutReconcileWhatIsKnownIsSaid(t *testing.T) {
	bubble(t, script{"Reserve": {unresolvedFor(time.Hour)}}, Options{Tenant: "shop"}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		op.Tenant = ""
		_, err := c.Do(t.Context(), op, forbidden(t))
		var unknown *UnresolvedError
		if !errors.As(err, &unknown) || unknown.Tenant != "shop" || unknown.Key != op.Key || unknown.Attempt != 1 ||
			unknown.Owner != "another" || unknown.Version != 5 || !KeepKey(err) || f.sent() != "Reserve" {
			t.Errorf("answered %#v after %s", err, f.sent())
		}
	})
}

func TestAVerdictIsRecordedAndItsResultReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		verdict Verdict
		want    idemdv1.Verdict
		state   idemdv1.State
	}{
		"executed": {WasExecuted(body("receipt")), idemdv1.Verdict_VERDICT_SUCCEEDED, idemdv1.State_STATE_SUCCEEDED},
		"refused":  {WasRefused(body("receipt")), idemdv1.Verdict_VERDICT_FAILED_FINAL, idemdv1.State_STATE_FAILED_FINAL},
	} {
		s := script{"Reserve": {unresolvedFor(0), replayOf(c.state, "receipt")}}
		bubble(t, s, Options{}, func(t *testing.T, client *Client, f *fake) {
			var asked []time.Time
			c.verdict.Evidence = "statement 17"
			began := time.Now()
			answer, err := client.Do(t.Context(), reconciled(&asked, c.verdict), forbidden(t))
			var refused *FinalError
			if errors.As(err, &refused) {
				answer = &refused.Answer
			}
			if (refused != nil) != (name == "refused") || !answer.Replayed || string(answer.Result.GetBody()) != "receipt" {
				t.Errorf("%s: answered %+v, %v", name, answer, err)
			}
			told := requests[*idemdv1.ResolveRequest](f)[0]
			if told.GetVerdict() != c.want || told.GetExpectedVersion() != 5 || string(told.GetResult().GetBody()) != "receipt" ||
				told.GetReason() == "" || told.GetEvidence() != "statement 17" || told.GetBreakLease() {
				t.Errorf("%s: told %v", name, told)
			}
			if time.Since(began) > 0 {
				t.Errorf("%s: what was done needs no settle time", name)
			}
		})
	}
}

func TestNotExecutedCountsOnlyAfterTheSettleTime(t *testing.T) {
	granted := decided(&idemdv1.Owned{Attempt: 2, LeaseRemaining: ownedFor(30 * time.Second).GetOwned().GetLeaseRemaining()})
	for name, c := range map[string]struct {
		elapsed, settle, lease time.Duration
		asked                  []time.Duration // after the beginning
	}{
		"at once":             {0, 0, 0, []time.Duration{0, DefaultSettle}},
		"half way":            {20 * time.Second, 0, 0, []time.Duration{0, 10 * time.Second}},
		"settled":             {30 * time.Second, 0, 0, []time.Duration{0}},
		"of the lease":        {0, 0, 12 * time.Second, []time.Duration{0, 12 * time.Second}},
		"of the operation":    {0, 5 * time.Second, 12 * time.Second, []time.Duration{0, 5 * time.Second}},
		"a microsecond early": {5*time.Second - time.Microsecond, 5 * time.Second, 0, []time.Duration{0, time.Microsecond}},
	} {
		t.Run(name, func(t *testing.T) {
			s := script{"Reserve": {unresolvedFor(c.elapsed)}}
			for range c.asked[1:] {
				s["Reserve"] = append(s["Reserve"], unresolvedFor(time.Hour))
			}
			s["Reserve"] = append(s["Reserve"], granted)
			bubble(t, s, Options{}, func(t *testing.T, client *Client, f *fake) {
				var asked []time.Time
				op := reconciled(&asked, WasNotExecuted())
				op.Settle, op.Lease = c.settle, c.lease
				began := time.Now()
				answer, err := client.Do(t.Context(), op, returns(body("done"), nil))
				if err != nil || answer.Attempt != 2 || answer.Replayed {
					t.Errorf("answered %+v, %v", answer, err)
				}
				if len(asked) != len(c.asked) {
					t.Fatalf("asked at %v after %v", asked, began)
				}
				for i, at := range c.asked {
					if asked[i].Sub(began) != at {
						t.Errorf("asked after %v, want %v", asked[i].Sub(began), at)
					}
				}
				told := requests[*idemdv1.ResolveRequest](f)
				if len(told) != 1 || told[0].GetVerdict() != idemdv1.Verdict_VERDICT_NOT_EXECUTED || told[0].GetResult() != nil {
					t.Errorf("told %v", told)
				}
			})
		})
	}
}

// An answer from before the settle time proves nothing: the paused owner has acted since.
func TestAPausedOwnerThatActsWithinTheSettleTimeIsSeen(t *testing.T) {
	bubble(t, script{"Reserve": {unresolvedFor(0), unresolvedFor(time.Hour), replayOf(idemdv1.State_STATE_SUCCEEDED, "")}}, Options{},
		func(t *testing.T, c *Client, f *fake) {
			var asked []time.Time
			if _, err := c.Do(t.Context(), reconciled(&asked, WasNotExecuted(), WasExecuted(nil)), forbidden(t)); err != nil {
				t.Error(err)
			}
			if told := requests[*idemdv1.ResolveRequest](f); len(told) != 1 || told[0].GetVerdict() != idemdv1.Verdict_VERDICT_SUCCEEDED {
				t.Errorf("told %v", told)
			}
		})
	bubble(t, script{"Reserve": {unresolvedFor(0), replayOf(idemdv1.State_STATE_SUCCEEDED, "late")}}, Options{},
		func(t *testing.T, c *Client, f *fake) {
			var asked []time.Time
			answer, err := c.Do(t.Context(), reconciled(&asked, WasNotExecuted()), forbidden(t))
			if err != nil || string(answer.Result.GetBody()) != "late" || len(requests[*idemdv1.ResolveRequest](f)) > 0 {
				t.Errorf("answered %+v, %v after %s", answer, err, f.sent())
			}
		})
}

func TestASettleTimeBeyondTheWaitIsToldWithAHint(t *testing.T) {
	for name, wait := range map[string]time.Duration{"no wait": -1, "a short one": 5 * time.Second} {
		bubble(t, script{"Reserve": {unresolvedFor(10 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
			var asked []time.Time
			op := reconciled(&asked, WasNotExecuted())
			op.Wait = wait
			began := time.Now()
			_, err := c.Do(t.Context(), op, forbidden(t))
			var unknown *UnresolvedError
			if !errors.As(err, &unknown) || unknown.RetryAfter != 20*time.Second || time.Since(began) > 0 || f.sent() != "Reserve" {
				t.Errorf("%s: answered %#v after %v, sent %s", name, err, time.Since(began), f.sent())
			}
		})
	}
	bubble(t, script{"Reserve": {unresolvedFor(10 * time.Second)}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var asked []time.Time
		_, err := c.Do(ctx, reconciled(&asked, WasNotExecuted()), forbidden(t))
		var unknown *UnresolvedError
		if !errors.As(err, &unknown) || unknown.RetryAfter != 15*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answered %#v", err)
		}
	})
}

func TestADaemonThatDoesNotSayHowLongIsWaitedForInFull(t *testing.T) {
	silent := decided(&idemdv1.Unresolved{Attempt: 1, Owner: "another", Version: 5})
	bubble(t, script{"Reserve": {silent, unresolvedFor(time.Hour), ownedFor(30 * time.Second)}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		var asked []time.Time
		if _, err := c.Do(t.Context(), reconciled(&asked, WasNotExecuted()), returns(nil, nil)); err != nil {
			t.Error(err)
		}
		if len(asked) != 2 || asked[1].Sub(asked[0]) != DefaultSettle {
			t.Errorf("asked at %v", asked)
		}
	})
}

func TestWhatChangedMeanwhileIsLookedAtAnew(t *testing.T) {
	for reason, code := range map[Reason]codes.Code{
		VersionConflict: codes.Aborted, NotUnresolved: codes.FailedPrecondition, ReservationNotFound: codes.NotFound,
	} {
		s := script{"Reserve": {unresolvedFor(0), replayOf(idemdv1.State_STATE_SUCCEEDED, "owner's")}, "Resolve": {refusal(code, reason)}}
		bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
			var asked []time.Time
			answer, err := c.Do(t.Context(), reconciled(&asked, WasExecuted(body("mine"))), forbidden(t))
			if err != nil || string(answer.Result.GetBody()) != "owner's" {
				t.Errorf("%s: answered %+v, %v", reason, answer, err)
			}
		})
	}
	s := script{"Reserve": {unresolvedFor(0)}, "Resolve": {refusal(codes.Aborted, VersionConflict)}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
		var asked []time.Time
		if _, err := c.Do(t.Context(), reconciled(&asked, WasExecuted(nil)), forbidden(t)); err == nil || len(asked) != maxRounds {
			t.Errorf("a record that never stands still is looked at %d times: %v", len(asked), err)
		}
	})
}

func TestAVerdictThatCantBeHadOrRecordedLeavesItUnresolved(t *testing.T) {
	for name, c := range map[string]struct {
		reconcile func(context.Context, *Unresolved) (Verdict, error)
		resolve   error
		is        error
	}{
		"the bank is away":   {func(context.Context, *Unresolved) (Verdict, error) { return Verdict{}, errBank }, nil, errBank},
		"it can't say":       {func(context.Context, *Unresolved) (Verdict, error) { return Verdict{}, nil }, nil, nil},
		"attempts used up":   {func(context.Context, *Unresolved) (Verdict, error) { return WasNotExecuted(), nil }, refusal(codes.FailedPrecondition, AttemptsExhausted), AttemptsExhausted},
		"the daemon is away": {func(context.Context, *Unresolved) (Verdict, error) { return WasExecuted(nil), nil }, away(), nil},
	} {
		bubble(t, script{"Reserve": {unresolvedFor(time.Hour)}, "Resolve": {c.resolve}}, Options{}, func(t *testing.T, client *Client, _ *fake) {
			op := operation()
			op.Reconcile = c.reconcile
			_, err := client.Do(t.Context(), op, forbidden(t))
			var unknown *UnresolvedError
			if !errors.As(err, &unknown) || c.is != nil && !errors.Is(err, c.is) || !KeepKey(err) {
				t.Errorf("%s: answered %v", name, err)
			}
		})
	}
}

func TestAVerdictsResultThatIsTooLargeIsLeftOut(t *testing.T) {
	s := script{
		"Reserve": {unresolvedFor(0), replayOf(idemdv1.State_STATE_SUCCEEDED, "")},
		"Resolve": {tooLargeIn("result.body"), &idemdv1.ResolveResponse{}},
	}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
		var asked []time.Time
		if _, err := c.Do(t.Context(), reconciled(&asked, WasExecuted(body("long"))), forbidden(t)); err != nil {
			t.Error(err)
		}
		if told := requests[*idemdv1.ResolveRequest](f); len(told) != 2 || !told[1].GetResult().GetBodyOmitted() {
			t.Errorf("told %v", told)
		}
	})
}

func TestWhatWasInProgressBeforeIsNotToldLater(t *testing.T) {
	s := script{"Reserve": {inProgress(time.Second), unresolvedFor(time.Hour), silence}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var asked []time.Time
		_, err := c.Do(ctx, reconciled(&asked, WasExecuted(nil)), forbidden(t))
		var pending *InProgressError
		if errors.As(err, &pending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answered %v", err)
		}
	})
}
