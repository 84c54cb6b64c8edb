package idem

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestAnEffectIsReservedRunAndItsResultStored(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		var granted *Grant
		answer, err := c.Do(t.Context(), operation(), func(_ context.Context, g *Grant) (*Result, error) {
			granted = g
			return body("receipt"), nil
		})
		if err != nil || string(answer.Result.GetBody()) != "receipt" || answer.Replayed || answer.Fence != 7 || answer.Unrecorded != nil {
			t.Errorf("answered %+v, %v", answer, err)
		}
		if granted.Attempt != 1 || granted.Fence != 7 {
			t.Errorf("granted %+v", granted)
		}
		if f.sent() != "Reserve Complete" {
			t.Errorf("sent %s", f.sent())
		}
		if told := requests[*idemdv1.CompleteRequest](f)[0]; string(told.GetResult().GetBody()) != "receipt" || told.GetResult().GetStatus() != 201 {
			t.Errorf("told %v", told)
		}
	})
}

func TestAFinishedOperationIsReplayedAndNotRun(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for state, final := range map[idemdv1.State]bool{idemdv1.State_STATE_SUCCEEDED: false, idemdv1.State_STATE_FAILED_FINAL: true} {
		s := script{"Reserve": {decided(&idemdv1.Replay{
			State: state, Result: body("receipt"), Attempt: 3, PolicyVersion: "tariff-7",
			ReservedAt: timestamppb.New(at), FinishedAt: timestamppb.New(at.Add(time.Second)), ExpiresAt: timestamppb.New(at.Add(time.Hour)),
		})}}
		bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
			answer, err := c.Do(t.Context(), operation(), forbidden(t))
			var refused *FinalError
			if errors.As(err, &refused) != final {
				t.Fatalf("%v: answered %v", state, err)
			}
			if final {
				answer = &refused.Answer
			}
			if !answer.Replayed || string(answer.Result.GetBody()) != "receipt" || answer.Attempt != 3 || answer.PolicyVersion != "tariff-7" ||
				!answer.ReservedAt.Equal(at) || !answer.FinishedAt.Equal(at.Add(time.Second)) || !answer.ExpiresAt.Equal(at.Add(time.Hour)) {
				t.Errorf("%v: replayed %+v", state, answer)
			}
			if f.sent() != "Reserve" {
				t.Errorf("sent %s", f.sent())
			}
		})
	}
}

// A hedged or repeated handler is another Do: whatever came with its request, it has a
// token of its own, so that only one of them is granted.
func TestEveryDoHasATokenOfItsOwnAndRepetitionsKeepIt(t *testing.T) {
	s := script{"Reserve": {away(), away(), inProgress(time.Second), ownedFor(30 * time.Second)}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("owner-token", "same", "grpc-previous-rpc-attempts", "1"))
		for range 2 {
			if _, err := c.Do(ctx, operation(), returns(nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
		sent := requests[*idemdv1.ReserveRequest](f)
		for _, r := range sent[:4] {
			if !bytes.Equal(r.GetOwnerToken(), sent[0].GetOwnerToken()) || len(r.GetOwnerToken()) != 16 {
				t.Errorf("a repetition came with the token %x, the first with %x", r.GetOwnerToken(), sent[0].GetOwnerToken())
			}
		}
		if bytes.Equal(sent[4].GetOwnerToken(), sent[0].GetOwnerToken()) {
			t.Error("two Dos came with one token")
		}
	})
}

func TestASpentTokenIsReplacedByAFreshOne(t *testing.T) {
	spent := refusal(codes.FailedPrecondition, TokenSpent)
	bubble(t, script{"Reserve": {spent, ownedFor(30 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Do(t.Context(), operation(), returns(nil, nil)); err != nil {
			t.Fatal(err)
		}
		sent := requests[*idemdv1.ReserveRequest](f)
		told := requests[*idemdv1.CompleteRequest](f)[0]
		if bytes.Equal(sent[0].GetOwnerToken(), sent[1].GetOwnerToken()) || !bytes.Equal(told.GetOwnerToken(), sent[1].GetOwnerToken()) {
			t.Errorf("tokens %x, %x, completed with %x", sent[0].GetOwnerToken(), sent[1].GetOwnerToken(), told.GetOwnerToken())
		}
	})
	bubble(t, script{"Reserve": {spent}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		if _, err := c.Do(t.Context(), operation(), forbidden(t)); !errors.Is(err, TokenSpent) {
			t.Errorf("a daemon that calls every token spent is answered with %v", err)
		}
	})
}

func TestWhoComesSecondWaitsAndGetsTheAnswer(t *testing.T) {
	held := func(ctx context.Context, r proto.Message) (proto.Message, error) {
		sleep(ctx, r.(*idemdv1.ReserveRequest).GetWait().AsDuration())
		return inProgress(time.Second), nil
	}
	s := script{"Reserve": {inProgress(time.Second), held, after(20*time.Second, replayOf(idemdv1.State_STATE_SUCCEEDED, "receipt"))}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		op.Wait = 2 * time.Minute
		answer, err := c.Do(t.Context(), op, forbidden(t))
		if err != nil || string(answer.Result.GetBody()) != "receipt" {
			t.Errorf("answered %+v, %v", answer, err)
		}
		for i, r := range requests[*idemdv1.ReserveRequest](f) {
			if wait := r.GetWait().AsDuration(); i == 0 && wait != 0 || i > 0 && wait != 50*time.Second {
				t.Errorf("Reserve %d may be held for %v, want not at all first, and then the daemon's maximum", i, wait)
			}
		}
	})
}

// A connection that swallows everything must not be waited at for as long as an owner.
func TestASilentDaemonIsGivenUpWhenPatienceIsOver(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 4 * time.Second, 12 * time.Second} {
		bubble(t, script{"Reserve": {silence}}, Options{Patience: patience}, func(t *testing.T, c *Client, _ *fake) {
			op := operation()
			op.Wait = time.Minute
			began := time.Now()
			_, err := c.Do(t.Context(), op, forbidden(t))
			var refused *Error
			if took := time.Since(began); !errors.As(err, &refused) || refused.Code != codes.DeadlineExceeded || took < patience/2 || took > patience+time.Second {
				t.Errorf("with a patience of %v it is told %v after %v", patience, err, took)
			}
		})
	}
}

func TestAnOperationInsideItselfIsRefusedAtOnce(t *testing.T) {
	bubble(t, script{}, Options{Tenant: "acme"}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		_, err := c.Do(t.Context(), op, func(ctx context.Context, _ *Grant) (*Result, error) {
			inner := op
			inner.Namespace = "default"
			_, err := c.Do(ctx, inner, forbidden(t))
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != codes.FailedPrecondition {
				t.Errorf("it is told %v", err)
			}
			inner.Key += "-2"
			_, err = c.Do(ctx, inner, returns(nil, nil))
			return nil, err
		})
		if err != nil || len(requests[*idemdv1.ReserveRequest](f)) != 2 {
			t.Errorf("sent %s, %v", f.sent(), err)
		}
	})
}

func TestAfterTheLastAttemptAllowedItIsFinal(t *testing.T) {
	last := &idemdv1.FailResponse{Version: 2, State: idemdv1.State_STATE_FAILED_FINAL, ExpiresAt: timestamppb.New(time.Unix(1, 0))}
	bubble(t, script{"Fail": {last}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		why := errors.New("busy")
		_, err := c.Do(t.Context(), operation(), returns(nil, NotExecuted(why)))
		var final *FinalError
		if !errors.As(err, &final) || !errors.Is(err, why) || !final.ExpiresAt.Equal(time.Unix(1, 0)) || KeepKey(err) {
			t.Errorf("it is told %v, and to keep the key: %v", err, KeepKey(err))
		}
	})
}

func TestAWaitEndsWithItsTimeOrItsContext(t *testing.T) {
	s := script{"Reserve": {inProgress(800 * time.Millisecond)}} // a daemon that holds no call
	for name, c := range map[string]struct {
		wait, deadline time.Duration
		took           time.Duration
		calls          int
	}{
		"not at all":  {wait: -1, calls: 1},
		"five s":      {wait: 5 * time.Second, took: 5 * time.Second, calls: 7},
		"its context": {wait: time.Minute, deadline: 3 * time.Second, took: 3 * time.Second, calls: 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, s, Options{}, func(t *testing.T, client *Client, f *fake) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				op := operation()
				op.Wait = c.wait
				began := time.Now()
				_, err := client.Do(ctx, op, forbidden(t))
				took := time.Since(began)
				var pending *InProgressError
				if !errors.As(err, &pending) || pending.Owner != "another" || pending.RetryAfter != 800*time.Millisecond {
					t.Fatalf("answered %v", err)
				}
				if errors.Is(err, context.DeadlineExceeded) != (c.deadline > 0) {
					t.Errorf("the context's end is told as %v", pending.Err)
				}
				if took > c.took || took < c.took-DefaultMinRemaining-time.Second {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if n := len(requests[*idemdv1.ReserveRequest](f)); n < c.calls-1 || n > c.calls+1 {
					t.Errorf("asked %d times in %v", n, took)
				}
			})
		})
	}
}

func TestARetryThatIsScheduledBeyondTheWaitIsToldAtOnce(t *testing.T) {
	scheduled := decided(&idemdv1.InProgress{State: idemdv1.State_STATE_FAILED_RETRYABLE, RetryAfter: durationpb.New(time.Hour)})
	bubble(t, script{"Reserve": {scheduled}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		began := time.Now()
		_, err := c.Do(t.Context(), operation(), forbidden(t))
		var pending *InProgressError
		if !errors.As(err, &pending) || pending.RetryAfter != time.Hour || time.Since(began) > 0 {
			t.Errorf("answered %v after %v", err, time.Since(began))
		}
	})
}

func TestWhileTheDaemonIsAwayNothingRuns(t *testing.T) {
	hint := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	for name, outage := range map[string]any{
		"no connection": away(),
		"store away":    refusal(codes.Unavailable, StoreUnavailable, hint),
		"draining":      refusal(codes.Unavailable, Draining, hint),
		"overloaded":    refusal(codes.Unavailable, Overloaded, hint),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, script{"Reserve": {outage}}, Options{Patience: 20 * time.Second}, func(t *testing.T, c *Client, f *fake) {
				began := time.Now()
				_, err := c.Do(t.Context(), operation(), forbidden(t))
				var refused *Error
				if !errors.As(err, &refused) || refused.Code != codes.Unavailable || !KeepKey(err) {
					t.Errorf("answered %v", err)
				}
				if took := time.Since(began); took < 15*time.Second || took > 20*time.Second {
					t.Errorf("it was tried for %v", took)
				}
				if n := len(requests[*idemdv1.ReserveRequest](f)); n < 8 || n > 30 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

func TestADaemonThatComesBackIsUsed(t *testing.T) {
	bubble(t, script{"Reserve": {away(), silence, away(), ownedFor(30 * time.Second)}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		op := operation()
		op.Wait = -1
		if _, err := c.Do(t.Context(), op, returns(body("done"), nil)); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsReservedWhenTooLittleTimeIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		left, least time.Duration
		runs        bool
	}{
		"the default margin":   {left: 99 * time.Millisecond},
		"more than the margin": {left: 101 * time.Millisecond, runs: true},
		"a margin of its own":  {left: time.Second, least: 2 * time.Second},
		"no margin":            {left: time.Millisecond, least: -1, runs: true},
		"over":                 {left: -1, least: -1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, Options{}, func(t *testing.T, client *Client, f *fake) {
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				op := operation()
				op.MinRemaining = c.least
				_, err := client.Do(ctx, op, returns(nil, nil))
				if c.runs != (err == nil) || !c.runs && (!errors.Is(err, context.DeadlineExceeded) || !KeepKey(err)) {
					t.Errorf("answered %v", err)
				}
				if !c.runs && f.sent() != "" {
					t.Errorf("sent %s", f.sent())
				}
			})
		})
	}
}

func TestAGrantForACallerWhoIsGoneIsGivenBack(t *testing.T) {
	crossing := func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done() // the grant and the end of the caller cross
		return ownedFor(30 * time.Second), nil
	}
	for name, c := range map[string]struct {
		fail []any
		took time.Duration
		told int
	}{
		"at once":       {[]any{&idemdv1.FailResponse{}}, 0, 1},
		"in background": {[]any{silence, away(), &idemdv1.FailResponse{}}, time.Second, 3},
	} {
		var seen events
		bubble(t, script{"Reserve": {crossing}, "Fail": c.fail}, Options{Hooks: seen.hooks()}, func(t *testing.T, client *Client, f *fake) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now().Add(time.Second)
			_, err := client.Do(ctx, operation(), forbidden(t))
			var undone *NotExecutedError
			if !errors.As(err, &undone) || !errors.Is(err, context.DeadlineExceeded) || (undone.Unrecorded == nil) != (c.told == 1) {
				t.Errorf("%s: answered %v", name, err)
			}
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: its caller had to stay for %v", name, took)
			}
			if err := client.Close(context.Background()); err != nil || len(seen.list()) > 0 {
				t.Errorf("%s: hooks %v, %v", name, seen.list(), err)
			}
			told := requests[*idemdv1.FailRequest](f)
			if len(told) != c.told || told[0].GetKind() != idemdv1.FailureKind_FAILURE_KIND_RETRYABLE {
				t.Errorf("%s: told %v", name, told)
			}
		})
	}
}

func TestTheFirstAttemptIsWhenDoWasCalledUnlessSaid(t *testing.T) {
	for _, said := range []time.Time{{}, time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		bubble(t, script{"Reserve": {away(), ownedFor(30 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
			want := said
			if want.IsZero() {
				want = time.Now()
			}
			op := operation()
			op.FirstAttemptAt = said
			if _, err := c.Do(t.Context(), op, returns(nil, nil)); err != nil {
				t.Fatal(err)
			}
			for _, r := range requests[*idemdv1.ReserveRequest](f) {
				if got := r.GetFirstAttemptAt().AsTime(); !got.Equal(want) {
					t.Errorf("first tried at %v, want %v", got, want)
				}
			}
		})
	}
}

func TestAnOldRetryIsRefusedAndItsKeyKept(t *testing.T) {
	bubble(t, script{"Reserve": {refusal(codes.FailedPrecondition, KeyMayHaveExpired)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Do(t.Context(), operation(), forbidden(t))
		if !errors.Is(err, KeyMayHaveExpired) || !KeepKey(err) || f.sent() != "Reserve" {
			t.Errorf("answered %v after %s", err, f.sent())
		}
	})
}

// Whatever fn does to what it was called with, the key and the token that were reserved
// are those that are told.
func TestWhatFnChangesIsNotWhatIsTold(t *testing.T) {
	bubble(t, script{"Reserve": {ownedFor(3 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		_, err := c.Do(t.Context(), op, func(ctx context.Context, g *Grant) (*Result, error) {
			g.Tenant, g.Namespace, g.Key = "mallory", "other", "other"
			op.Key = "other"
			sleep(ctx, 2*time.Second)
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		token := requests[*idemdv1.ReserveRequest](f)[0].GetOwnerToken()
		extended, told := requests[*idemdv1.ExtendRequest](f)[0], requests[*idemdv1.CompleteRequest](f)[0]
		for _, r := range []interface {
			GetTenant() string
			GetKey() string
			GetOwnerToken() []byte
		}{extended, told} {
			if r.GetTenant() != "acme" || r.GetKey() != "charge-42" || !bytes.Equal(r.GetOwnerToken(), token) {
				t.Errorf("told %v", r)
			}
		}
	})
	bubble(t, script{"Reserve": {unresolvedFor(time.Hour), ownedFor(time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		op.Reconcile = func(context.Context, *Unresolved) (Verdict, error) {
			op.Fingerprint.Digest[0]++
			return WasNotExecuted(), nil
		}
		if _, err := c.Do(t.Context(), op, returns(nil, nil)); err != nil {
			t.Fatal(err)
		}
		sent := requests[*idemdv1.ReserveRequest](f)
		if !bytes.Equal(sent[0].GetFingerprint().GetDigest(), sent[1].GetFingerprint().GetDigest()) {
			t.Error("the fingerprint was changed")
		}
	})
}

func TestWhatAnOperationSaysIsSentAndTheClientFillsTheRest(t *testing.T) {
	bubble(t, nil, Options{Tenant: "shop", Namespace: "payments", Owner: "pod-1"}, func(t *testing.T, c *Client, f *fake) {
		op := Operation{
			Key: "k", Fingerprint: SHA256("s", nil), Mode: Transactional, Lease: time.Minute, Retention: time.Hour,
			Wait: -1, PolicyVersion: "v1",
		}
		if _, err := c.Do(t.Context(), op, returns(nil, nil)); err != nil {
			t.Fatal(err)
		}
		op.Tenant, op.Namespace, op.Mode, op.Lease, op.Retention = "acme", "mails", External, 0, 0
		if _, err := c.Do(t.Context(), op, returns(nil, nil)); err != nil {
			t.Fatal(err)
		}
		sent := requests[*idemdv1.ReserveRequest](f)
		if r := sent[0]; r.GetTenant() != "shop" || r.GetNamespace() != "payments" || r.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_RERUN ||
			r.GetLease().AsDuration() != time.Minute || r.GetRetention().AsDuration() != time.Hour || r.GetWait().AsDuration() != 0 ||
			r.GetOwner() != "pod-1" || r.GetPolicyVersion() != "v1" {
			t.Errorf("sent %v", r)
		}
		if r := sent[1]; r.GetTenant() != "acme" || r.GetNamespace() != "mails" || r.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_HOLD ||
			r.GetLease() != nil || r.GetRetention() != nil {
			t.Errorf("sent %v", r)
		}
	})
}

func TestWithoutAFunctionNothingIsReserved(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		defer func() {
			if recover() == nil || f.sent() != "" {
				t.Errorf("sent %s", f.sent())
			}
		}()
		_, _ = c.Do(t.Context(), operation(), nil)
	})
}

func TestTheDefaultOwnerLabelFits(t *testing.T) {
	if owner := New(nil, Options{}).options.Owner; owner == "" || len(owner) > 128 || !strings.Contains(owner, "/") {
		t.Errorf("the owner label is %q", owner)
	}
}

func TestOneClientServesManyGoroutines(t *testing.T) {
	bubble(t, script{"Reserve": {inProgress(100 * time.Millisecond), away(), ownedFor(3 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				answer, err := c.Do(t.Context(), operation(), func(ctx context.Context, g *Grant) (*Result, error) {
					sleep(ctx, 2*time.Second)
					return body("mine"), g.Checkpoint(ctx, []byte("half"))
				})
				if err != nil || string(answer.Result.GetBody()) != "mine" {
					t.Errorf("answered %+v, %v", answer, err)
				}
			})
		}
		all.Wait()
		tokens := map[string]bool{}
		for _, r := range requests[*idemdv1.CompleteRequest](f) {
			tokens[string(r.GetOwnerToken())] = true
		}
		if len(tokens) != 64 {
			t.Errorf("64 attempts had %d tokens", len(tokens))
		}
	})
}

func TestADecisionThatIsNotKnownRunsNothing(t *testing.T) {
	bubble(t, script{"Reserve": {&idemdv1.ReserveResponse{}}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		var refused *Error
		if _, err := c.Do(t.Context(), operation(), forbidden(t)); !errors.As(err, &refused) || refused.Code != codes.Unimplemented {
			t.Errorf("answered %v", err)
		}
	})
}

func TestAnAddressIsTheClientsWhereTheOperationNamesNone(t *testing.T) {
	c := New(nil, Options{Tenant: "acme", Namespace: "payments"})
	for _, v := range []struct {
		op   Operation
		want Address
	}{
		{Operation{Key: "k"}, Address{"acme", "payments", "k"}},
		{Operation{Key: "k", Tenant: "globex"}, Address{"globex", "payments", "k"}},
		{Operation{Key: "k", Namespace: "mails"}, Address{"acme", "mails", "k"}},
	} {
		if got := c.Address(v.op); got != v.want {
			t.Errorf("%+v: %+v", v.op, got)
		}
	}
}
