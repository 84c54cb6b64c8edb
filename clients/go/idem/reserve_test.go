package idem

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The daemon holds a call no longer than there would be time for the effect, and a grant that
// comes later all the same is given back.
func TestNothingBeginsWithLessThanMinRemainingAfterAWait(t *testing.T) {
	for name, c := range map[string]struct {
		late time.Duration
		runs bool
	}{"in time": {4 * time.Second, true}, "too late": {6 * time.Second, false}} {
		s := script{"Reserve": {inProgress(0), after(c.late, ownedFor(30*time.Second))}}
		bubble(t, s, Options{}, func(t *testing.T, client *Client, f *fake) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			op := operation()
			op.MinRemaining = 10 * time.Second
			_, err := client.Do(ctx, op, func(ctx context.Context, _ *Grant) (*Result, error) {
				if deadline, _ := ctx.Deadline(); !c.runs || time.Until(deadline) < op.MinRemaining {
					t.Errorf("%s: begun with %v left", name, time.Until(deadline))
				}
				return nil, nil
			})
			var undone *NotExecutedError
			if c.runs != (err == nil) || !c.runs && (!errors.As(err, &undone) || !errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("%s: answered %v", name, err)
			}
			if held := requests[*idemdv1.ReserveRequest](f)[1].GetWait().AsDuration(); held != 5*time.Second {
				t.Errorf("%s: it may be held for %v", name, held)
			}
			if err := client.Close(t.Context()); err != nil || len(requests[*idemdv1.FailRequest](f)) > 0 == c.runs {
				t.Errorf("%s: sent %s, %v", name, f.sent(), err)
			}
		})
	}
}

func TestAWaitForWhichThereIsNoTimeEndsAtMinRemaining(t *testing.T) {
	held := func(ctx context.Context, r proto.Message) (proto.Message, error) {
		sleep(ctx, r.(*idemdv1.ReserveRequest).GetWait().AsDuration())
		return inProgress(time.Second), nil
	}
	for name, answer := range map[string]any{"held": held, "not held": inProgress(3 * time.Second)} {
		bubble(t, script{"Reserve": {answer}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			op := operation()
			op.MinRemaining = 10 * time.Second
			began := time.Now()
			_, err := c.Do(ctx, op, forbidden(t))
			var pending *InProgressError
			if !errors.As(err, &pending) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
				t.Errorf("%s: answered %v after %v", name, err, time.Since(began))
			}
		})
	}
}
