package idem

import (
	"context"
	"testing"
	"time"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestWorkSeesTheGrantItRunsUnder(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, _ *fake) {
		if g, is := GrantFrom(t.Context()); is || g != nil {
			t.Errorf("outside of Do: %+v", g)
		}
		_, err := c.Do(t.Context(), operation(), func(ctx context.Context, outer *Grant) (*Result, error) {
			if g, is := GrantFrom(ctx); !is || g != outer {
				t.Errorf("%+v, want %+v", g, outer)
			}
			other := operation()
			other.Key = "another"
			_, err := c.Do(ctx, other, func(ctx context.Context, inner *Grant) (*Result, error) {
				if g, is := GrantFrom(ctx); !is || g != inner || g.Key != "another" {
					t.Errorf("within: %+v, want %+v", g, inner)
				}
				if g, is := GrantFrom(WithGrant(ctx, nil)); is || g != nil {
					t.Errorf("unguarded within: %+v", g)
				}
				return nil, nil
			})
			if g, _ := GrantFrom(ctx); g != outer {
				t.Errorf("after: %+v, want %+v", g, outer)
			}
			return nil, err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What a Reconcile finds out is about its own operation, whose grant is over.
func TestReconcileSeesNoGrantOfTheWorkAroundIt(t *testing.T) {
	s := script{"Reserve": {ownedFor(time.Minute), unresolvedFor(time.Hour), replayOf(idemdv1.State_STATE_SUCCEEDED, "receipt")}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
		_, err := c.Do(t.Context(), operation(), func(ctx context.Context, _ *Grant) (*Result, error) {
			asked := 0
			other := operation()
			other.Key, other.Reconcile = "another", func(ctx context.Context, _ *Unresolved) (Verdict, error) {
				asked++
				if g, is := GrantFrom(ctx); is {
					t.Errorf("Reconcile sees %+v", g)
				}
				return WasExecuted(nil), nil
			}
			_, err := c.Do(ctx, other, forbidden(t))
			if asked == 0 {
				t.Error("nobody was asked")
			}
			return nil, err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
