package idem

import (
	"context"
	"errors"
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

func TestADecisionIDIsStoredHoweverTheFunctionEnds(t *testing.T) {
	own := body("receipt")
	own.DecisionId = "own"
	for _, c := range []struct {
		fn           func(*Grant) (*Result, error)
		want, result string
	}{
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_1"); return body("receipt"), nil }, "ch_1", "receipt"},
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_0"); g.SetDecisionID("ch_1"); return nil, nil }, "ch_1", ""},
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_1"); return own, nil }, "own", "receipt"},
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_1"); return nil, Final(errors.New("no")) }, "ch_1", "no"},
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_1"); return nil, errors.New("perhaps") }, "ch_1", ""},
		{func(g *Grant) (*Result, error) { g.SetDecisionID("ch_1"); panic("in the middle") }, "ch_1", ""},
		{func(*Grant) (*Result, error) { return body("receipt"), nil }, "", "receipt"},
	} {
		bubble(t, nil, Options{}, func(t *testing.T, client *Client, f *fake) {
			shared := body("receipt")
			func() {
				defer func() { _ = recover() }()
				_, _ = client.Do(t.Context(), operation(), func(_ context.Context, g *Grant) (*Result, error) {
					result, err := c.fn(g)
					if string(result.GetBody()) == "receipt" && result != own {
						result = shared
					}
					return result, err
				})
			}()
			var told *Result
			for _, r := range requests[*idemdv1.CompleteRequest](f) {
				told = r.GetResult()
			}
			for _, r := range requests[*idemdv1.FailRequest](f) {
				told = r.GetResult()
			}
			if told.GetDecisionId() != c.want || string(told.GetBody()) != c.result {
				t.Errorf("told %v, want %q and %q", told, c.want, c.result)
			}
			if shared.GetDecisionId() != "" {
				t.Error("the function's own result was changed")
			}
		})
	}
	(&Grant{}).SetDecisionID("in a test of the function")
}
