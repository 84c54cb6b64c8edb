package idem

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestWhatRunsInTheBackgroundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground()
		if b.withdrawals.most != maxWithdrawals || b.outcomes.most != maxOutcomes {
			t.Errorf("there is room for %d withdrawals and %d outcomes", b.withdrawals.most, b.outcomes.most)
		}
		b.withdrawals.most, b.outcomes.most = 100, 10
		held := func(ctx context.Context) { <-ctx.Done() }
		for _, r := range []*room{&b.withdrawals, &b.outcomes} {
			for range r.most {
				if !b.start(t.Context(), r, held) {
					t.Fatal("refused before the bound")
				}
			}
			if b.start(t.Context(), r, held) {
				t.Error("one more than the bound runs")
			}
		}
		began := time.Now()
		if err := b.close(context.Background()); err != nil || time.Since(began) != backgroundTimeout {
			t.Errorf("closed with %v after %v", err, time.Since(began))
		}
		if b.start(t.Context(), &b.outcomes, held) {
			t.Error("something starts after the end")
		}
	})
}

// All who wait hang up at once: each of them is withdrawn, and where that takes all the room
// there is, none stands in the way of an outcome.
func TestAMassHangUpLosesNoWithdrawalAndNoOutcome(t *testing.T) {
	const waiting = 50 // of thousands in a bubble the race detector's own runtime fails, now and then
	var seen events
	crossing := func(ctx context.Context, r proto.Message) (proto.Message, error) {
		if r.(*idemdv1.ReserveRequest).GetKey() == "mine" {
			return ownedFor(30 * time.Second), nil
		}
		return silence(ctx, r)
	}
	began := time.Now()
	slow := func(context.Context, proto.Message) (proto.Message, error) {
		if time.Since(began) < 30*time.Second {
			return nil, away()
		}
		return &idemdv1.CompleteResponse{}, nil
	}
	s := script{"Reserve": {crossing}, "Extend": {refusal(codes.FailedPrecondition, StaleToken)}, "Complete": {slow}}
	bubble(t, s, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
		began = time.Now()
		c.background.withdrawals.most, c.background.outcomes.most = waiting, 1
		ctx, hangUp := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for range waiting {
			waiters.Go(func() { _, _ = c.Do(ctx, operation(), forbidden(t)) })
		}
		synctest.Wait()
		hangUp()
		waiters.Wait()
		op := operation()
		op.Key = "mine"
		if answer, err := c.Do(t.Context(), op, returns(body("done"), nil)); err != nil || answer.Unrecorded == nil {
			t.Errorf("answered %+v, %v", answer, err)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := len(requests[*idemdv1.CompleteRequest](f)); n < 2 {
			t.Errorf("told %d times", n)
		}
	})
	if got := seen.list(); !slices.Equal(got, slices.Repeat([]string{"Withdrawn nil"}, waiting)) {
		t.Errorf("%d hooks, want %d withdrawals", len(got), waiting)
	}
}

func TestCloseCutsOffWhatDoesNotEndInItsTime(t *testing.T) {
	var seen events
	bubble(t, script{"Complete": {away()}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, _ *fake) {
		if _, err := c.Do(t.Context(), operation(), returns(nil, nil)); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		if got := seen.list(); !slices.Equal(got, []string{"Unrecorded"}) {
			t.Errorf("hooks %v", got)
		}
	})
}

func TestAfterCloseWhatIsUnrecordedIsSaid(t *testing.T) {
	var seen events
	bubble(t, script{"Complete": {away()}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, _ *fake) {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(t.Context(), operation(), returns(nil, nil))
		if err != nil || answer.Unrecorded == nil || !slices.Equal(seen.list(), []string{"Unrecorded"}) {
			t.Errorf("answered %+v, %v; hooks %v", answer, err, seen.list())
		}
	})
}
