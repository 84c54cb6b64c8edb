package idem

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// maxSpent bounds how many tokens one Do makes for one decision.
const maxSpent = 4

// reserve asks until the answer is another one than "in progress", or the time is over.
// Every repetition carries the same token, for one of them may have been granted.
func (g *guard) reserve(ctx context.Context) (*idemdv1.ReserveResponse, error) {
	spent := 0
	for {
		response, err := g.ask(ctx)
		switch {
		case err != nil && err.Reason == TokenSpent && spent < maxSpent:
			spent++
			g.request.OwnerToken, g.doubt = NewToken(), false
		case err != nil:
			if err.ended != nil && g.pending != nil {
				g.pending.Err = err
				return nil, g.pending
			}
			return nil, err
		case response.GetInProgress() == nil:
			g.pending = nil
			return response, nil
		case !g.held && g.hold(ctx) > 0:
			g.held = true // somebody is on it: from now on the daemon holds the call
		default:
			if err := g.pause(ctx, response.GetInProgress()); err != nil {
				return nil, err
			}
		}
	}
}

// ask sends one Reserve. The first one is answered at once, so that a daemon that is silent
// is not taken for one that holds it; then the daemon holds it as long as the operation
// may wait.
func (g *guard) ask(ctx context.Context) (*idemdv1.ReserveResponse, *Error) {
	if err := g.tooLate(ctx); err != nil {
		return nil, err
	}
	var response *idemdv1.ReserveResponse
	timeout := callTimeout
	if g.held {
		timeout += g.hold(ctx)
	}
	err := persist(ctx, g.c.options.Patience, timeout, func(one context.Context) (err error) {
		g.request.Wait = nil
		if g.held {
			g.request.Wait = durationpb.New(g.hold(ctx))
		}
		g.sent = time.Now()
		if response, err = g.c.service.Reserve(one, g.request); err != nil && !errorOf(err).decided() {
			g.doubt = true
		}
		return err
	})
	if response.GetOwned() != nil || response.GetReplay() != nil {
		g.doubt = false // it is ours, or can't be granted any more
	}
	return response, err
}

// hold is how long the daemon may hold a call.
func (g *guard) hold(ctx context.Context) time.Duration { return min(max(g.rest(ctx), 0), maxWait) }

// rest is how long there is to wait: as long as the operation may, and while there would
// be time for the effect.
func (g *guard) rest(ctx context.Context) time.Duration {
	rest := time.Until(g.waitUntil)
	if deadline, has := ctx.Deadline(); has {
		rest = min(rest, time.Until(deadline)-g.op.minRemaining())
	}
	return rest
}

// tooLate: nothing is reserved or begun for an effect that there is no time for.
func (g *guard) tooLate(ctx context.Context) *Error {
	if ctx.Err() != nil {
		return endedBy(ctx, nil)
	}
	least := g.op.minRemaining()
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) <= least {
		return &Error{
			Code: codes.DeadlineExceeded, Message: fmt.Sprintf("no more than %v is left to the deadline: it was not begun", least),
			ended: context.DeadlineExceeded,
		}
	}
	return nil
}

// pause waits until it is worth asking again; it is an error if that is too late.
func (g *guard) pause(ctx context.Context, p *idemdv1.InProgress) error {
	hint, left := p.GetRetryAfter().AsDuration(), g.rest(ctx)
	g.pending = &InProgressError{Attempt: p.GetAttempt(), Owner: p.GetOwner(), RetryAfter: hint}
	scheduled := p.GetState() == idemdv1.State_STATE_FAILED_RETRYABLE
	if left <= 0 || scheduled && hint > left {
		if late := g.tooLate(ctx); late != nil {
			g.pending.Err = late
		}
		return g.pending
	}
	if !sleep(ctx, min(jittered(max(hint, firstPause)), left)) {
		g.pending.Err = endedBy(ctx, nil)
		return g.pending
	}
	return nil
}
