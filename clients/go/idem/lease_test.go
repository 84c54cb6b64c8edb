package idem

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The store decides at some moment after the request was sent and before its answer
// came, and says what is left then. Its clock may run faster than the client's.
func TestTheClientsLeaseEndsBeforeTheStores(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		var (
			sent     = time.Unix(0, rng.Int64N(1<<40)) // by the client's clock, whose zero is anywhere
			decision = time.Duration(rng.Int64N(int64(time.Minute)))
			length   = 100*time.Millisecond + time.Duration(rng.Int64N(int64(time.Hour)))
			fast     = 1 + 0.1*rng.Float64() // of the store's clock
		)
		mine := lease{sent: sent, length: length}
		// How long the lease lasts after the decision, and the client believes in it after
		// the sending, both by the client's clock.
		stores := time.Duration(float64(length) / fast)
		if believed := mine.end().Sub(sent); believed >= decision+stores {
			t.Fatalf("a lease of %v, decided on after %v by a clock %.3f times as fast, is believed in for %v", length, decision, fast, believed)
		}
		if !mine.renewAt().Before(mine.end()) || mine.renewAt().Sub(sent) != length/3 {
			t.Fatalf("a lease of %v is renewed after %v", length, mine.renewAt().Sub(sent))
		}
	}
}

func TestWorkLongerThanItsLeaseKeepsIt(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		op := operation()
		op.Lease = 3 * time.Second
		began := time.Now()
		_, err := c.Do(t.Context(), op, func(ctx context.Context, _ *Grant) (*Result, error) {
			sleep(ctx, 9500*time.Millisecond)
			return nil, ctx.Err()
		})
		if err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		extended := requests[*idemdv1.ExtendRequest](f)
		if len(extended) != 9 { // one a second: a third of the lease
			t.Errorf("extended %d times", len(extended))
		}
		for _, r := range extended {
			if r.GetLease().AsDuration() != 3*time.Second || len(r.GetCheckpoint()) > 0 || r.GetCheckpointSequence() != 0 {
				t.Errorf("extended with %v", r)
			}
		}
	})
}

func TestAnOwnerWhoseCallerIsGoneKeepsItsLease(t *testing.T) {
	bubble(t, script{"Reserve": {ownedFor(3 * time.Second)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Do(ctx, operation(), func(leased context.Context, _ *Grant) (*Result, error) {
			cancel()
			<-leased.Done()
			if errors.Is(context.Cause(leased), ErrLeaseLost) {
				t.Error("the caller's end is told as a lost lease")
			}
			sleep(context.Background(), 10*time.Second) // it can't be stopped half way
			return nil, nil
		})
		if err != nil || len(requests[*idemdv1.ExtendRequest](f)) == 0 {
			t.Errorf("answered %v, sent %s", err, f.sent())
		}
	})
}

// lostAfter runs an effect until its context ends, and says when and why that was.
func lostAfter(t *testing.T, c *Client, op Operation) (took time.Duration, cause, err error) {
	t.Helper()
	began := time.Now()
	_, err = c.Do(t.Context(), op, func(ctx context.Context, _ *Grant) (*Result, error) {
		<-ctx.Done()
		took, cause = time.Since(began), context.Cause(ctx)
		return nil, nil
	})
	return took, cause, err
}

func TestALateReplyCountsFromItsSending(t *testing.T) {
	bubble(t, script{"Extend": {silence}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		op := operation()
		op.Lease = 2 * time.Second
		if took, cause, err := lostAfter(t, c, op); took != 1800*time.Millisecond || !errors.Is(cause, ErrLeaseLost) || err != nil {
			t.Errorf("after %v the context ended with %v; Do returned %v", took, cause, err)
		}
	})
	slow := after(400*time.Millisecond, &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(2 * time.Second)})
	bubble(t, script{"Extend": {slow, silence}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		op := operation()
		op.Lease = 2 * time.Second
		third := op.Lease / 3
		if took, _, _ := lostAfter(t, c, op); took != third+op.Lease*9/10 {
			t.Errorf("a lease that was extended at %v, with an answer 400 ms later, was believed in until %v", third, took)
		}
	})
}

func TestAnAnswerThatWasOvertakenShortensNothing(t *testing.T) {
	late := after(time.Second, &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(3 * time.Second)})
	bubble(t, script{"Extend": {late}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		k := &keeper{attempt: &attempt{c: c}, lease: lease{time.Now(), 6 * time.Second}}
		before := k.lease.end()
		if err := k.extend(t.Context(), forever, nil, 0); err != nil || !k.lease.end().Equal(before) {
			t.Errorf("the lease ends at %v instead of %v; %v", k.lease.end(), before, err)
		}
	})
}

func TestAStoreThatIsAwayEndsTheContextBeforeTheLease(t *testing.T) {
	for _, mode := range []Mode{External, Transactional} {
		var seen events
		bubble(t, script{"Extend": {away()}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
			op := operation()
			op.Mode = mode
			took, cause, err := lostAfter(t, c, op)
			if took != 27*time.Second || !errors.Is(cause, ErrLeaseLost) {
				t.Errorf("after %v of 30 s the context ended with %v", took, cause)
			}
			if err != nil || len(requests[*idemdv1.CompleteRequest](f)) != 1 {
				t.Errorf("what fn returned was not told: %v, sent %s", err, f.sent())
			}
		})
		if got := seen.list(); !slices.Equal(got, []string{"LeaseLost"}) {
			t.Errorf("hooks %v", got)
		}
	}
}

func TestALeaseThatIsRenewedInTimeIsNotLost(t *testing.T) {
	s := script{"Extend": {away(), silence, away(), &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(time.Hour)}}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
		_, err := c.Do(t.Context(), operation(), func(ctx context.Context, _ *Grant) (*Result, error) {
			sleep(ctx, time.Minute)
			return nil, ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestARefusedExtensionEndsTheContextAtOnce(t *testing.T) {
	for reason, code := range map[Reason]codes.Code{
		StaleToken: codes.FailedPrecondition, AlreadyFinished: codes.FailedPrecondition, ReservationNotFound: codes.NotFound,
	} {
		var seen events
		bubble(t, script{"Extend": {refusal(code, reason)}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, _ *fake) {
			if took, cause, _ := lostAfter(t, c, operation()); took != 10*time.Second || !errors.Is(cause, ErrLeaseLost) || !errors.Is(cause, reason) {
				t.Errorf("%s: after %v the context ended with %v", reason, took, cause)
			}
		})
		if got := seen.list(); !slices.Equal(got, []string{"LeaseLost"}) {
			t.Errorf("hooks %v", got)
		}
	}
}

func TestAtTheHardCapTheRestOfTheLeaseIsUsed(t *testing.T) {
	clamped := &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(25 * time.Second), Clamped: true}
	for name, c := range map[string]struct {
		answer any
		want   time.Duration
	}{
		"clamped": {clamped, 10*time.Second + 22500*time.Millisecond},
		"reached": {refusal(codes.FailedPrecondition, LeaseCapReached), 27 * time.Second},
	} {
		bubble(t, script{"Extend": {c.answer}}, Options{}, func(t *testing.T, client *Client, f *fake) {
			if took, _, _ := lostAfter(t, client, operation()); took != c.want {
				t.Errorf("%s: the context ended after %v, want %v", name, took, c.want)
			}
			if n := len(requests[*idemdv1.ExtendRequest](f)); n != 1 {
				t.Errorf("%s: extended %d times", name, n)
			}
		})
	}
}

func TestAnUnexpectedRefusalIsTriedAgainUntilTheLeaseIsOver(t *testing.T) {
	bubble(t, script{"Extend": {refusal(codes.DataLoss, RecordUnreadable)}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		if took, _, _ := lostAfter(t, c, operation()); took != 27*time.Second {
			t.Errorf("the context ended after %v", took)
		}
		if n := len(requests[*idemdv1.ExtendRequest](f)); n < 5 || n > 20 {
			t.Errorf("extended %d times", n)
		}
	})
}

// A Reserve that was held for 40 s and then granted must not count as lapsed.
func TestALeaseThatHasRunForAWhileIsExtendedBeforeFnStarts(t *testing.T) {
	for name, late := range map[string]time.Duration{"a third has passed": 10 * time.Second, "it was held for longer than the lease": 40 * time.Second} {
		bubble(t, script{"Reserve": {inProgress(0), after(late, ownedFor(30*time.Second))}}, Options{}, func(t *testing.T, c *Client, f *fake) {
			_, err := c.Do(t.Context(), operation(), func(ctx context.Context, _ *Grant) (*Result, error) {
				if f.sent() != "Reserve Reserve Extend" {
					t.Errorf("%s: fn starts after %s", name, f.sent())
				}
				sleep(ctx, 9*time.Second)
				return nil, ctx.Err()
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	bubble(t, script{"Reserve": {inProgress(0), after(9*time.Second, ownedFor(30*time.Second))}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Do(t.Context(), operation(), returns(nil, nil)); err != nil || f.sent() != "Reserve Reserve Complete" {
			t.Errorf("a fresh lease: sent %s, %v", f.sent(), err)
		}
	})
}

func TestAGrantThatIsLostBeforeFnStartsIsAskedForAnew(t *testing.T) {
	s := script{
		"Reserve": {inProgress(0), after(40*time.Second, ownedFor(30*time.Second)), ownedFor(30 * time.Second)},
		"Extend":  {refusal(codes.FailedPrecondition, StaleToken)},
	}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Do(t.Context(), operation(), returns(nil, nil)); err != nil || f.sent() != "Reserve Reserve Extend Reserve Complete" {
			t.Errorf("sent %s, %v", f.sent(), err)
		}
		if sent := requests[*idemdv1.ReserveRequest](f); bytes.Equal(sent[1].GetOwnerToken(), sent[2].GetOwnerToken()) {
			t.Error("the token is the same")
		}
	})
}

func TestAGrantThatCantBeFreshenedIsGivenBack(t *testing.T) {
	for name, extend := range map[string]any{
		"away":     away(),
		"too slow": after(4*time.Second, &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(100 * time.Millisecond)}),
	} {
		s := script{"Reserve": {after(4*time.Second, ownedFor(100*time.Millisecond))}, "Extend": {extend}}
		bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
			_, err := c.Do(t.Context(), operation(), forbidden(t))
			var undone *NotExecutedError
			if !errors.As(err, &undone) {
				t.Errorf("%s: answered %v", name, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if told := requests[*idemdv1.FailRequest](f); len(told) != 1 || told[0].GetKind() != idemdv1.FailureKind_FAILURE_KIND_RETRYABLE {
				t.Errorf("%s: told %v", name, told)
			}
		})
	}
}

func TestCheckpointsAreStoredInOrderAndGivenToTheNextAttempt(t *testing.T) {
	bubble(t, script{"Reserve": {decided(&idemdv1.Owned{
		Attempt: 2, Takeover: true, LeaseRemaining: durationpb.New(30 * time.Second), Checkpoint: []byte("page 7"), PolicyVersion: "v1",
		LastFailure: body("no"), ReservedAt: timestamppb.New(time.Unix(1, 0)),
	})}, "Extend": {&idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(30 * time.Second)}, away()}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Do(t.Context(), operation(), func(ctx context.Context, g *Grant) (*Result, error) {
			if string(g.LastCheckpoint) != "page 7" || !g.Takeover || g.PolicyVersion != "v1" || string(g.LastFailure.GetBody()) != "no" ||
				!g.ReservedAt.Equal(time.Unix(1, 0)) {
				t.Errorf("granted %+v", g)
			}
			data := []byte("page 8")
			if err := g.Checkpoint(ctx, data); err != nil {
				t.Error(err)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := g.Checkpoint(short, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a checkpoint that can't be stored is answered %v", err)
			}
			return nil, errBank
		})
		var unknown *UnresolvedError
		if !errors.As(err, &unknown) || string(unknown.Checkpoint) != "page 8" {
			t.Errorf("answered %v", err)
		}
		sent := requests[*idemdv1.ExtendRequest](f)
		if string(sent[0].GetCheckpoint()) != "page 8" || sent[0].GetCheckpointSequence() != 1 || sent[1].GetCheckpointSequence() != 2 {
			t.Errorf("sent %v", sent)
		}
	})
}

func TestAFunctionThatStoresCheckpointsCanBeTestedWithoutADo(t *testing.T) {
	if err := (&Grant{Key: "k"}).Checkpoint(t.Context(), []byte("half")); err != nil {
		t.Error(err)
	}
}

func TestACheckpointThatIsRefusedAsStaleEndsTheContext(t *testing.T) {
	bubble(t, script{"Extend": {refusal(codes.FailedPrecondition, StaleToken)}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		var kept *Grant
		_, _ = c.Do(t.Context(), operation(), func(ctx context.Context, g *Grant) (*Result, error) {
			kept = g
			if err := g.Checkpoint(ctx, []byte("x")); !errors.Is(err, StaleToken) || !errors.Is(context.Cause(ctx), ErrLeaseLost) {
				t.Errorf("answered %v, the context's cause is %v", err, context.Cause(ctx))
			}
			return nil, nil
		})
		if err := kept.Checkpoint(t.Context(), nil); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("after the end a checkpoint is answered %v", err)
		}
	})
}

func TestAShortLeaseHasTimeForASecondTry(t *testing.T) {
	for _, length := range []time.Duration{300 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
		calls := 0
		second := func(ctx context.Context, r proto.Message) (proto.Message, error) {
			if calls++; calls%2 == 1 {
				return silence(ctx, r)
			}
			return defaultAnswer(r)
		}
		bubble(t, script{"Extend": {second}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
			op := operation()
			op.Lease = length
			_, err := c.Do(t.Context(), op, func(ctx context.Context, _ *Grant) (*Result, error) {
				sleep(ctx, 20*time.Second)
				return nil, ctx.Err()
			})
			if err != nil {
				t.Errorf("a lease of %v: %v", length, err)
			}
		})
	}
}

// Otherwise a late Extend could be the daemon's last word of an attempt that is over.
func TestNoRenewalIsUnderWayAnyMoreOnceAnOutcomeIsTold(t *testing.T) {
	var over bool
	slow := func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		<-time.After(time.Second)
		over = true
		return nil, ctx.Err()
	}
	complete := func(context.Context, proto.Message) (proto.Message, error) {
		if !over {
			t.Error("an Extend is under way")
		}
		return &idemdv1.CompleteResponse{}, nil
	}
	bubble(t, script{"Extend": {slow}, "Complete": {complete}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		_, err := c.Do(t.Context(), operation(), func(context.Context, *Grant) (*Result, error) {
			<-time.After(11 * time.Second) // of a lease of 30
			return nil, nil
		})
		if err != nil || !over {
			t.Errorf("answered %v; the lease was extended: %v", err, over)
		}
	})
}
